package covering

import (
	"math"
	"testing"
	"time"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/workload"
)

// slowdowns is the problem of copies of each type that slow each other down: added(i, l) is what l adds to i, and every
// member of a configuration keeps the floor.
func slowdowns(types, copies, size int, floor float64, added func(i, l int) float64) Problem {
	demand := make([]int, types)
	for t := range demand {
		demand[t] = copies
	}
	each := func(config []int, visit func(slowdown float64)) {
		for i, t := range config {
			s := 1.0
			for l, u := range config {
				if l != i {
					s += added(t, u)
				}
			}
			visit(s)
		}
	}
	return Problem{
		Demand: demand, MaxSize: size,
		Fits: func(config []int) bool {
			fits := true
			each(config, func(s float64) { fits = fits && s <= 1/floor+1e-9 })
			return fits
		},
		Penalty: func(config []int) float64 {
			total := 0.0
			each(config, func(s float64) { total += s })
			return total
		},
	}
}

func gavelProblem(t testing.TB, gpu string, configs []interference.Config, floor float64, size int) Problem {
	t.Helper()
	table := interference.Catalogue(gpu)
	if configs == nil {
		for i := range table.Len() {
			configs = append(configs, table.Config(i))
		}
	}
	number := make([]int, len(configs))
	for i, c := range configs {
		var ok bool
		if number[i], ok = table.Lookup(c); !ok {
			t.Fatalf("%v was not measured", c)
		}
	}
	return slowdowns(len(configs), 8, size, floor, func(i, l int) float64 { return table.Added(number[i], number[l]) })
}

// report solves and rounds, and checks what must hold of every result.
func report(t testing.TB, p Problem) (s *Solution, configs [][]int, performance float64) {
	t.Helper()
	start := time.Now()
	s, err := Solve(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	solved := time.Since(start)
	configs = Round(p, s, 0)
	took := time.Since(start)
	verify(t, p, s, configs)
	items, slow := 0, 0.0
	for _, c := range configs {
		items += len(c)
		slow += p.Penalty(c)
	}
	performance = float64(items) / slow
	t.Logf("%d items, %d types, K %d: bound %.4f, value %.4f, rounded %d (%.2f %% above), performance %.4f, LP %v, rounding %v, left %v",
		items, len(p.Demand), p.MaxSize, s.Bound, s.Value, len(configs), 100*(float64(len(configs))/s.Bound-1), performance,
		solved.Round(time.Microsecond), (took - solved).Round(time.Microsecond), s.Optimal)
	return s, configs, performance
}

// The whole mixes: published as the exact optimum of pairs, to which a third and fourth resident add nothing.
func TestGavelMixes(t *testing.T) {
	for _, c := range []struct {
		gpu   string
		floor float64
		gpus  int
	}{
		{"p100", 0.80, 128}, {"p100", 0.85, 152}, {"p100", 0.90, 164},
		{"v100", 0.80, 176}, {"v100", 0.85, 196}, {"v100", 0.90, 200},
	} {
		for size := 2; size <= 4; size++ {
			s, configs, _ := report(t, gavelProblem(t, c.gpu, nil, c.floor, size))
			if !s.Optimal || len(configs) != c.gpus || s.Bound < float64(c.gpus)-1e-6 {
				t.Errorf("%s at %v, up to %d: bound %v, rounded %d, want %d", c.gpu, c.floor, size, s.Bound, len(configs), c.gpus)
			}
		}
	}
}

// The light mix: published is the share of GPUs that the bound saves, to a tenth of a per cent.
func TestLightMix(t *testing.T) {
	for _, c := range []struct {
		floor       float64
		size        int
		saved       float64
		gpus        int
		performance float64
	}{
		{0.85, 3, 0.487, 54, 0.93}, {0.85, 4, 0.492, 53, 0.93}, {0.80, 3, 0.590, 43, 0.89}, {0.80, 4, 0.596, 42, 0.89},
	} {
		s, configs, performance := report(t, gavelProblem(t, "p100", workload.LightMix(), c.floor, c.size))
		if saved := 1 - s.Bound/104; math.Abs(saved-c.saved) > 0.0006 {
			t.Errorf("%v, up to %d: the bound saves %v, published %v", c.floor, c.size, saved, c.saved)
		}
		if len(configs) > c.gpus || performance < c.performance {
			t.Errorf("%v, up to %d: %d GPUs at performance %v", c.floor, c.size, len(configs), performance)
		}
	}
}
