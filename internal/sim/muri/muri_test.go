package muri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// vgg is a job of iterations of one second alone (the simulator stretches each by 1.5 %).
func vgg(id string, gpus int, submitMS, iterations float64) trace.MuriJob {
	return trace.MuriJob{ID: id, Line: 2, Model: "vgg16", GPUs: gpus, SubmitMS: submitMS, Iterations: iterations,
		IterationMS: 1000, StageMS: [3]float64{250, 500, 250}}
}

func mustRun(t rapid.TB, jobs []trace.MuriJob, p Policy, nodes, gpusPerNode int) *Result {
	t.Helper()
	r, err := Run(context.Background(), jobs, p, nodes, gpusPerNode)
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return r
}

func TestAloneAJobTakesItsOwnTime(t *testing.T) {
	for _, p := range Policies() {
		r := mustRun(t, []trace.MuriJob{vgg("a", 8, 5000, 100)}, p, 8, 8)
		want := []sim.Outcome{{Submit: unit.Seconds(5), Start: unit.Seconds(5), End: unit.Seconds(106.5), Run: unit.Duration(101.5),
			Ended: true, Standalone: true, Slowdown: 1}}
		if d := cmp.Diff(want, r.Outcomes); d != "" {
			t.Errorf("%s: (-want +got)\n%s", p, d)
		}
		if math.Abs(r.JCTs[0]-101.5) > 1e-9 {
			t.Errorf("%s: JCT %v, want 101.5", p, r.JCTs[0])
		}
	}
}

// TestOverheadIsChargedInEveryInterval: an arrival that changes nothing for the running job still costs it vgg16's
// 7 s on one GPU.
func TestOverheadIsChargedInEveryInterval(t *testing.T) {
	jobs := []trace.MuriJob{vgg("a", 1, 0, 100), vgg("b", 1, 50000, 1000)}
	for _, p := range Policies() {
		r := mustRun(t, jobs, p, 8, 8)
		if got, want := r.JCTs[0], 101.5+7; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: JCT %v, want %v", p, got, want)
		}
	}
}

func TestShortestFirstPreempts(t *testing.T) {
	jobs := []trace.MuriJob{vgg("long", 8, 0, 1000), vgg("short", 8, 100000, 10)}
	for _, p := range []Policy{SRTF, SRSF} {
		r := mustRun(t, jobs, p, 1, 8)
		if r.Preemptions != 1 || r.Outcomes[0].Preemptions != 1 {
			t.Errorf("%s: %d preemptions, of the long job %d; want 1, 1", p, r.Preemptions, r.Outcomes[0].Preemptions)
		}
		if r.Outcomes[1].Start != unit.Seconds(100) {
			t.Errorf("%s: the short job started at %v, want 100 s", p, r.Outcomes[1].Start.Seconds())
		}
	}
}

// TestSRSFCountsGPUs: of two jobs with the same time the one with fewer GPUs goes first, though it is second in the
// file; SRTF keeps the file's order.
func TestSRSFCountsGPUs(t *testing.T) {
	jobs := []trace.MuriJob{vgg("wide", 8, 0, 100), vgg("narrow", 4, 0, 100)}
	for p, first := range map[Policy]int{SRTF: 0, SRSF: 1} {
		r := mustRun(t, jobs, p, 1, 8)
		if r.Outcomes[first].Start != 0 || r.Outcomes[1-first].Start == 0 {
			t.Errorf("%s: starts %v and %v; want job %d first", p, r.Outcomes[0].Start, r.Outcomes[1].Start, first)
		}
	}
}

// TestAntManShares: an opportunistic job runs beside a guaranteed one, at the pace its stages find gaps for, and the
// guaranteed job at its own.
func TestAntManShares(t *testing.T) {
	guaranteed, guest := vgg("g", 1, 0, 1000), vgg("o", 1, 0, 100)
	guest.Opportunistic = true
	r := mustRun(t, []trace.MuriJob{guaranteed, guest}, AntMan, 1, 1)
	// Stage 0 (250 ms) uses up one gap of 750 ms, whose rest takes 250 of stage 1's 500 ms. The other 250 use up a
	// gap of 500, whose rest is no longer than the host's stage 0 and takes nothing of stage 2. Stage 2 (250 ms) ends
	// within that stage. So two host iterations of 1.015 s pass for each of the guest's.
	if got, want := r.JCTs[1], 100*2*1.015; math.Abs(got-want) > 1e-9 {
		t.Errorf("guest's JCT %v, want %v", got, want)
	}
	if r.Outcomes[0].Standalone || r.Outcomes[1].Standalone {
		t.Error("both jobs shared the GPU, an outcome says standalone")
	}
	if s := r.Outcomes[1].Slowdown; math.Abs(s-2) > 1e-9 {
		t.Errorf("guest's slowdown %v, want 2", s)
	}
	if r.Outcomes[0].Slowdown > 1.01 {
		t.Errorf("guaranteed job's slowdown %v, want that of one overhead", r.Outcomes[0].Slowdown)
	}
}

