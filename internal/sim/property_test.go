package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// plainPlacer hides what its Placer can do besides placing.
type plainPlacer struct{ policy.Placer }

var placers = map[string]func(cluster.Cluster, []cluster.Job) policy.Placer{
	"consolidated": consolidated,
	"plain": func(c cluster.Cluster, jobs []cluster.Job) policy.Placer {
		return plainPlacer{policy.NewConsolidated(c, jobs)}
	},
}

func drawCluster(t *rapid.T) cluster.Cluster {
	var c cluster.Cluster
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		c.Nodes = append(c.Nodes, cluster.Node{GPUs: rapid.SampledFrom([]int{1, 2, 4, 4, 4, 8}).Draw(t, "gpus")})
	}
	return c
}

// drawJobs makes jobs of few distinct times, so that much happens at once.
func drawJobs(t *rapid.T, most, workers int, shares bool) []cluster.Job {
	jobs := make([]cluster.Job, rapid.IntRange(0, most).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = cluster.Job{ID: fmt.Sprint(i), Workers: rapid.IntRange(1, workers).Draw(t, "workers"), Share: unit.WholeGPU,
			Submit:   unit.Seconds(float64(rapid.IntRange(0, 12).Draw(t, "submit"))),
			Duration: time.Duration(rapid.IntRange(0, 9).Draw(t, "duration")) * time.Second}
		if shares && rapid.Bool().Draw(t, "fraction") {
			jobs[i].Share = rapid.SampledFrom([]unit.MilliGPU{1, 250, 500, 600, 999}).Draw(t, "share")
		}
	}
	slices.SortStableFunc(jobs, func(a, b cluster.Job) int { return int(a.Submit - b.Submit) })
	return jobs
}

// drawOrder has the published orders and a Tiresias of limits small enough to matter.
func drawOrder(t *rapid.T) policy.Order {
	name := rapid.SampledFrom(policy.OrderNames()).Draw(t, "order")
	order, _ := policy.OrderByName(name)
	for i := range order.Limits {
		order.Limits[i] = time.Duration(4*(i+1)) * time.Second
	}
	return order
}

// TestConservation: every job ends once and has done its work, or is refused for a reason that holds; what the spans
// say adds up; no GPU is given out twice; and the same input gives the same result.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, order := drawCluster(t), drawOrder(t)
		jobs := drawJobs(t, 14, 10, true)
		kind := rapid.SampledFrom([]string{"consolidated", "plain"}).Draw(t, "placer")
		restart := time.Duration(rapid.IntRange(0, 2).Draw(t, "restart")) * time.Second
		run := func() *sim.Result {
			return mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: order, Placer: placers[kind](c, jobs), Spans: true,
				RestartCost: restart})
		}
		r := run()
		if diff := cmp.Diff(r, run()); diff != "" {
			t.Fatalf("same input, another result (-first +second)\n%s", diff)
		}
		checkOutcomes(t, c, jobs, r, restart)
		checkSpans(t, c, jobs, r)
	})
}

func checkOutcomes(t *rapid.T, c cluster.Cluster, jobs []cluster.Job, r *sim.Result, restart time.Duration) {
	refused := map[int]bool{}
	for _, x := range r.Refused {
		refused[x.Job] = true
		if jobs[x.Job].Workers <= c.GPUs() {
			t.Errorf("job %d of %d workers refused: %s", x.Job, jobs[x.Job].Workers, x.Reason)
		}
	}
	preemptions, migrations := 0, 0
	for i, o := range r.Outcomes {
		j := &jobs[i]
		preemptions, migrations = preemptions+o.Preemptions, migrations+o.Migrations
		if o.Ended == refused[i] || o.Job != i {
			t.Fatalf("job %d: ended %v, refused %v", i, o.Ended, refused[i])
		}
		if !o.Ended {
			continue
		}
		most := j.Duration + restart*time.Duration(o.Preemptions+o.Migrations)
		if o.Run < j.Duration || o.Run > most || restart == 0 && o.Slowdown != 1 {
			t.Errorf("job %d: ran %v at slowdown %g, needs %v to %v", i, o.Run, o.Slowdown, j.Duration, most)
		}
		if o.Start < j.Submit || o.End < o.Start || o.Queue() < 0 {
			t.Errorf("job %d: submitted %v, started %v, ended %v", i, j.Submit, o.Start, o.End)
		}
		if o.Preemptions == 0 && o.Queue() != o.Start.Sub(o.Submit) {
			t.Errorf("job %d: queued %v, started after %v", i, o.Queue(), o.Start.Sub(o.Submit))
		}
	}
	if r.Jobs+len(r.Refused) != len(jobs) || r.Events != 2*r.Jobs || r.Partial {
		t.Errorf("%d jobs, %d refused of %d; %d events; partial %v", r.Jobs, len(r.Refused), len(jobs), r.Events, r.Partial)
	}
	if r.Preemptions != preemptions || r.Migrations != migrations {
		t.Errorf("%d preemptions, %d migrations; outcomes say %d, %d", r.Preemptions, r.Migrations, preemptions, migrations)
	}
}

