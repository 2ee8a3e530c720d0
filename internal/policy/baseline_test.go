package policy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/workload"
)

// timed notes when each job ran at which rate.
type timed struct {
	policy.Rater
	now   unit.Time
	rates [][]rateAt
}

type rateAt struct {
	at   unit.Time
	rate float64
}

func newTimed(p policy.Placer, jobs int) *timed {
	return &timed{Rater: p.(policy.Rater), rates: make([][]rateAt, jobs)}
}

func (x *timed) note(job int, rate float64) { x.rates[job] = append(x.rates[job], rateAt{x.now, rate}) }

func (x *timed) Place(job int) ([]policy.Slot, bool) {
	slots, ok := x.Rater.Place(job)
	if ok {
		x.note(job, 1)
	}
	return slots, ok
}

func (x *timed) Rates(yield func(job int, rate float64)) {
	x.Rater.Rates(func(job int, rate float64) {
		x.note(job, rate)
		yield(job, rate)
	})
}

// Adjust passes the clock on to a placer that takes it.
func (x *timed) Adjust(now unit.Time, moved func(int, []policy.Slot, time.Duration)) unit.Time {
	x.now = now
	inner, ok := x.Rater.(policy.Adjuster)
	if !ok {
		return unit.Never
	}
	return inner.Adjust(now, func(job int, slots []policy.Slot, pause time.Duration) {
		x.note(job, 1)
		moved(job, slots, pause)
	})
}

// below is the share of job time that jobs were below their floors.
func (x *timed) below(jobs []cluster.Job, r *sim.Result) float64 {
	var below, all time.Duration
	for _, o := range r.Outcomes {
		notes := append(slices.Clone(x.rates[o.Job]), rateAt{o.End, 1})
		for i := 1; i < len(notes); i++ {
			ran := notes[i].at.Sub(notes[i-1].at)
			all += ran
			if notes[i-1].rate < jobs[o.Job].Floor-tolerance {
				below += ran
			}
		}
	}
	return below.Seconds() / all.Seconds()
}

// compared is what one way to share came to on one mix.
type compared struct {
	*sim.Result
	below float64
}

const (
	window = time.Minute
	pause  = 30 * time.Second
)

// compare replays jobs by every rule, at rates that placement knows.
func compare(t *testing.T, jobs []cluster.Job, pool cluster.Cluster, order policy.Order, table *interference.Table) map[string]compared {
	t.Helper()
	floors := placement.Options{MaxResidents: 4}
	problem := func() *placement.Problem { return placement.NewProblem(jobs, table, nil, floors) }
	placers := map[string]policy.Placer{
		"greedy": policy.NewSharing(problem(), pool), "heuristic": policy.NewDraining(problem(), pool, pause),
	}
	for _, name := range policy.BaselineNames() {
		p, err := policy.NewBaseline(name, pool, jobs, policy.BaselineOptions{Options: floors, Table: table, Window: window, Pause: pause})
		if err != nil {
			t.Fatal(err)
		}
		placers[name] = p
	}
	run := func(p policy.Placer) *sim.Result {
		r, err := sim.Run(context.Background(), sim.Config{Cluster: pool, Jobs: jobs, Order: order, Placer: p})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	results := map[string]compared{"dedicated": {run(policy.NewConsolidated(pool, jobs)), 0}}
	for name, p := range placers {
		x := newTimed(p, len(jobs))
		r := run(x)
		results[name] = compared{r, x.below(jobs, r)}
	}
	return results
}

// TestBaselinesSideBySide: on a light and on the whole mix all jobs end by every rule, the floor keepers break no floor,
// and those that do not look at floors break some.
func TestBaselinesSideBySide(t *testing.T) {
	for _, mix := range []struct {
		name    string
		configs []interference.Config
		nodes   int
		order   policy.Order
	}{
		{"light", workload.LightMix(), 40, policy.FIFO()}, {"whole", workload.WholeMix(), 40, policy.FIFO()},
		{"light, crowded", workload.LightMix(), 8, policy.SJF()}, {"whole, crowded", workload.WholeMix(), 8, policy.SJF()},
	} {
		t.Run(mix.name, func(t *testing.T) {
			jobs := workload.Generate(workload.Options{Jobs: 3000, Span: 36 * time.Hour, Mix: mix.configs, Floor: 0.85, Seed: 42})
			results := compare(t, jobs, cluster.Uniform(mix.nodes, 8), mix.order, interference.Catalogue("p100"))
			for _, name := range append([]string{"dedicated", "greedy", "heuristic"}, policy.BaselineNames()...) {
				r := results[name]
				t.Logf("%-9s %6.0f GPU-hours, JCT %6.0f s (median %5.0f, p95 %6.0f), queue %6.0f s, %5.2f %% of job time below floor, %4d jobs, %4d moves",
					name, r.GPUHours, r.AvgJCT, r.MedianJCT, r.P95JCT, r.AvgQueue, 100*r.below, r.BrokenFloors, r.Migrations)
				if r.Jobs != len(jobs) || len(r.Refused) > 0 {
					t.Errorf("%s: %d of %d jobs ended", name, r.Jobs, len(jobs))
				}
			}
		})
	}
}
