package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/profile"
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

// TestBaselinesSideBySide compares the rules on a light and on the whole mix, with GPUs to spare and without. All jobs
// end by every rule; those that look at floors break none, those that do not break some.
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
			r := compare(t, jobs, cluster.Uniform(mix.nodes, 8), mix.order, interference.Catalogue("p100"))
			for _, name := range append([]string{"dedicated", "greedy", "heuristic"}, policy.BaselineNames()...) {
				t.Logf("%-9s %6.0f GPU-hours, JCT %6.0f s (median %5.0f, p95 %6.0f), queue %6.0f s, %5.2f %% of job time below floor, %4d jobs, %4d moves",
					name, r[name].GPUHours, r[name].AvgJCT, r[name].MedianJCT, r[name].P95JCT, r[name].AvgQueue, 100*r[name].below,
					r[name].BrokenFloors, r[name].Migrations)
				if r[name].Jobs != len(jobs) || len(r[name].Refused) > 0 {
					t.Errorf("%s: %d of %d jobs ended", name, r[name].Jobs, len(jobs))
				}
			}
			checkDirections(t, r)
		})
	}
}

func checkDirections(t *testing.T, r map[string]compared) {
	t.Helper()
	for _, name := range []string{"dedicated", "greedy", "heuristic", "peak"} {
		if r[name].BrokenFloors != 0 || r[name].below != 0 {
			t.Errorf("%s breaks %d floors", name, r[name].BrokenFloors)
		}
	}
	// always breaks many: the floors hardly matter to it. The utilisation rules look at load, and break fewer.
	if r["always"].below < 0.2 {
		t.Errorf("always: only %.2f %% of job time below floor", 100*r["always"].below)
	}
	for _, name := range []string{"utilcap", "classes"} {
		if r[name].below < 0.01 || r[name].below > r["always"].below/2 {
			t.Errorf("%s: %.2f %% of job time below floor, always %.2f %%", name, 100*r[name].below, 100*r["always"].below)
		}
	}
	if diff := cmp.Diff(r["greedy"].Outcomes, r["peak"].Outcomes); diff != "" {
		t.Errorf("memory is unknown, yet peak differs from greedy\n%s", diff)
	}
	less := func(what string, a, b float64) {
		if a >= b {
			t.Errorf("%s: %.0f is not less than %.0f", what, a, b)
		}
	}
	less("GPU-hours of always and greedy", r["always"].GPUHours, r["greedy"].GPUHours)
	for name, x := range r {
		if name != "dedicated" && name != "bsbf" {
			less("GPU-hours of "+name+" and dedicated", x.GPUHours, r["dedicated"].GPUHours)
		}
	}
	less("GPU-hours of heuristic and greedy", r["heuristic"].GPUHours, r["greedy"].GPUHours)
	if r["dedicated"].AvgQueue > 0 {
		less("JCT of bsbf and dedicated", r["bsbf"].AvgJCT, r["dedicated"].AvgJCT)
	} else if r["bsbf"].AvgJCT != r["dedicated"].AvgJCT {
		t.Errorf("nobody waits, yet bsbf shares: JCT %.0f, dedicated %.0f", r["bsbf"].AvgJCT, r["dedicated"].AvgJCT)
	}
}

func TestNewBaselineRefuses(t *testing.T) {
	good := policy.BaselineOptions{Options: placement.Options{MaxResidents: 2}, Window: time.Second}
	for _, c := range []struct {
		name, want string
		change     func(*policy.BaselineOptions)
	}{
		{"floor", `unknown sharing rule "floor", want one of peak, always, utilcap, classes, bsbf, unpack`, nil},
		{"", "unknown sharing rule", nil},
		{"always", "0 residents", func(o *policy.BaselineOptions) { o.MaxResidents = 0 }},
		{"bsbf", "9 residents, want 1 to 8", func(o *policy.BaselineOptions) { o.MaxResidents = 9 }},
		{"peak", "pause of -1ns", func(o *policy.BaselineOptions) { o.Pause = -1 }},
		{"unpack", "window of 0s", func(o *policy.BaselineOptions) { o.Window = 0 }},
	} {
		o := good
		if c.change != nil {
			c.change(&o)
		}
		p, err := policy.NewBaseline(c.name, cluster.Uniform(1, 1), nil, o)
		if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v, want %q", c.name, p, err, c.want)
		}
	}
	for _, name := range policy.BaselineNames() {
		if p, err := policy.NewBaseline(name, cluster.Uniform(1, 1), nil, good); err != nil || p == nil {
			t.Errorf("%s without jobs: %v", name, err)
		}
	}
}