func checkSpans(t *rapid.T, c cluster.Cluster, jobs []cluster.Job, r *sim.Result) {
	ran, given := make([]time.Duration, len(jobs)), 0.0
	byGPU := make([][]sim.Span, c.GPUs())
	for _, s := range r.Spans {
		if s.End <= s.Start {
			t.Errorf("empty span %+v", s)
		}
		ran[s.Job] += s.End.Sub(s.Start)
		given += s.End.Sub(s.Start).Hours() * float64(jobs[s.Job].Share) / float64(unit.WholeGPU)
		byGPU[s.GPU] = append(byGPU[s.GPU], s)
	}
	for i, o := range r.Outcomes {
		if want := o.Run * time.Duration(jobs[i].Workers); o.Ended && ran[i] != want {
			t.Errorf("job %d: spans of %v, ran %v on %d GPUs", i, ran[i], o.Run, jobs[i].Workers)
		}
	}
	busy, alone := time.Duration(0), make([]bool, len(jobs))
	for i := range alone {
		alone[i] = true
	}
	for gpu, spans := range byGPU {
		for _, at := range spans { // what is given out is most where a span starts
			given, workers := unit.MilliGPU(0), map[int32]bool{}
			for _, s := range spans {
				if s.Start <= at.Start && at.Start < s.End {
					given += jobs[s.Job].Share
					if workers[s.Job] {
						t.Errorf("two workers of job %d on GPU %d", s.Job, gpu)
					}
					workers[s.Job] = true
				}
			}
			for job := range workers {
				alone[job] = alone[job] && len(workers) == 1
			}
			if given > unit.WholeGPU {
				t.Errorf("GPU %d gave out %d/1000 at %v", gpu, given, at.Start)
			}
		}
		busy += union(spans)
	}
	if want := r.Utilisation * float64(c.GPUs()) * r.Makespan; math.Abs(busy.Seconds()-want) > 1e-6*max(1, want) {
		t.Errorf("spans keep GPUs busy for %g s, figures say %g", busy.Seconds(), want)
	}
	if math.Abs(given-r.GPUHours) > 1e-9*max(1, given) {
		t.Errorf("spans give out %g GPU-hours, figures say %g", given, r.GPUHours)
	}
	instant := slices.ContainsFunc(jobs, func(j cluster.Job) bool { return j.Duration == 0 }) // leave no spans
	for i, o := range r.Outcomes {
		if o.Ended && o.Run > 0 && (o.Standalone && !alone[i] || !o.Standalone && alone[i] && !instant) {
			t.Errorf("job %d: standalone %v, by spans %v", i, o.Standalone, alone[i])
		}
	}
	checkUsage(t, byGPU, r)
}

