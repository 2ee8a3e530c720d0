package placement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// mixed is n one-worker jobs of the P100 configurations with a floor of 0.85 and, when memory is asked for, a random
// twelve-level memory profile each, so that every worker is of its own kind.
func mixed(b testing.TB, n int, memory bool) *Problem {
	b.Helper()
	table := gavel(b, "p100")
	jobs := copies(table, (n+table.Len()-1)/table.Len(), 0.85)[:n]
	o := Options{MaxResidents: 4, Epsilon: 0.05}
	if !memory {
		return NewProblem(jobs, table, nil, o)
	}
	o.GPUMemory = 16 * unit.GiB
	random := rand.New(rand.NewPCG(1, 2))
	shape, _ := profile.NamedShape("resnet50-w4")
	profiles := make([]profile.Profile, n)
	for j := range profiles {
		persistent := unit.MiB * unit.Bytes(500+random.IntN(4000))
		profiles[j] = profile.New(persistent, persistent+unit.MiB*unit.Bytes(random.IntN(6000)), shape)
	}
	return NewProblem(jobs, table, profiles, o)
}

func BenchmarkGreedy(b *testing.B) {
	for _, memory := range []bool{false, true} {
		for _, n := range []int{50_000, 100_000} {
			b.Run(fmt.Sprintf("memory=%t/workers=%d", memory, n), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					p := mixed(b, n, memory)
					b.StartTimer()
					q, err := Greedy(context.Background(), p)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(q.GPUs)), "GPUs")
				}
			})
		}
	}
}

func BenchmarkHeuristic(b *testing.B) {
	for _, memory := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%t/workers=5000", memory), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				p := mixed(b, 5_000, memory)
				b.StartTimer()
				q, err := Heuristic(context.Background(), p)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(q.GPUs)), "GPUs")
			}
		})
	}
}
