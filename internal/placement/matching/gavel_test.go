package matching

import (
	"testing"

	"weft.dev/weft/internal/interference"
)

// The published optimum for two residents: equal copies of every measured configuration, both of a pair at or above
// the floor.
func TestGavelPairOptimum(t *testing.T) {
	for _, c := range []struct {
		gpu          string
		floor        float64
		copies, jobs int
		gpus         int
	}{
		{"p100", 0.80, 4, 104, 64}, {"p100", 0.85, 8, 208, 152}, {"v100", 0.80, 4, 104, 88},
	} {
		table := interference.Catalogue(c.gpu)
		kinds := table.Len()
		n := kinds * c.copies
		if n != c.jobs {
			t.Fatalf("%s: %d configurations", c.gpu, kinds)
		}
		allowed := 1/c.floor - 1 + 1e-9
		var edges []Edge
		for u := range n {
			for v := range u {
				a, b := table.Added(u%kinds, v%kinds), table.Added(v%kinds, u%kinds)
				if max(a, b) <= allowed {
					edges = append(edges, Edge{u, v, a + b})
				}
			}
		}
		size, cost, _ := certify(t, n, edges)
		if n-size != c.gpus {
			t.Errorf("%s at %v: %d GPUs, want %d", c.gpu, c.floor, n-size, c.gpus)
		}
		t.Logf("%s at %v: %d of %d GPUs, mean performance %.4f", c.gpu, c.floor, n-size, n, float64(n)/(float64(n)+cost))
	}
}