// checkUsage compares the usage curve with the spans at each of its steps and just before the next one.
func checkUsage(t *rapid.T, byGPU [][]sim.Span, r *sim.Result) {
	most := 0
	for i, u := range r.Usage {
		most = max(most, u.GPUs)
		busy := 0
		for _, spans := range byGPU {
			if slices.ContainsFunc(spans, func(s sim.Span) bool { return s.Start <= u.At && u.At < s.End }) {
				busy++
			}
		}
		if busy != u.GPUs || i > 0 && (u.At <= r.Usage[i-1].At || u.GPUs == r.Usage[i-1].GPUs) {
			t.Errorf("usage step %d of %v: spans say %d", i, r.Usage, busy)
		}
	}
	if n := len(r.Usage); most != r.PeakGPUs || n > 0 && r.Usage[n-1].GPUs != 0 {
		t.Errorf("peak %d of usage %v", r.PeakGPUs, r.Usage)
	}
	if r.Utilisation < 0 || r.Utilisation > 1+1e-9 || r.Allocation > 100*r.Utilisation+1e-6 {
		t.Errorf("utilisation %g, allocation %g %%", r.Utilisation, r.Allocation)
	}
}

// union is how long at least one of the spans lasts.
func union(spans []sim.Span) time.Duration {
	slices.SortFunc(spans, func(a, b sim.Span) int { return int(a.Start - b.Start) })
	total, until := time.Duration(0), unit.Time(0)
	for _, s := range spans {
		if from := max(s.Start, until); s.End > from {
			total += s.End.Sub(from)
			until = s.End
		}
	}
	return total
}

// TestFIFOKeepsTheLine: jobs start in the order of submission, and SJF never starts a longer job while a shorter
// one that was there before waits.
func TestFIFOKeepsTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, jobs := drawCluster(t), drawJobs(t, 20, 8, false)
		fifo := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO(), Placer: consolidated(c, jobs)})
		last := unit.Time(0)
		for i, o := range fifo.Outcomes {
			if o.Ended && o.Start < last {
				t.Errorf("job %d starts at %v, after that one behind it", i, o.Start)
			}
			last = max(last, o.Start)
		}
		sjf := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: policy.SJF(), Placer: consolidated(c, jobs)})
		for i, a := range sjf.Outcomes {
			for k, b := range sjf.Outcomes {
				if a.Ended && b.Ended && jobs[i].Duration < jobs[k].Duration && a.Submit <= b.Start && b.Start < a.Start {
					t.Errorf("job %d (%v) starts before job %d (%v)", k, jobs[k].Duration, i, jobs[i].Duration)
				}
			}
		}
	})
}

// TestPartsAreIndependent: a virtual cluster fares as if it were alone.
func TestPartsAreIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		c, jobs, order := drawCluster(t), drawJobs(t, 14, 5, false), drawOrder(t)
		for i := range c.Nodes {
			c.Nodes[i].VC = rapid.SampledFrom(names[:2]).Draw(t, "node vc") // c has none
		}
		for i := range jobs {
			jobs[i].VC = rapid.SampledFrom(names).Draw(t, "job vc")
		}
		all, err := sim.RunParts(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Order: order, Spans: true}, consolidated)
		if err != nil {
			t.Fatal(err)
		}
		checkSpans(t, c, jobs, all)
		for _, vc := range names {
			part := c.Part(vc)
			var own []cluster.Job
			var index []int
			for i, j := range jobs {
				if j.VC == vc {
					own, index = append(own, j), append(index, i)
				}
			}
			alone := mustRun(t, sim.Config{Cluster: part, Jobs: own, Order: order, Placer: consolidated(part, own)})
			for k, o := range alone.Outcomes {
				o.Job = index[k]
				if diff := cmp.Diff(o, all.Outcomes[index[k]]); diff != "" {
					t.Errorf("virtual cluster %s (-alone +together)\n%s", vc, diff)
				}
			}
			for _, v := range all.VCs {
				if v.VC == vc && (v.AvgJCT != alone.AvgJCT || v.PeakGPUs != alone.PeakGPUs || v.Makespan != alone.Makespan ||
					v.GPUHours != alone.GPUHours || v.Utilisation != alone.Utilisation || v.AvgQueue != alone.AvgQueue) {
					t.Errorf("virtual cluster %s: figures %+v, alone %+v", vc, v, alone.Figures)
				}
			}
		}
	})
}
