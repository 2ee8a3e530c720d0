package policy_test

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// TestShareOrWait is worked out by hand: a has one GPU, b comes after 10 s.
func TestShareOrWait(t *testing.T) {
	for _, c := range []struct {
		what         string
		rate         float64
		a, b         float64 // run times
		start        float64 // of b
		endA, endB   float64
		gpus, shared int
	}{
		// 117.5 s on average from 10 s on, against 140.
		{"gentle: share", 0.8, 100, 100, 10, 122.5, 132.5, 1, 0},
		// 185 s against 140.
		{"halved: wait", 0.5, 100, 100, 100, 100, 200, 1, 0},
		// (16.7 + 96.7)/2 s against 95: a short job costs the long one little.
		{"short beside long: share", 0.6, 100, 10, 10, 10 + 90 + 10/0.6 - 10, 10 + 10/0.6, 1, 0},
		// 155 s against 140.
		{"long beside long: wait", 0.6, 100, 100, 100, 100, 200, 1, 0},
		{"an idle GPU comes first", 0.99, 100, 100, 10, 100, 110, 2, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := interference.NewTable()
			table.Add(model(0), model(1), c.rate, c.rate)
			r := replayRule(t, "bsbf", c.gpus, pairOfJobs(seconds(c.a), seconds(c.b), 10*time.Second), policy.BaselineOptions{Table: table})
			a, b := r.Outcomes[0], r.Outcomes[1]
			for _, x := range []struct {
				what string
				got  unit.Time
				want float64
			}{{"start of b", b.Start, c.start}, {"end of a", a.End, c.endA}, {"end of b", b.End, c.endB}} {
				if math.Abs(x.got.Sub(0).Seconds()-x.want) > 1e-6 {
					t.Errorf("%s at %v, want %g s", x.what, x.got.Sub(0), x.want)
				}
			}
		})
	}
}

// TestShareOrWaitChoosesTheSooner: with one GPU and two jobs, the mean end is the lesser of that of sharing and that of
// waiting, both played through.
func TestShareOrWaitChoosesTheSooner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Float64Range(0.05, 1)
		ra, rb := draw.Draw(t, "rate of a"), draw.Draw(t, "rate of b")
		a, b := rapid.IntRange(20, 500).Draw(t, "a"), rapid.IntRange(0, 500).Draw(t, "b")
		table := interference.NewTable()
		table.Add(model(0), model(1), ra, rb)
		jobs := pairOfJobs(time.Duration(a)*time.Second, time.Duration(b)*time.Second, 10*time.Second)
		r := replayRule(t, "bsbf", 1, jobs, policy.BaselineOptions{Table: table})
		left, short := float64(a-10), float64(b)
		wait := (left + left + short) / 2
		first := min(left/ra, short/rb) // until then both run slowly
		share := (first + max(0, left-first*ra) + first + max(0, short-first*rb)) / 2
		got := (r.Outcomes[0].End.Sub(0)+r.Outcomes[1].End.Sub(0)).Seconds()/2 - 10
		if math.Abs(got-min(wait, share)) > 1e-3 {
			t.Fatalf("mean end after %g s, %g when sharing, %g when waiting", got, share, wait)
		}
	})
}

// TestShareOrWaitKnowsProgress: a is slowed by c more than was believed, so it has 79 s left when b comes at 41 s, and
// not 63; b shares from 72 s on.
func TestShareOrWaitKnowsProgress(t *testing.T) {
	table, truth := interference.NewTable(), interference.NewTable()
	for _, x := range []struct {
		t    *interference.Table
		rate float64
	}{{table, 0.9}, {truth, 0.5}} {
		x.t.Add(model(0), model(2), x.rate, x.rate)
		x.t.Add(model(0), model(1), 0.6, 0.6)
	}
	jobs := pairOfJobs(100*time.Second, 54*time.Second, 41*time.Second)
	c := jobs[0]
	c.ID, c.Model, c.Duration = "c", model(2).Model, 20*time.Second
	jobs = []cluster.Job{jobs[0], c, jobs[1]}
	r := replayRule(t, "bsbf", 1, jobs, policy.BaselineOptions{Table: table, Truth: truth})
	if got := r.Outcomes[2].Start; r.Outcomes[1].End != unit.Seconds(40) || got != unit.Seconds(41) {
		t.Errorf("c ends at %v, want 40 s; b starts at %v, want 41 s", r.Outcomes[1].End, got)
	}
}

