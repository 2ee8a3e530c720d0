package sim_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// steady is n jobs of one to eight GPUs, on the verge of what 16 GPUs can do.
func steady(n int) []cluster.Job {
	jobs := make([]cluster.Job, n)
	for i := range jobs {
		jobs[i] = cluster.Job{Workers: 1 << (i % 4), Share: unit.WholeGPU, Submit: unit.Seconds(float64(i)),
			Duration: time.Duration(1+i%5) * time.Second}
	}
	return jobs
}

// TestCancel: what had ended by then is a result, marked partial.
func TestCancel(t *testing.T) {
	c, jobs := cluster.Uniform(2, 8), steady(20000)
	ctx, cancel := context.WithCancel(context.Background())
	var calls []int
	r, err := sim.Run(ctx, sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO(), Placer: consolidated(c, jobs), Spans: true,
		Progress: func(done, total int) {
			if calls = append(calls, done); total != len(jobs) {
				t.Errorf("%d of %d jobs, there are %d", done, total, len(jobs))
			}
			if done > 5000 {
				cancel()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Partial || r.Jobs < 5000 || r.Jobs > 15000 || !slices.IsSorted(calls) || len(calls) > 5 {
		t.Errorf("partial %v, %d jobs, progress %v", r.Partial, r.Jobs, calls)
	}
	ended, running := 0, 0
	for _, o := range r.Outcomes {
		switch {
		case o.Ended:
			ended++
		case o.Run > 0:
			running++
		}
	}
	if ended != r.Jobs || running == 0 || r.Utilisation <= 0 || r.Utilisation > 1 {
		t.Errorf("%d outcomes ended of %d jobs, %d running, utilisation %g", ended, r.Jobs, running, r.Utilisation)
	}
	none, err := sim.Run(ctx, sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO(), Placer: consolidated(c, jobs)})
	if err != nil || !none.Partial || none.Jobs != 0 {
		t.Errorf("cancelled before it began: %v, %+v", err, none.Figures)
	}
}

// TestFigures: two jobs of 1 and 3 s on one of two GPUs, the second waits.
func TestFigures(t *testing.T) {
	c := cluster.Uniform(1, 2)
	jobs := []cluster.Job{
		{ID: "a", Workers: 1, Share: 500, Submit: unit.Seconds(10), Duration: time.Second},
		{ID: "b", Workers: 2, Share: unit.WholeGPU, Submit: unit.Seconds(10), Duration: 3 * time.Second},
		{ID: "c", Workers: 3, Share: unit.WholeGPU, Submit: unit.Seconds(99), Duration: time.Hour},
	}
	clock := time.Unix(0, 0)
	r := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO(), Placer: consolidated(c, jobs), Spans: true,
		Now: func() time.Time { clock = clock.Add(time.Second); return clock }})
	want := sim.Figures{Policy: "fifo", AvgJCT: 2.5, MedianJCT: 4, P95JCT: 4, P99JCT: 4, AvgQueue: 0.5, Makespan: 4,
		GPUHours: 6.5 / 3600, PeakGPUs: 2, Utilisation: 7.0 / 8, Allocation: 100 * 6.5 / 8, MeanPerformance: 1, Jobs: 2, Events: 4,
		EventsPerSecond: 4, Excluded: []trace.Exclusion{{Reason: "gang of 3, cluster has 2", Rows: 1}}}
	if diff := cmp.Diff(want, r.Figures); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	usage := []sim.Usage{{At: unit.Seconds(10), GPUs: 1}, {At: unit.Seconds(11), GPUs: 2}, {At: unit.Seconds(14), GPUs: 0}}
	if diff := cmp.Diff(usage, r.Usage); diff != "" {
		t.Errorf("usage (-want +got)\n%s", diff)
	}
	spans := []sim.Span{{Job: 0, GPU: 0, Start: unit.Seconds(10), End: unit.Seconds(11)},
		{Job: 1, GPU: 0, Start: unit.Seconds(11), End: unit.Seconds(14)},
		{Job: 1, GPU: 1, Start: unit.Seconds(11), End: unit.Seconds(14)}}
	if diff := cmp.Diff(spans, r.Spans); diff != "" {
		t.Errorf("spans (-want +got)\n%s", diff)
	}
}

// TestJSON holds the keys that others script against.
func TestJSON(t *testing.T) {
	r := mustRun(t, sim.Config{Cluster: cluster.Uniform(1, 1), Order: policy.FIFO(), Placer: consolidated(cluster.Uniform(1, 1), nil)})
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`allocation_pct avg_jct_s avg_queue_s below_floor_fraction broken_floors events events_per_second excluded
		fragmentation_pct gpu_hours jobs makespan_s mean_performance median_jct_s migrations oom p95_jct_s p99_jct_s peak_gpus placement policy
		preemptions share utilisation`)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
	if got["fragmentation_pct"] != nil || got["excluded"] == nil {
		t.Errorf("no jobs: %s", text)
	}
}

// TestRefusals: who could never run is listed with its reason, and the line goes on.
func TestRefusals(t *testing.T) {
	c := cluster.Cluster{Nodes: []cluster.Node{{VC: "x", GPUModel: "A", GPUs: 2, GPUMemory: 16 * unit.GiB}, {VC: "y", GPUModel: "B", GPUs: 1}}}
	job := cluster.Job{VC: "x", Workers: 1, Share: unit.WholeGPU, Duration: time.Second}
	large, model, gang, orphan := job, job, job, job
	large.Memory.Peak, model.Models, gang.Workers, orphan.VC = 20*unit.GiB, []string{"B"}, 3, "z"
	jobs := []cluster.Job{large, model, gang, orphan, job}
	reasons := func(r *sim.Result) (all []string) {
		for _, x := range r.Excluded {
			all = append(all, x.Reason)
		}
		return all
	}
	r, err := sim.RunParts(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Order: policy.FIFO()}, consolidated)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"TooLarge: fits no GPU", "no GPU of model B", "gang of 3, virtual cluster x has 2",
		"no node in virtual cluster z"}
	if diff := cmp.Diff(want, reasons(r)); diff != "" || r.Jobs != 1 {
		t.Errorf("%d jobs ended; reasons (-want +got)\n%s", r.Jobs, diff)
	}
	for _, name := range policy.OrderNames() { // a placer that cannot say beforehand
		order, _ := policy.OrderByName(name)
		x := c.Part("x")
		r := mustRun(t, sim.Config{Cluster: x, Jobs: jobs, Order: order, Placer: plainPlacer{consolidated(x, jobs)}})
		want := []trace.Exclusion{{Reason: "fits nowhere on the empty cluster", Rows: 2}, {Reason: "gang of 3, cluster has 2", Rows: 1}}
		if diff := cmp.Diff(want, r.Excluded); diff != "" || r.Jobs != 2 {
			t.Errorf("%s: %d jobs ended; excluded (-want +got)\n%s", name, r.Jobs, diff)
		}
	}
}

// TestSteadyStateAllocatesNothing: ten times the jobs allocate only what grows with the list, not per event.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	c := cluster.Uniform(2, 8)
	for _, name := range policy.OrderNames() {
		order, _ := policy.OrderByName(name)
		allocations := func(n int) float64 {
			jobs := steady(n)
			return testing.AllocsPerRun(1, func() {
				mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: order, Placer: consolidated(c, jobs)})
			})
		}
		if few, many := allocations(1000), allocations(10000); many > few+100 {
			t.Errorf("%s: %g allocations for 1,000 jobs, %g for 10,000", name, few, many)
		}
	}
}
