package policy_test

import (
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// gpusFor is how many GPUs one job of each model, all at once, come to by a rule. Every pair shares at 0.9.
func gpusFor(t *testing.T, rule string, known, stated []float64) int {
	t.Helper()
	table := interference.NewTable()
	var jobs []cluster.Job
	for i := range known {
		for l := range i + 1 {
			table.Add(model(i), model(l), 0.9, 0.9)
		}
		jobs = append(jobs, cluster.Job{ID: model(i).Model, Model: model(i).Model, Workers: 1, Share: unit.WholeGPU, Floor: 1,
			Duration: time.Minute, GPUUtil: stated[i]})
	}
	return replayRule(t, rule, len(jobs), jobs, policy.BaselineOptions{Table: table,
		Utilisation: func(c interference.Config) float64 { return known[modelNumber(c.Model)] }}).PeakGPUs
}

func TestUtilCap(t *testing.T) {
	for _, c := range []struct {
		what          string
		known, stated []float64
		want          int
	}{
		{"just full", []float64{0.5, 0.5}, []float64{0, 0}, 1},
		{"a bit more", []float64{0.5, 0.51}, []float64{0, 0}, 2},
		{"rounding does not matter", []float64{0.2, 0.4, 0.3, 0.1}, []float64{0, 0, 0, 0}, 1},
		{"four small ones", []float64{0.25, 0.25, 0.25, 0.25}, []float64{0, 0, 0, 0}, 1},
		{"the fifth is one too many residents", []float64{0.1, 0.1, 0.1, 0.1, 0.1}, []float64{0, 0, 0, 0, 0}, 2},
		{"what a job states goes first", []float64{0.5, 0.5}, []float64{0.6, 0}, 2},
		{"also when it is less", []float64{0.5, 0.8}, []float64{0, 0.5}, 1},
	} {
		if got := gpusFor(t, "utilcap", c.known, c.stated); got != c.want {
			t.Errorf("%s: %d GPUs, want %d", c.what, got, c.want)
		}
	}
}

// TestUtilisationOfPairs: where nobody states it, utilisation follows from what a job does to others.
func TestUtilisationOfPairs(t *testing.T) {
	// A job of utilisation u beside one of utilisation v: each runs at min(1, 1/(u+v)).
	rate := func(u, v float64) float64 { return min(1, 1/(u+v)) }
	for _, c := range []struct {
		what string
		u, v float64
		want int
	}{
		{"two that fit", 0.3, 0.6, 1},
		{"two that do not", 0.5, 0.6, 2},
		{"one that fills the GPU", 1, 0.1, 2},
		{"twins that just fit", 0.5, 0.5, 1},
	} {
		table := interference.NewTable()
		util := []float64{c.u, c.v, 1} // the third shows how much the others take
		for i, u := range util {
			for l, v := range util[:i+1] {
				table.Add(model(i), model(l), rate(u, v), rate(v, u))
			}
		}
		jobs := pairOfJobs(time.Minute, time.Minute, 0)
		if got := replayRule(t, "utilcap", 2, jobs, policy.BaselineOptions{Table: table}).PeakGPUs; got != c.want {
			t.Errorf("%s: %d GPUs, want %d", c.what, got, c.want)
		}
	}
	t.Run("at most what its twin leaves", func(t *testing.T) {
		table := interference.NewTable()
		table.Add(model(0), model(0), 0.9, 0.9) // at most 0.56
		table.Add(model(1), model(1), 0.8, 0.8)
		table.Add(model(0), model(1), 0.8, 0.5) // 0.25 of a GPU for model 1, and a whole one for model 0
		jobs := pairOfJobs(time.Minute, time.Minute, 0)
		if r := replayRule(t, "utilcap", 2, jobs, policy.BaselineOptions{Table: table}); r.PeakGPUs != 1 {
			t.Errorf("%d GPUs for utilisations of 0.56 and 0.25", r.PeakGPUs)
		}
	})
	t.Run("unmeasured twin", func(t *testing.T) {
		table := interference.NewTable()
		table.Add(model(0), model(1), 1, 1)
		table.Add(model(1), model(1), 1, 1)
		jobs := pairOfJobs(time.Minute, time.Minute, 0)
		r := replayRule(t, "utilcap", 2, jobs, policy.BaselineOptions{Table: table, Options: placement.Options{MaxResidents: 2}})
		if r.PeakGPUs != 1 {
			t.Errorf("%d GPUs: one that fills its GPU and one that takes nothing share", r.PeakGPUs)
		}
		table.Add(model(1), model(2), 0.9, 0.9)
		if r := replayRule(t, "utilcap", 2, jobs, policy.BaselineOptions{Table: table}); r.PeakGPUs != 2 {
			t.Errorf("%d GPUs: one fills its GPU, and the other takes a tenth of one", r.PeakGPUs)
		}
	})
}