// TestShareOrWaitGangs: a gang shares only if that pays on all its GPUs at the speed of the worst.
func TestShareOrWaitGangs(t *testing.T) {
	table := interference.NewTable()
	gang := 2
	table.Add(model(gang), model(0), 1/1.1, 1/1.5)
	table.Add(model(gang), model(1), 1/2.0, 1/1.5)
	for _, c := range []struct {
		what    string
		workers int
		start   float64
	}{
		{"a single job joins", 1, 0},
		{"a gang waits: 2 x slower, it holds up the short job too long", 2, 60},
	} {
		jobs := pairOfJobs(60*time.Second, 10000*time.Second, 0)
		jobs = append(jobs, cluster.Job{ID: "c", Model: model(gang).Model, Workers: c.workers, Share: unit.WholeGPU, Floor: 0.1,
			Duration: 50 * time.Second})
		r := replayRule(t, "bsbf", 2, jobs, policy.BaselineOptions{Table: table})
		if got := r.Outcomes[2].Start; got != unit.Seconds(c.start) {
			t.Errorf("%s: starts at %v, want %g s", c.what, got, c.start)
		}
	}
}

// TestShareOrWaitBesideASlowGang: a gang counts as slow as its worst GPU is. Alone it has 120 s left, more than 0.8 x 90 s,
// so d joins it; slowed to a fifth by c it would have to have more than 1.7 x 90 s, so d waits until c has ended.
func TestShareOrWaitBesideASlowGang(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(1), 0.2, 1)
	table.Add(model(0), model(2), 1/1.25, 1/1.5)
	jobs := pairOfJobs(121*time.Second, 10*time.Second, 0)
	jobs[0].Workers = 2
	d := jobs[1]
	d.ID, d.Model, d.Duration, d.Submit = "d", model(2).Model, 90*time.Second, unit.Seconds(1)
	for _, c := range []struct {
		what  string
		jobs  []cluster.Job
		start float64
	}{
		{"alone", []cluster.Job{jobs[0], d}, 1},
		{"beside c", []cluster.Job{jobs[0], jobs[1], d}, 10},
	} {
		r := replayRule(t, "bsbf", 2, c.jobs, policy.BaselineOptions{Table: table})
		if got := r.Outcomes[len(c.jobs)-1].Start; got != unit.Seconds(c.start) {
			t.Errorf("%s: d starts at %v, want %g s", c.what, got, c.start)
		}
	}
}

// TestShareOrWaitCountsNoWaiting: a is displaced by b from 5 s to 15 s and makes no progress then, so it has 94 s left when
// c comes at 16 s, and not 84: more than 0.8375 x 105 s, so c joins it.
func TestShareOrWaitCountsNoWaiting(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(1), 0.1, 0.1)
	table.Add(model(0), model(2), 1/4.0, 1/1.05)
	jobs := pairOfJobs(100*time.Second, 10*time.Second, 5*time.Second)
	c := jobs[1]
	c.ID, c.Model, c.Duration, c.Submit = "c", model(2).Model, 105*time.Second, unit.Seconds(16)
	jobs = append(jobs, c)
	pool := cluster.Uniform(1, 1)
	p, err := policy.NewBaseline("bsbf", pool, jobs, policy.BaselineOptions{Table: table,
		Options:  placement.Options{MaxResidents: 2, GPUMemory: 10}, // b fits beside nobody
		Profiles: []profile.Profile{profile.Flat(4), profile.Flat(8), profile.Flat(4)}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: pool, Jobs: jobs, Order: policy.SRTF(), Placer: p})
	if err != nil {
		t.Fatal(err)
	}
	if o := r.Outcomes; o[0].Preemptions != 1 || o[1].Start != unit.Seconds(5) || o[2].Start != unit.Seconds(16) {
		t.Errorf("a was preempted %d times, b starts at %v, c at %v: want 1, 5 s and 16 s", o[0].Preemptions, o[1].Start, o[2].Start)
	}
}
