package policy_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// TestUnpack is worked out by hand: a and b, of 100 s each, share from the start, are looked at after 60 s, and a move
// costs 30 s.
func TestUnpack(t *testing.T) {
	for _, c := range []struct {
		what         string
		gpus         int
		rateA, rateB float64
		endA, endB   float64
		moves        int
	}{
		{"halved: b leaves at 60 s", 2, 0.5, 0.5, 130, 160, 1},
		{"nearly halved: 0.7 + 0.3", 2, 0.75, 0.25, 60 + 100 - 45, 60 + 30 + 100 - 15, 1},
		{"gains a fifth: they stay", 2, 0.6, 0.6, 100 / 0.6, 100 / 0.6, 0},
		{"nowhere to go", 1, 0.5, 0.5, 200, 200, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := interference.NewTable()
			table.Add(model(0), model(1), c.rateA, c.rateB)
			r := replayRule(t, "unpack", c.gpus, pairOfJobs(100*time.Second, 100*time.Second, 0),
				policy.BaselineOptions{Table: table, Window: time.Minute, Pause: 30 * time.Second})
			a, b := r.Outcomes[0], r.Outcomes[1]
			near := func(got unit.Time, want float64) bool {
				d := got.Sub(unit.Seconds(want))
				return d > -time.Microsecond && d < time.Microsecond
			}
			if !near(a.End, c.endA) || !near(b.End, c.endB) || r.Migrations != c.moves {
				t.Errorf("ends at %v and %v after %d moves, want %g and %g after %d", a.End, b.End, r.Migrations, c.endA, c.endB, c.moves)
			}
		})
	}
}

// TestUnpackRemembers: what was unpacked once is not packed again, and the next best resident is joined.
func TestUnpackRemembers(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(1), 0.5, 0.5)
	table.Add(model(1), model(1), 0.9, 0.9)
	jobs := pairOfJobs(1000*time.Second, 1000*time.Second, 0)
	later := jobs[1]
	later.ID, later.Submit, later.Duration = "c", unit.Seconds(70), 90*time.Second
	r := replayRule(t, "unpack", 3, append(jobs, later), policy.BaselineOptions{Table: table, Window: time.Minute})
	if r.Migrations != 1 || r.PeakGPUs != 2 || r.Outcomes[2].End != unit.Seconds(170) {
		t.Errorf("%d moves, %d GPUs, c ends at %v: want 1, 2 and 170 s beside b", r.Migrations, r.PeakGPUs, r.Outcomes[2].End)
	}
}

// TestUnpackJoinsTheOldest: of two residents the one that started first is joined, wherever it stands. x has the first
// GPU for 10 s, a the second; y follows on the first, and c joins a.
func TestUnpackJoinsTheOldest(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(2), 0.9, 0.9)
	table.Add(model(3), model(2), 0.6, 0.6)
	job := func(id string, m int, submit, d float64) cluster.Job {
		return cluster.Job{ID: id, Model: model(m).Model, Workers: 1, Share: unit.WholeGPU, Floor: 0.1,
			Submit: unit.Seconds(submit), Duration: seconds(d)}
	}
	jobs := []cluster.Job{job("x", 1, 0, 10), job("a", 0, 1, 1000), job("y", 3, 12, 1000), job("c", 2, 20, 90)}
	r := replayRule(t, "unpack", 3, jobs, policy.BaselineOptions{Table: table, Window: time.Minute})
	if r.PeakGPUs != 2 || r.Outcomes[3].End != unit.Seconds(120) {
		t.Errorf("%d GPUs, c ends at %v: want 2 and 120 s beside a", r.PeakGPUs, r.Outcomes[3].End)
	}
}

// TestUnpackPacksAgain: who is unpacked joins another resident before it takes an idle GPU.
func TestUnpackPacksAgain(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(1), 0.5, 0.5)
	table.Add(model(2), model(1), 0.9, 0.9)
	jobs := pairOfJobs(1000*time.Second, 1000*time.Second, 0)
	d := jobs[0]
	d.ID, d.Model = "d", model(2).Model
	r := replayRule(t, "unpack", 3, []cluster.Job{jobs[0], d, jobs[1]}, policy.BaselineOptions{Table: table, Window: time.Minute})
	if r.Migrations != 1 || r.PeakGPUs != 2 {
		t.Errorf("%d moves, %d GPUs: want 1 and 2", r.Migrations, r.PeakGPUs)
	}
}

// TestUnpackPartsEveryBadPair: where there is always an idle GPU, no pair that does too little shares for longer than a
// window, and no such pair of models comes together again once one was unpacked.
func TestUnpackPartsEveryBadPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawRuled(t)
		for j := range w.jobs {
			w.jobs[j].Workers, w.jobs[j].Class = 1, cluster.Burstable
		}
		w.o.Profiles, w.o.Options = nil, placement.Options{MaxResidents: 4}
		r := replayRule(t, "unpack", len(w.jobs)+1, w.jobs, w.o)
		known := map[[2]string]unit.Time{} // when it was first unpacked
		note := func(bad func(pair [2]string, from, to unit.Time, goOn bool)) {
			together(r.Spans, func(_ int32, from, to unit.Time, residents []int) {
				if len(residents) < 2 {
					return
				}
				rates := w.real.rates(residents)
				a, b := w.jobs[residents[0]].Model, w.jobs[residents[1]].Model
				if rates[0]+rates[1] < 1.05 {
					bad([2]string{min(a, b), max(a, b)}, from, to,
						r.Outcomes[residents[0]].End > to && r.Outcomes[residents[1]].End > to)
				}
			})
		}
		note(func(pair [2]string, from, to unit.Time, goOn bool) {
			if to.Sub(from) > w.o.Window {
				t.Errorf("models %v share for %v, longer than the window %v", pair, to.Sub(from), w.o.Window)
			}
			if first, ok := known[pair]; goOn && (!ok || to < first) {
				known[pair] = to
			}
		})
		note(func(pair [2]string, from, _ unit.Time, _ bool) {
			if first, ok := known[pair]; ok && from > first {
				t.Errorf("models %v share again from %v on, unpacked at %v", pair, from, first)
			}
		})
	})
}
