package pollux

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

	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// steady are made-up measurements of bert: each of its two epochs is 600 units of progress, gradients are without
// noise, so that a step is worth one unit whatever the batch, and a step takes one second on every shape.
func steady() *trace.PolluxProfiles {
	p := &trace.PolluxProfiles{}
	for epoch, progress := range []float64{600, 1200} {
		for _, batch := range []int{1, 12, 384} {
			p.Statistics = append(p.Statistics, trace.PolluxStatistic{Application: "bert", Batch: batch, Epoch: epoch,
				Progress: progress + float64(batch), GradSqr: 1, GradVar: 1e-300})
		}
	}
	for nodes := 1; nodes <= 16; nodes++ {
		for replicas := nodes; replicas <= 64; replicas++ {
			for _, local := range []int{1, 12} {
				row := trace.PolluxStepTime{Application: "bert", Nodes: nodes, Replicas: replicas, LocalBatch: local, StepS: 1}
				if nodes == 1 {
					row.Placement = fmt.Sprint(replicas % 10)
				}
				p.StepTimes = append(p.StepTimes, row)
			}
		}
	}
	return p
}

func bert(name string, replicas int, submit float64) trace.PolluxJob {
	return trace.PolluxJob{Line: 2, Name: name, Application: "bert", SubmitS: submit, Replicas: replicas, Batch: 12 * replicas}
}

func mustRun(t rapid.TB, rows []trace.PolluxJob, nodes, gpusPerNode int) *Result {
	t.Helper()
	r, err := Run(context.Background(), rows, steady(), nodes, gpusPerNode)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAloneAJobTakesItsOwnTime: submitted at 50 s a job gets its GPUs at the round of 60 s, stands still for 30 s and
// needs 1201 units, the least of the batch sizes.
func TestAloneAJobTakesItsOwnTime(t *testing.T) {
	r := mustRun(t, []trace.PolluxJob{bert("a", 4, 50)}, 16, 4)
	if len(r.JCTs) != 1 || r.JCTs[0] != 60+30+1201-50 {
		t.Errorf("JCTs %v, want [%d]", r.JCTs, 60+30+1201-50)
	}
	o := r.Outcomes[0]
	if o.Start != unit.Seconds(60) || o.End != unit.Seconds(1291) || o.Slowdown != 1 || !o.Standalone {
		t.Errorf("outcome %+v", o)
	}
	d, err := Standalone(t.Context(), steady(), 16, 4)(bert("a", 4, 1e6))
	if err != nil || d != (30+1201)*time.Second {
		t.Errorf("standalone %v, error %v; want 20m31s", d, err)
	}
}

// TestIdleTimeIsSkipped: a gap of a century costs no rounds.
func TestIdleTimeIsSkipped(t *testing.T) {
	r := mustRun(t, []trace.PolluxJob{bert("a", 4, 0), bert("b", 4, 3e9+1)}, 16, 4)
	if r.Events > 100 || r.Outcomes[1].Start != unit.Seconds(3e9+60) {
		t.Errorf("%d rounds, second start %v s; want under 100, 3000000060", r.Events, r.Outcomes[1].Start.Seconds())
	}
}

// TestLongRunningJobYields: at 57,600 GPU-seconds, on 64 GPUs in the round after 900 s, a job is demoted and its GPUs go
// to one that waited.
func TestLongRunningJobYields(t *testing.T) {
	r := mustRun(t, []trace.PolluxJob{bert("wide", 64, 0), bert("waiting", 1, 100)}, 16, 4)
	if got := r.Outcomes[1].Start; got != unit.Seconds(960) {
		t.Errorf("the waiting job started at %v s, want 960", got.Seconds())
	}
	if r.Outcomes[0].Preemptions != 1 || r.Preemptions != 1 || r.Outcomes[0].Slowdown <= 1 {
		t.Errorf("outcome of the demoted job %+v, want one preemption and a slowdown", r.Outcomes[0])
	}
}

func TestTooLargeGangsAreExcluded(t *testing.T) {
	r := mustRun(t, []trace.PolluxJob{bert("a", 65, 0), bert("b", 64, 0)}, 16, 4)
	want := trace.Exclusions{{Reason: "gang larger than the cluster (64 GPUs)", Rows: 1}}
	if d := cmp.Diff(want, r.Excluded); d != "" || len(r.Outcomes) != 1 || r.Outcomes[0].Job != 1 {
		t.Errorf("outcomes %+v, excluded (-want +got)\n%s", r.Outcomes, d)
	}
	if _, err := Standalone(t.Context(), steady(), 16, 4)(bert("a", 65, 0)); err == nil {
		t.Error("a gang larger than the cluster has a standalone run time")
	}
}

func TestFaultsNameTheJob(t *testing.T) {
	foreign, small, unmeasured := bert("x7", 1, 0), bert("x8", 64, 0), bert("x9", 1, 0)
	foreign.Application, foreign.Line = "llama", 19
	small.Batch = 6400
	unmeasured.Application = "ncf"
	for _, c := range []struct {
		row   trace.PolluxJob
		nodes int
		want  []string
	}{
		{foreign, 16, []string{`"x7"`, "line 19", `"llama"`}},
		{unmeasured, 16, []string{`"x9"`, `"ncf"`}},
		{small, 16, []string{`"x8"`, "no step time", "64 replicas on 16 nodes with 0 samples"}},
		{bert("a", 1, 0), 0, []string{"0 nodes"}},
	} {
		_, err := Run(context.Background(), []trace.PolluxJob{c.row}, steady(), c.nodes, 4)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("error %v, want it to name %s", err, part)
			}
		}
	}
}

func TestCancelledRunKeepsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := Run(ctx, []trace.PolluxJob{bert("a", 1, 0)}, steady(), 16, 4)
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Outcomes) != 0 {
		t.Errorf("result %+v, error %v; want an empty result and context.Canceled", r, err)
	}
}

func rowsGen(most int) *rapid.Generator[[]trace.PolluxJob] {
	return rapid.Custom(func(t *rapid.T) []trace.PolluxJob {
		rows := make([]trace.PolluxJob, rapid.IntRange(0, 20).Draw(t, "jobs"))
		for i := range rows {
			rows[i] = bert(fmt.Sprint(i), rapid.IntRange(1, most).Draw(t, "replicas"), float64(rapid.IntRange(0, 4000).Draw(t, "submit")))
			rows[i].Batch = rapid.IntRange(rows[i].Replicas, 12*rows[i].Replicas).Draw(t, "batch")
		}
		return rows
	})
}

func TestEveryJobEndsOnceWithinTheCluster(t *testing.T) {
	profiles := steady()
	rapid.Check(t, func(t *rapid.T) {
		nodes, gpusPerNode := rapid.IntRange(1, 8).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "gpusPerNode")
		rows := rowsGen(min(nodes*gpusPerNode, 32)).Draw(t, "rows")
		jobs, _, err := load(rows, newModels(profiles), nodes*gpusPerNode)
		if err != nil {
			t.Fatal(err)
		}
		l := &loop{policy: newTiresias(nodes, gpusPerNode), coming: slices.Clone(jobs)}
		for len(l.coming)+len(l.active) > 0 {
			if err := l.round(); err != nil {
				t.Fatal(err)
			}
			checkRound(t, l, nodes, gpusPerNode)
		}
		for _, j := range jobs {
			if !j.done || j.end < j.row.SubmitS || j.start < j.row.SubmitS {
				t.Fatalf("job %d: done %v, submitted %v, started %v, ended %v", j.index, j.done, j.row.SubmitS, j.start, j.end)
			}
		}
		if n := len(l.usage); n > 0 && l.usage[n-1].GPUs != 0 {
			t.Fatalf("the usage curve ends at %d GPUs", l.usage[n-1].GPUs)
		}
	})
}

// checkRound counts the GPUs that jobs hold on each node, and the jobs in the queues.
func checkRound(t *rapid.T, l *loop, nodes, gpusPerNode int) {
	used := make([]int, nodes)
	for _, j := range l.active {
		held := 0
		for i, n := range j.nodes {
			used[n] += j.groups[i]
			held += j.groups[i]
		}
		if j.allocated() && held != j.row.Replicas {
			t.Fatalf("at %v s job %d holds %d GPUs of %d", l.now, j.index, held, j.row.Replicas)
		}
		if in := slices.Contains(l.policy.queues[0], j); in == slices.Contains(l.policy.queues[1], j) {
			t.Fatalf("at %v s job %d is in both queues or none", l.now, j.index)
		}
	}
	for n, u := range used {
		if u > gpusPerNode {
			t.Fatalf("at %v s node %d runs %d replicas on %d GPUs", l.now, n, u, gpusPerNode)
		}
	}
}

func TestSameInputSameResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rowsGen(40).Draw(t, "rows")
		if d := cmp.Diff(mustRun(t, rows, 8, 4), mustRun(t, rows, 8, 4)); d != "" {
			t.Fatalf("two runs differ\n%s", d)
		}
	})
}

// TestUnmeasuredShapesAreCounted: the realistic workloads, which have no published figures, need estimates, and say so.
func TestUnmeasuredShapesAreCounted(t *testing.T) {
	profiles := readProfiles(t)
	for _, c := range []struct {
		vc        string
		estimated bool
	}{{"3", false}, {"realistic-1", true}} {
		rows := readWorkload(t, c.vc)
		r, err := Run(context.Background(), rows, profiles, DefaultNodes, DefaultGPUsPerNode)
		if err != nil {
			t.Fatalf("workload %s: %v", c.vc, err)
		}
		t.Logf("workload %s: average JCT %.1f s, %d estimated allocations", c.vc, mean(r.JCTs), r.Estimated)
		if len(r.Outcomes) != len(rows) || r.Estimated > 0 != c.estimated {
			t.Errorf("workload %s: %d of %d jobs ended, %d estimates, want some: %v", c.vc, len(r.Outcomes), len(rows), r.Estimated, c.estimated)
		}
	}
}

func BenchmarkWorkload3(b *testing.B) {
	profiles, rows := readProfiles(b), readWorkload(b, "3")
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		r, err := Run(context.Background(), rows, profiles, DefaultNodes, DefaultGPUsPerNode)
		if err != nil {
			b.Fatal(err)
		}
		rounds += r.Events
	}
	b.ReportMetric(float64(rounds)/b.Elapsed().Seconds(), "rounds/s")
}