func TestTooLargeGangsAreExcluded(t *testing.T) {
	jobs := []trace.MuriJob{vgg("a", 1, 0, 10), vgg("b", 65, 0, 10), vgg("c", 12, 0, 10), vgg("d", 64, 0, 10)}
	for _, p := range Policies() {
		r := mustRun(t, jobs, p, 8, 8)
		if len(r.Outcomes) != 2 || r.Outcomes[0].Job != 0 || r.Outcomes[1].Job != 3 {
			t.Errorf("%s: outcomes %+v, want those of jobs 0 and 3", p, r.Outcomes)
		}
		want := trace.Exclusions{{Reason: "gang larger than the cluster (64 GPUs)", Rows: 1},
			{Reason: "gang spans nodes without filling them (8 GPUs each)", Rows: 1}}
		if d := cmp.Diff(want, r.Excluded); d != "" {
			t.Errorf("%s: excluded (-want +got)\n%s", p, d)
		}
	}
}

func TestFaultsNameTheJob(t *testing.T) {
	foreign, gapless := vgg("x7", 1, 0, 10), vgg("x8", 1, 0, 10)
	foreign.Model, foreign.Line = "llama", 19
	gapless.StageMS = [3]float64{0, 0, 5}
	for _, c := range []struct {
		job    trace.MuriJob
		policy Policy
		nodes  int
		want   []string
	}{
		{foreign, SRTF, 8, []string{`"x7"`, "line 19", `"llama"`, "vgg16"}},
		{gapless, AntMan, 8, []string{`"x8"`, "line 2", "[0 0 5]"}},
		{vgg("a", 1, 0, 10), "muri-l", 8, []string{"muri-l", "srtf"}},
		{vgg("a", 1, 0, 10), SRTF, 0, []string{"0 nodes"}},
	} {
		_, err := Run(context.Background(), []trace.MuriJob{c.job}, c.policy, c.nodes, 8)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want it to name %s", c.policy, err, part)
			}
		}
	}
}

func TestCancelledRunKeepsWhatItHas(t *testing.T) {
	jobs := []trace.MuriJob{vgg("a", 1, 0, 10)}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := Run(ctx, jobs, SRTF, 8, 8)
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Outcomes) != 0 {
		t.Errorf("result %+v, error %v; want an empty result and context.Canceled", r, err)
	}
}

// jobsGen draws small workloads with many coinciding times.
func jobsGen(gpus ...int) *rapid.Generator[[]trace.MuriJob] {
	return rapid.Custom(func(t *rapid.T) []trace.MuriJob {
		jobs := make([]trace.MuriJob, rapid.IntRange(0, 25).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = trace.MuriJob{
				ID:          fmt.Sprint(i),
				Model:       rapid.SampledFrom([]string{"vgg16", "a2c", "dqn", "gpt2"}).Draw(t, "model"),
				GPUs:        rapid.SampledFrom(gpus).Draw(t, "gpus"),
				SubmitMS:    float64(rapid.IntRange(0, 20).Draw(t, "submit")) * 50_000,
				Iterations:  float64(rapid.IntRange(1, 3000).Draw(t, "iterations")),
				IterationMS: rapid.SampledFrom([]float64{1, 437, 1000}).Draw(t, "iteration"),
				StageMS: [3]float64{float64(rapid.IntRange(1, 500).Draw(t, "stage0")),
					float64(rapid.IntRange(0, 500).Draw(t, "stage1")), float64(rapid.IntRange(1, 500).Draw(t, "stage2"))},
				Opportunistic: rapid.Bool().Draw(t, "opportunistic"),
			}
		}
		return jobs
	})
}

// watch is a recorder that also holds every decision against the cluster.
type watch struct {
	*recorder
	t                  *rapid.T
	policy             scheduler
	nodes, gpusPerNode int
	ends               map[int]int
}

func (w *watch) ended(j *job, now float64) {
	w.ends[j.index]++
	w.recorder.ended(j, now)
}

func (w *watch) decided(now float64, inUse int, running []*job) {
	w.recorder.decided(now, inUse, running)
	if inUse > w.nodes*w.gpusPerNode {
		w.t.Fatalf("at %v s %d GPUs in use, there are %d", now, inUse, w.nodes*w.gpusPerNode)
	}
	switch p := w.policy.(type) {
	case *ordering:
		w.checkNodes(now, running)
	case *antman:
		w.checkDevices(now, p, running)
	}
	if _, shared := w.policy.(*antman); shared {
		return
	}
	total := 0
	for _, j := range running {
		total += j.gpus
	}
	if total != inUse {
		w.t.Fatalf("at %v s the gangs running have %d GPUs, %d are in use: jobs share a GPU", now, total, inUse)
	}
}