// ruled is a world under a baseline, whose truth differs from what placement believes.
type ruled struct {
	*world
	name string
	util []float64 // of each model
	real *world    // with the true rates, and no floors
	o    policy.BaselineOptions
}

func drawRuled(t *rapid.T) *ruled {
	w := &ruled{world: drawWorld(t), name: rapid.SampledFrom(policy.BaselineNames()).Draw(t, "rule")}
	truth := interference.NewTable()
	rate := rapid.Float64Range(0.3, 1)
	for i := range 5 {
		w.util = append(w.util, rapid.SampledFrom([]float64{0.1, 0.25, 0.3, 0.5, 0.6, 1}).Draw(t, "utilisation"))
		for l := range i + 1 {
			truth.Add(model(i), model(l), rate.Draw(t, "true a"), rate.Draw(t, "true b"))
		}
	}
	truly := *w.world
	truly.table, truly.jobs = truth, slices.Clone(w.jobs)
	for j := range truly.jobs {
		truly.jobs[j].Floor = 1e-12
	}
	if w.name == "peak" {
		truly.options.Epsilon = 0
	}
	w.real = &truly
	w.o = policy.BaselineOptions{Options: w.options, Profiles: w.profiles, Table: w.table, Truth: truth,
		Utilisation: func(c interference.Config) float64 { return w.util[modelNumber(c.Model)] },
		Window:      time.Duration(rapid.IntRange(1, 10).Draw(t, "window")) * time.Second,
		Pause:       time.Duration(rapid.IntRange(0, 2).Draw(t, "pause")) * time.Second}
	return w
}

func modelNumber(name string) int { return int(name[1] - '0') }

// admits is the rule by definition, for the models of the residents of one GPU.
func (w *ruled) admits(residents []int) error {
	if len(residents) < 2 {
		return nil
	}
	sum, score := 0.0, 0
	for i, rate := range w.rates(residents) {
		if rate <= 0 {
			return errors.New("a pair that placement does not know")
		}
		j := &w.jobs[residents[i]]
		if w.name == "peak" && rate < j.Floor-tolerance {
			return fmt.Errorf("job %d below its floor", residents[i])
		}
		u := w.util[modelNumber(j.Model)]
		sum += u
		if u > 0.25 {
			score++
		}
		if u > 0.5 {
			score++
		}
	}
	switch {
	case w.name == "utilcap" && sum > 1+tolerance:
		return fmt.Errorf("utilisation of %g", sum)
	case w.name == "classes" && score > 2:
		return fmt.Errorf("score of %d", score)
	case slices.Contains([]string{"classes", "bsbf", "unpack"}, w.name) && len(residents) > 2:
		return fmt.Errorf("%d residents", len(residents))
	}
	return nil
}

// together yields every set of jobs that shared a GPU for some time.
func together(spans []sim.Span, yield func(gpu int32, from, to unit.Time, residents []int)) {
	times := map[int32][]unit.Time{}
	for _, s := range spans {
		times[s.GPU] = append(times[s.GPU], s.Start, s.End)
	}
	for gpu, all := range times {
		slices.Sort(all)
		all = slices.Compact(all)
		for i := 1; i < len(all); i++ {
			var residents []int
			for _, s := range spans {
				if s.GPU == gpu && s.Start <= all[i-1] && all[i] <= s.End {
					residents = append(residents, int(s.Job))
				}
			}
			yield(gpu, all[i-1], all[i], residents)
		}
	}
}

