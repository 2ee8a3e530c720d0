package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/workload"
)

// BenchmarkAdjust is one round of corrections in which every shared GPU is observed, on n one-worker jobs that were all
// placed at once; the worst round there is. Rounds come a window apart.
func BenchmarkAdjust(b *testing.B) {
	for _, n := range []int{5_000, 10_000, 20_000} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			table := interference.Catalogue("p100")
			mix := workload.LightMix()
			jobs := workload.Copies(mix, n/len(mix)+1, 0.85)[:n]
			for b.Loop() {
				b.StopTimer()
				belief := interference.NewBelief(table, lowered(table, 0.05), 0.9)
				pool := cluster.Uniform(n/8+1, 8)
				a := policy.NewAdjusting(placement.NewProblem(jobs, belief.Safe(), nil, placement.Options{MaxResidents: 4}), pool,
					policy.AdjustingOptions{Belief: belief, Truth: table, Noise: 0.05, Random: rand.New(rand.NewPCG(1, 2)),
						Window: time.Minute, Pause: time.Minute, Drain: true})
				a.Adjust(0, nil)
				for j := range jobs {
					if _, ok := a.Place(j); !ok {
						b.Fatal("no room")
					}
				}
				a.Rates(func(int, float64) {})
				b.StartTimer()
				a.Adjust(unit.Time(time.Minute), func(int, []policy.Slot, time.Duration) {})
			}
		})
	}
}

// lowered is a table whose rates are lower by some.
func lowered(t *interference.Table, by float64) *interference.Table {
	low := interference.NewTable()
	for i := range t.Len() {
		for l := range t.Len() {
			low.Add(t.Config(i), t.Config(l), max(0, 1/(1+t.Added(i, l))-by), max(0, 1/(1+t.Added(l, i))-by))
		}
	}
	return low
}