// checkNodes counts the GPUs of each node that gangs hold.
func (w *watch) checkNodes(now float64, running []*job) {
	used := make([]int, w.nodes)
	for _, j := range running {
		each := j.gpus / len(j.nodes)
		for _, n := range j.nodes {
			used[n] += each
		}
		if each*len(j.nodes) != j.gpus {
			w.t.Fatalf("at %v s job %d has %d nodes for %d GPUs", now, j.index, len(j.nodes), j.gpus)
		}
	}
	for n, u := range used {
		if u > w.gpusPerNode {
			w.t.Fatalf("at %v s node %d runs gangs of %d GPUs, it has %d", now, n, u, w.gpusPerNode)
		}
	}
}

// checkDevices holds AntMan's books against the jobs: each GPU has at most one guaranteed and one opportunistic job.
func (w *watch) checkDevices(now float64, a *antman, running []*job) {
	for _, j := range running {
		if len(j.held) != j.gpus {
			w.t.Fatalf("at %v s job %d runs on %d GPUs of %d", now, j.index, len(j.held), j.gpus)
		}
		for _, g := range j.held {
			d := a.devices[g]
			if j.opportunistic && (len(d.opportunistic) != 1 || d.opportunistic[0] != j) || !j.opportunistic && d.guaranteed != j {
				w.t.Fatalf("at %v s GPU %d does not know job %d", now, g, j.index)
			}
		}
	}
	free := 0
	for i := range a.devices {
		if a.devices[i].guaranteed == nil {
			free++
		}
	}
	if free != a.freeTotal {
		w.t.Fatalf("at %v s %d GPUs have no guaranteed job, the books say %d", now, free, a.freeTotal)
	}
}

func TestEveryJobEndsOnceWithinTheCluster(t *testing.T) {
	for _, p := range Policies() {
		t.Run(string(p), func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkConservation(t, p) }) })
	}
}

func checkConservation(t *rapid.T, p Policy) {
	jobs := jobsGen(1, 2, 4, 8, 16).Draw(t, "jobs")
	nodes, gpusPerNode := rapid.IntRange(2, 4).Draw(t, "nodes"), rapid.SampledFrom([]int{8, 16}).Draw(t, "gpusPerNode")
	policy, tolerance, err := newScheduler(p, nodes, gpusPerNode)
	if err != nil {
		t.Fatal(err)
	}
	arrivals, err := newJobs(jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{newRecorder(len(jobs)), t, policy, nodes, gpusPerNode, map[int]int{}}
	l := &loop{policy: policy, tolerance: tolerance, arrivals: arrivals, observe: w}
	if err := l.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if w.ends[i] != 1 {
			t.Fatalf("job %d ended %d times", i, w.ends[i])
		}
	}
	r := w.finish()
	checkOutcomes(t, jobs, r)
	if n := len(r.Usage); n > 0 && r.Usage[n-1].GPUs != 0 {
		t.Fatalf("the usage curve ends at %d GPUs", r.Usage[n-1].GPUs)
	}
}

func checkOutcomes(t *rapid.T, jobs []trace.MuriJob, r *Result) {
	preemptions := 0
	for i, o := range r.Outcomes {
		submit := unit.Seconds(jobs[o.Job].SubmitMS / 1000)
		if o.Job != i || o.Start < submit || o.End < o.Start || o.Slowdown < 1 {
			t.Fatalf("outcome %d: %+v of a job submitted at %d", i, o, submit)
		}
		preemptions += o.Preemptions
	}
	if preemptions != r.Preemptions {
		t.Fatalf("%d preemptions of jobs, %d in all", preemptions, r.Preemptions)
	}
}

func TestSameInputSameResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := jobsGen(1, 3, 8, 16, 64).Draw(t, "jobs")
		for _, p := range Policies() {
			if d := cmp.Diff(mustRun(t, jobs, p, 4, 8), mustRun(t, jobs, p, 4, 8)); d != "" {
				t.Fatalf("%s: two runs differ\n%s", p, d)
			}
		}
	})
}

func BenchmarkTrace3(b *testing.B) {
	for _, p := range Policies() {
		b.Run(string(p), func(b *testing.B) {
			jobs := readTrace(b, 3, false)
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				r, err := Run(context.Background(), jobs, p, DefaultNodes, DefaultGPUsPerNode)
				if err != nil {
					b.Fatal(err)
				}
				events += r.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
