package policy

import (
	"math/rand/v2"
	"testing"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// BenchmarkScoredChurn is one departure and up to four tries to fill its place on a full cluster of 1,000 nodes of 8 GPUs: gangs of up to 16
// workers and fractions, in 36 shapes.
func BenchmarkScoredChurn(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	jobs := make([]cluster.Job, 20000)
	for i := range jobs {
		jobs[i] = gang([]int{1, 1, 1, 2, 4, 8, 16}[r.IntN(7)])
		if jobs[i].Workers == 1 {
			jobs[i].Share = unit.MilliGPU(100 * (1 + r.IntN(10)))
		}
		jobs[i].CPU = unit.MilliCPU(2000 * (1 + r.IntN(3)) * jobs[i].Workers)
	}
	c := cluster.Uniform(1000, 8)
	for i := range c.Nodes {
		c.Nodes[i].CPU = 96000
	}
	for _, name := range ScoredNames() {
		b.Run(name, func(b *testing.B) {
			p := newScored(b, name, c, jobs, ScoredOptions{})
			var running [][]Slot
			var ids []int
			next := 0
			place := func() bool {
				slots, ok := p.Place(next % len(jobs))
				if ok {
					running, ids = append(running, slots), append(ids, next%len(jobs))
				}
				next++
				return ok
			}
			for place() {
			}
			b.ReportAllocs()
			for b.Loop() {
				at := r.IntN(len(ids))
				p.Release(ids[at], running[at])
				last := len(ids) - 1
				ids[at], running[at] = ids[last], running[last]
				ids, running = ids[:last], running[:last]
				for tries := 0; tries < 4 && !place(); tries++ {
				}
			}
		})
	}
}
