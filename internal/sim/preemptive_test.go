package sim_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// TestPreemptivePass looks at a replay of gangs at every instant at which something happened: no waiting job would fit
// on what the jobs before it leave.
func TestPreemptivePass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cluster.Uniform(rapid.IntRange(1, 4).Draw(t, "nodes"), 4)
		jobs := drawJobs(t, 14, 4, false)
		order := rapid.SampledFrom([]policy.Order{policy.SRTF(), policy.SRSF()}).Draw(t, "order")
		kind := rapid.SampledFrom([]string{"consolidated", "plain"}).Draw(t, "placer")
		r := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: order, Placer: placers[kind](c, jobs), Spans: true})
		instants := map[unit.Time]bool{}
		for i, o := range r.Outcomes {
			instants[jobs[i].Submit], instants[o.End] = true, true
		}
		for at := range instants {
			checkInstant(t, c, jobs, order, r, at)
		}
	})
}

func checkInstant(t *rapid.T, c cluster.Cluster, jobs []cluster.Job, order policy.Order, r *sim.Result, at unit.Time) {
	free, on, ran := make([]int, len(c.Nodes)), make([][]int32, len(jobs)), make([]time.Duration, len(jobs))
	for i := range free {
		free[i] = c.Nodes[i].GPUs
	}
	for _, s := range r.Spans {
		if s.Start < at {
			ran[s.Job] += min(s.End, at).Sub(s.Start) // of all workers
		}
		if s.Start <= at && at < s.End {
			on[s.Job] = append(on[s.Job], s.GPU)
		}
	}
	var live []int
	rank := make([]int64, len(jobs))
	for i := range jobs {
		if jobs[i].Submit <= at && at < r.Outcomes[i].End {
			live = append(live, i)
			rank[i] = order.Rank(&jobs[i], policy.Standing{Remaining: jobs[i].Duration - ran[i]/time.Duration(jobs[i].Workers)})
		}
	}
	slices.SortStableFunc(live, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	for _, i := range live {
		for _, gpu := range on[i] {
			free[int(gpu)/c.Nodes[0].GPUs]--
		}
		for node, gpus := range free {
			if on[i] == nil && jobs[i].Workers <= gpus {
				t.Errorf("at %g s job %d of %d workers waits; those before it leave %d on node %d", at.Seconds(), i, jobs[i].Workers, gpus, node)
			}
		}
	}
}
