package sim_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// processorSharing puts every job on one GPU, where n residents run at 1/n each.
type processorSharing struct {
	running []int // ascending
	told    map[int]float64
}

func (p *processorSharing) Place(job int) ([]policy.Slot, bool) {
	at, _ := slices.BinarySearch(p.running, job)
	p.running = slices.Insert(p.running, at, job)
	p.told[job] = 1
	return []policy.Slot{{}}, true
}

func (p *processorSharing) Release(job int, _ []policy.Slot) {
	p.running = slices.DeleteFunc(p.running, func(j int) bool { return j == job })
}

func (p *processorSharing) Rates(yield func(job int, rate float64)) {
	for _, job := range p.running {
		if rate := 1 / float64(len(p.running)); p.told[job] != rate {
			p.told[job] = rate
			yield(job, rate)
		}
	}
}

func share(t interface {
	Helper()
	Fatal(...any)
}, jobs []cluster.Job) *sim.Result {
	t.Helper()
	return mustRun(t, sim.Config{Cluster: cluster.Uniform(1, 1), Jobs: jobs, Order: policy.FIFO(),
		Placer: &processorSharing{told: map[int]float64{}}})
}

// TestProcessorSharing: of jobs that start together, the i-th shortest of n ends after the sum of the shorter ones and
// n-i+1 times itself.
func TestProcessorSharing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([]cluster.Job, rapid.IntRange(1, 12).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = cluster.Job{Workers: 1, Share: unit.WholeGPU, Floor: 1 / float64(len(jobs)),
				Duration: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "ns"))}
		}
		r := share(t, jobs)
		order := make([]int, len(jobs))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return int(jobs[a].Duration - jobs[b].Duration) })
		shorter := time.Duration(0)
		for i, job := range order {
			want := shorter + time.Duration(len(jobs)-i)*jobs[job].Duration
			shorter += jobs[job].Duration
			o := r.Outcomes[job]
			// Each of the at most n changes of rate rounds to a nanosecond of work, which takes n at rate 1/n.
			if slack := time.Duration(len(jobs) * len(jobs)); o.Run < want-slack || o.Run > want+slack {
				t.Errorf("job of %v ends after %v, want %v", jobs[job].Duration, o.Run, want)
			}
			if d := jobs[job].Duration; d > 0 && math.Abs(o.Slowdown-max(1, float64(o.Run)/float64(d))) > 1e-12 {
				t.Errorf("job of %v: slowdown %g after %v", d, o.Slowdown, o.Run)
			}
			if o.Broken {
				t.Errorf("floor %g counts as broken at that very rate", jobs[job].Floor)
			}
			if o.Standalone != (len(jobs) == 1) {
				t.Errorf("%d jobs share a GPU, standalone %v", len(jobs), o.Standalone)
			}
		}
	})
}

// TestRates is worked out by hand: a runs alone for 10 s, with b for 10 s at half speed, alone for 5 s more.
func TestRates(t *testing.T) {
	jobs := []cluster.Job{
		{Workers: 1, Share: unit.WholeGPU, Duration: 20 * time.Second, Floor: 0.6},
		{Workers: 1, Share: unit.WholeGPU, Duration: 5 * time.Second, Floor: 0.5, Submit: unit.Seconds(10)},
		{Workers: 1, Share: unit.WholeGPU, Duration: 0, Floor: 1, Submit: unit.Seconds(12)},
	}
	r := share(t, jobs)
	if got, want := describe(r), "0 25 | 10 20 | 12 12"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a, b, c := r.Outcomes[0], r.Outcomes[1], r.Outcomes[2]; !a.Broken || b.Broken || c.Broken || r.BrokenFloors != 1 {
		t.Errorf("broken %v %v %v, %d in all: want only the first (0.5 < 0.6, and no floor breaks in no time)",
			a.Broken, b.Broken, c.Broken, r.BrokenFloors)
	}
	if r.Outcomes[0].Slowdown != 1.25 || r.Outcomes[1].Slowdown != 2 || r.Utilisation != 1 || r.PeakGPUs != 1 {
		t.Errorf("slowdowns %g %g, utilisation %g, peak %d", r.Outcomes[0].Slowdown, r.Outcomes[1].Slowdown, r.Utilisation, r.PeakGPUs)
	}
}

// TestSharedWorkIsDone: whatever the arrivals, the GPU is never idle while there is work, so the last job ends when
// all work is done.
func TestSharedWorkIsDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, 12, 1, false)
		r := share(t, jobs)
		busy := unit.Time(0)
		for i := range jobs {
			busy = max(busy, jobs[i].Submit).Add(jobs[i].Duration)
		}
		for i, o := range r.Outcomes {
			if !o.Ended || o.Run < jobs[i].Duration || o.Start != jobs[i].Submit {
				t.Errorf("job %d: %+v", i, o)
			}
		}
		if n := len(jobs); n > 0 {
			last := slices.MaxFunc(r.Outcomes, func(a, b sim.Outcome) int { return int(a.End - b.End) }).End
			if d := last.Sub(busy); d < -200 || d > 200 {
				t.Errorf("the last job ends at %v, the work at %v", last, busy)
			}
		}
	})
}

// wrongPlacer breaks its contract in one way.
type wrongPlacer struct {
	policy.Placer
	rate  float64
	slots []policy.Slot
}

func (p wrongPlacer) Place(int) ([]policy.Slot, bool)         { return p.slots, true }
func (p wrongPlacer) Release(int, []policy.Slot)              {}
func (p wrongPlacer) Rates(yield func(job int, rate float64)) { yield(0, p.rate) }

// TestBrokenContracts: a placer that lies, or jobs that cannot be, are errors and not results.
func TestBrokenContracts(t *testing.T) {
	job := cluster.Job{ID: "a", Workers: 1, Share: unit.WholeGPU, Duration: time.Second}
	late, negative, fat := job, job, job
	late.Submit, negative.Duration, fat.Share = 5, -1, 1001
	never, forever := job, job
	never.Submit, forever.Duration = unit.Never, math.MaxInt64
	early := job
	early.Submit = -1
	one := []policy.Slot{{}}
	for _, test := range []struct {
		name   string
		jobs   []cluster.Job
		placer policy.Placer
		want   string
	}{
		{"order", []cluster.Job{late, job}, nil, "submitted before"},
		{"negative", []cluster.Job{negative}, nil, "negative duration"},
		{"share", []cluster.Job{fat}, nil, "1001/1000"},
		{"never", []cluster.Job{never}, nil, "outside virtual time"},
		{"before the origin", []cluster.Job{early}, nil, "outside virtual time"},
		{"forever", []cluster.Job{job, forever}, nil, "beyond virtual time"},
		{"rate 0", []cluster.Job{job}, wrongPlacer{rate: 0, slots: one}, "rate 0"},
		{"rate NaN", []cluster.Job{job}, wrongPlacer{rate: math.NaN(), slots: one}, "rate NaN"},
		{"rate 1.5", []cluster.Job{job}, wrongPlacer{rate: 1.5, slots: one}, "rate 1.5"},
		{"slots", []cluster.Job{job}, wrongPlacer{rate: 1, slots: append(one, one...)}, "2 GPUs"},
		{"overcommit", []cluster.Job{job, job}, plainPlacer{wrongPlacer{slots: one}}, "2000/1000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cluster.Uniform(1, 2)
			if test.placer == nil {
				test.placer = consolidated(c, test.jobs)
			}
			_, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: test.jobs, Order: policy.FIFO(), Placer: test.placer})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
