package matching

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/shared"
)

// gavel reads the pairs that the oracle campaign measured on one GPU model.
func gavel(t testing.TB, gpu string) *interference.Table {
	t.Helper()
	file, err := os.Open(shared.Data(t, "interference/pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	table := interference.NewTable()
	for _, row := range rows[1:] {
		cell := func(name string) string { return row[column[name]] }
		if cell("source") != "gavel_oracle" || cell("gpu_type") != gpu {
			continue
		}
		a, errA := strconv.ParseFloat(cell("norm_a"), 64)
		b, errB := strconv.ParseFloat(cell("norm_b"), 64)
		if errA != nil || errB != nil {
			t.Fatal(row)
		}
		table.Add(interference.Config{Model: cell("job_a"), Batch: cell("batch_a")},
			interference.Config{Model: cell("job_b"), Batch: cell("batch_b")}, a, b)
	}
	return table
}

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
		table := gavel(t, c.gpu)
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