// TestBaselines replays random jobs by every rule and under every order, at true rates that differ from what placement
// believes, and compares what happened with the definitions.
func TestBaselines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawRuled(t)
		run := func() *sim.Result {
			p, err := policy.NewBaseline(w.name, w.cluster, w.jobs, w.o)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(context.Background(), sim.Config{Cluster: w.cluster, Jobs: w.jobs, Order: w.order, Placer: p,
				RestartCost: w.restart, Spans: true})
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			return r
		}
		r := run()
		if diff := cmp.Diff(r, run()); diff != "" {
			t.Fatalf("%s: same input, another result (-first +second)\n%s", w.name, diff)
		}
		w.checkRefusals(t, r)
		work := w.real.replaySpans(t, r.Spans)
		together(r.Spans, func(gpu int32, _, _ unit.Time, residents []int) {
			if err := w.admits(residents); err != nil {
				t.Fatalf("%s: GPU %d with jobs %v: %v", w.name, gpu, residents, err)
			}
		})
		for _, o := range r.Outcomes {
			if !o.Ended {
				continue
			}
			const rounding = time.Microsecond
			pauses := max(w.o.Pause, w.restart) * time.Duration(o.Preemptions+o.Migrations)
			if d := w.jobs[o.Job].Duration; work[o.Job] < d-rounding || work[o.Job] > d+pauses+rounding {
				t.Errorf("%s: job %d of %v did %v of work, with pauses of up to %v", w.name, o.Job, d, work[o.Job], pauses)
			}
		}
	})
}

// TestPeakAddsPeaks: two jobs whose peaks seldom meet share by always, which takes the risk that it is told, and not by peak.
func TestPeakAddsPeaks(t *testing.T) {
	table := interference.NewTable()
	table.Add(model(0), model(1), 1, 1)
	spiky := profile.Profile{Persistent: 4, Ephemeral: []profile.Level{{Bytes: 1, Fraction: 0.9}, {Bytes: 6, Fraction: 0.1}}}
	o := policy.BaselineOptions{Table: table, Profiles: []profile.Profile{spiky, spiky},
		Options: placement.Options{MaxResidents: 2, GPUMemory: 16, Epsilon: 0.05}}
	for rule, want := range map[string]int{"always": 1, "peak": 2} {
		if r := replayRule(t, rule, 2, pairOfJobs(time.Minute, time.Minute, 0), o); r.PeakGPUs != want {
			t.Errorf("%s: %d GPUs, want %d", rule, r.PeakGPUs, want)
		}
	}
}

// TestUnknownTruth: two jobs that placement lets share, and that the truth does not know together, hardly make progress.
func TestUnknownTruth(t *testing.T) {
	table, truth := interference.NewTable(), interference.NewTable()
	table.Add(model(0), model(1), 0.9, 0.9)
	truth.Add(model(0), model(0), 0.9, 0.9)
	jobs := pairOfJobs(10*time.Second, 10*time.Second, 0)
	r := replayRule(t, "always", 1, jobs, policy.BaselineOptions{Table: table, Truth: truth})
	for _, o := range r.Outcomes {
		if o.End != unit.Seconds(1000) {
			t.Errorf("job %d ends at %v, want 1000 s: a hundredth of its speed", o.Job, o.End)
		}
	}
}

// pairOfJobs is a job of model 0 and, submitted later, one of model 1.
func pairOfJobs(first, second, later time.Duration) []cluster.Job {
	return []cluster.Job{
		{ID: "a", Model: model(0).Model, Workers: 1, Share: unit.WholeGPU, Floor: 0.1, Duration: first},
		{ID: "b", Model: model(1).Model, Workers: 1, Share: unit.WholeGPU, Floor: 0.1, Duration: second, Submit: unit.Time(later)},
	}
}

// replayRule replays jobs by a rule on one node, in order of submission; up to 4 residents where nothing is said.
func replayRule(t fataler, name string, gpus int, jobs []cluster.Job, o policy.BaselineOptions) *sim.Result {
	if o.MaxResidents == 0 {
		o.MaxResidents = 4
	}
	c := cluster.Uniform(1, gpus)
	p, err := policy.NewBaseline(name, c, jobs, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO(), Placer: p, Spans: true})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if r.Jobs != len(jobs) {
		t.Fatalf("%d of %d jobs ended", r.Jobs, len(jobs))
	}
	return r
}
