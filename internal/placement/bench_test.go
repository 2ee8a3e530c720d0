package placement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// memories are the kinds of benchmarked problems: memory unknown; known and seldom binding; deciding, on GPUs that hold
// few of the workers and where nothing else limits.
var memories = []string{"none", "slack", "binding"}

// mixed is n one-worker jobs of the P100 configurations with a floor of 0.85, and a random twelve-level memory profile
// each, so that every worker is of its own kind; of the light mix with a floor of 0.5 where memory is to bind.
func mixed(n int, memory string) *Problem {
	table, floor, only, o := interference.Catalogue("p100"), 0.85, []interference.Config(nil), Options{MaxResidents: 4, Epsilon: 0.05}
	if memory == "binding" {
		floor, only = 0.5, light
	}
	configs := len(only)
	if only == nil {
		configs = table.Len()
	}
	jobs := copies(table, (n+configs-1)/configs, floor, only...)[:n]
	switch memory {
	case "none":
		return NewProblem(jobs, table, nil, o)
	case "slack":
		o.GPUMemory = 16 * unit.GiB
	case "binding":
		o.GPUMemory = 11 * unit.GiB
	}
	random := rand.New(rand.NewPCG(1, 2))
	shape, _ := profile.NamedShape("resnet50-w4")
	profiles := make([]profile.Profile, n)
	for j := range profiles {
		persistent := unit.MiB * unit.Bytes(500+random.IntN(4000))
		profiles[j] = profile.New(persistent, persistent+unit.MiB*unit.Bytes(random.IntN(6000)), shape)
	}
	return NewProblem(jobs, table, profiles, o)
}

// distinct is n jobs of as many configurations, each measured beside each other at a rate that depends on both.
func distinct(types, copies int) *Problem {
	table, random := interference.NewTable(), rand.New(rand.NewPCG(3, 4))
	for i := range types {
		for l := range i + 1 {
			table.Add(config(i), config(l), 0.7+0.3*random.Float64(), 0.7+0.3*random.Float64())
		}
	}
	return mixOf(table, copies, 0.85)
}

func mixOf(table *interference.Table, n int, floor float64) *Problem {
	return NewProblem(copies(table, n, floor), table, nil, Options{MaxResidents: 4, Epsilon: 0.05})
}

// benchmark measures a method on a problem that is made anew each time, since problems remember.
func benchmark(b *testing.B, problem func() *Problem, pack func(context.Context, *Problem) (*Packing, error)) {
	b.Helper()
	b.ReportAllocs()
	gpus, workers := 0, 0
	for b.Loop() {
		b.StopTimer()
		p := problem()
		b.StartTimer()
		q, err := pack(context.Background(), p)
		if err != nil {
			b.Fatal(err)
		}
		gpus, workers = len(q.GPUs), workers+p.Workers()
	}
	b.ReportMetric(float64(gpus), "GPUs")
	b.ReportMetric(float64(workers)/b.Elapsed().Seconds(), "workers/s")
}

func BenchmarkGreedy(b *testing.B) {
	for _, memory := range memories {
		for _, n := range []int{50_000, 100_000} {
			b.Run(fmt.Sprintf("memory=%s/workers=%d", memory, n), func(b *testing.B) {
				benchmark(b, func() *Problem { return mixed(n, memory) }, Greedy)
			})
		}
	}
}

func BenchmarkHeuristic(b *testing.B) {
	for _, memory := range memories {
		b.Run(fmt.Sprintf("memory=%s/workers=5000", memory), func(b *testing.B) {
			benchmark(b, func() *Problem { return mixed(5_000, memory) }, Heuristic)
		})
	}
}

func BenchmarkExact(b *testing.B) {
	for _, memory := range memories {
		b.Run(fmt.Sprintf("memory=%s/workers=1000", memory), func(b *testing.B) {
			benchmark(b, func() *Problem { return mixed(1_000, memory) }, Exact)
		})
	}
}

func BenchmarkLP(b *testing.B) {
	b.Run("types=100/workers=800", func(b *testing.B) {
		benchmark(b, func() *Problem { return distinct(100, 8) }, LP)
	})
	b.Run("memory=binding/workers=1000", func(b *testing.B) {
		benchmark(b, func() *Problem { return mixed(1_000, "binding") }, LP)
	})
}

func BenchmarkLowerBound(b *testing.B) {
	for _, c := range []struct {
		name    string
		problem func() *Problem
	}{
		{"types=26/workers=100000", func() *Problem { return mixed(100_000, "none") }},
		{"types=100/workers=800", func() *Problem { return distinct(100, 8) }},
		{"memory=binding/workers=1000", func() *Problem { return mixed(1_000, "binding") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var bound Bound
			for b.Loop() {
				b.StopTimer()
				p := c.problem()
				b.StartTimer()
				bound = LowerBound(p)
			}
			b.ReportMetric(bound.GPUs, "bound")
		})
	}
}

// BenchmarkLimits asks what keeps a packing from needing fewer GPUs.
func BenchmarkLimits(b *testing.B) {
	for _, memory := range memories {
		b.Run(fmt.Sprintf("memory=%s/workers=5000", memory), func(b *testing.B) {
			p := mixed(5_000, memory)
			q, err := Greedy(context.Background(), p)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p.Limits(q)
			}
		})
	}
}

// BenchmarkFloors packs 2,000 jobs that state many different floors: groups are many, and sets of them millions.
func BenchmarkFloors(b *testing.B) {
	for _, floors := range []int{1, 10, 40} {
		b.Run(fmt.Sprintf("floors=%d/workers=2000", floors), func(b *testing.B) {
			benchmark(b, func() *Problem {
				table, random := interference.Catalogue("p100"), rand.New(rand.NewPCG(5, 6))
				jobs := copies(table, 77, 0.8)[:2000]
				for i := range jobs {
					jobs[i].Floor = 0.75 + 0.005*float64(random.IntN(floors))
				}
				return NewProblem(jobs, table, nil, Options{MaxResidents: 4})
			}, Greedy)
		})
	}
}
