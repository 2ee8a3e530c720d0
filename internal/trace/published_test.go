package trace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/shared"
)

// readFile reads a whole file in a format.
func readFile(t testing.TB, format, path string, o Options) *Trace {
	t.Helper()
	trace, err := Read(context.Background(), format, path, openFile(t, path), o)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	checkJobs(t, trace)
	return trace
}

// fatal is what a check needs of a test, or of a property.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkJobs holds what every trace promises.
func checkJobs(t fatal, trace *Trace) {
	t.Helper()
	ids := map[string]bool{}
	for i, j := range trace.Jobs {
		switch {
		case j.ID == "" || ids[j.ID]:
			t.Fatalf("job %d: id %q is empty or stands twice", i, j.ID)
		case j.Workers < 1 || j.Workers > maxWorkers:
			t.Fatalf("job %s: %d workers", j.ID, j.Workers)
		case !(j.Floor > 0 && j.Floor <= 1):
			t.Fatalf("job %s: floor %g", j.ID, j.Floor)
		case j.Duration < 0 || j.Submit < 0 || j.Share < 1 || j.Share > 1000:
			t.Fatalf("job %s: duration %v, submit %v, share %d", j.ID, j.Duration, j.Submit, j.Share)
		case j.Memory.Peak < 0 || j.Memory.Persistent > j.Memory.Peak || j.GPUUtil < 0 || j.GPUUtil > 1:
			t.Fatalf("job %s: memory %+v, utilisation %g", j.ID, j.Memory, j.GPUUtil)
		case i > 0 && j.Submit < trace.Jobs[i-1].Submit:
			t.Fatalf("job %s: submitted before the one above it", j.ID)
		}
		ids[j.ID] = true
	}
}

// gpuSeconds is the work of all jobs.
func gpuSeconds(jobs []cluster.Job) float64 {
	total := 0.0
	for _, j := range jobs {
		total += float64(j.Workers) * float64(j.Share) / 1000 * j.Duration.Seconds()
	}
	return total
}

// counts is the exclusions as a map.
func counts(x Exclusions) map[string]int {
	m := map[string]int{}
	for _, e := range x {
		m[e.Reason] = e.Rows
	}
	return m
}

func wantCounts(t *testing.T, got Exclusions, want map[string]int) {
	t.Helper()
	m := counts(got)
	for reason, n := range want {
		if m[reason] != n {
			t.Errorf("%d rows excluded as %q, want %d; all: %v", m[reason], reason, n, got)
		}
	}
	if len(m) != len(want) {
		t.Errorf("excluded %v, want %v", got, want)
	}
}

func wantWork(t *testing.T, trace *Trace, jobs int, gpuHours float64) {
	t.Helper()
	if len(trace.Jobs) != jobs {
		t.Errorf("%d jobs, want %d", len(trace.Jobs), jobs)
	}
	if got := gpuSeconds(trace.Jobs) / 3600; math.Abs(got-gpuHours) > 5e-5 {
		t.Errorf("%.4f GPU-hours, want %.4f", got, gpuHours)
	}
}

// The reported cases: figures of shared/cases/A01, A03 and A13.
func TestReportedSacct(t *testing.T) {
	a01 := readFile(t, "sacct", shared.Case(t, "A01/sacct.txt"), Options{})
	wantWork(t, a01, 10, 532.4714)
	wantCounts(t, a01.Excluded, map[string]int{reasonStep: 24, reasonNoGPU: 1, reasonNoStart: 2, reasonRunning: 1})
	total := time.Duration(0)
	for _, j := range a01.Jobs {
		total += j.Duration
	}
	if mean := total.Seconds() / 10; math.Abs(mean-28974.5) > 0.05 {
		t.Errorf("mean run time %.2f s, want 28974.5", mean)
	}
	a03 := readFile(t, "sacct", shared.Case(t, "A03/sacct.txt"), Options{})
	wantWork(t, a03, 4, 12.5)
	wantCounts(t, a03.Excluded, map[string]int{reasonNoStart: 35 + 6})
	if gang := a03.Jobs[3]; gang.ID != "63003" || gang.Workers != 6 {
		t.Errorf("heterogeneous job is %q with %d GPUs, want 63003 with 6", gang.ID, gang.Workers)
	}
}

func TestReportedTraces(t *testing.T) {
	pods := readFile(t, "openb", shared.Case(t, "A13/openb_pods.csv"), Options{})
	if got := gpuSeconds(pods.Jobs); len(pods.Jobs) != 5 || math.Abs(got-40766) > 1e-6 {
		t.Errorf("%d pods with %g GPU-seconds, want 5 with 40766", len(pods.Jobs), got)
	}
	wantCounts(t, pods.Excluded, map[string]int{reasonNoGPU: 1, reasonNoStart: 1, reasonReversed: 1,
		"gpu_milli outside 1 to 1000": 1})
	log := readFile(t, "philly", shared.Case(t, "A13/philly_cluster_job_log.json"), Options{})
	if len(log.Jobs) != 2 || log.Jobs[1].Workers != 2 || log.Jobs[1].Duration != time.Hour {
		t.Errorf("philly log gave %+v", log.Jobs)
	}
	wantCounts(t, log.Excluded, map[string]int{reasonNoStart: 1, reasonBroken: 2, reasonAttempt: 1})
	for _, format := range Formats() {
		path := shared.Case(t, "A13/pai_task.csv")
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(context.Background(), format, path, f, everything)
		f.Close()
		var faults Errors
		if !errors.As(err, &faults) {
			t.Errorf("--format %s on pai_task.csv: %v", format, err)
		} else if code := faults[0].Code; code != "foreign_format" {
			t.Errorf("--format %s on pai_task.csv: %v", format, err)
		}
	}
}

// Figures summed independently from the files.
func TestPublishedTraces(t *testing.T) {
	for _, c := range []struct {
		format, file string
		jobs         int
		gpuHours     float64
		excluded     map[string]int
	}{
		{"philly", "philly/philly_jobs.csv", 82247, 978078.4728, nil},
		{"itp", "microsoft_itp/itp_jobs.csv", 69351, 1632719.7403, nil},
		{"itp", "microsoft_itp/elasticflow_195job.csv", 195, 5489.8072, nil},
		{"itp", "elasticflow/elasticVpollux_e.csv", 195, 9293.8497, nil},
		{"itp", "elasticflow/philly_103959.csv", 876, 42816.0775, nil},
		{"tiresias", "tiresias/60_job.csv", 60, 7.3956, nil},
		{"openb", "openb/openb_pod_list_default.csv", 6203, 51470.6742, map[string]int{reasonNoGPU: 1088, reasonNoStart: 861}},
		{"gavel", "shockwave/reproduce_traces.csv", 2600, 4815.0367, nil},
		{"gavel", "gavel/msr_seed0_traces.csv", 13716, 762835.0900, map[string]int{
			"no measured rate on 2 GPUs": 127, "no measured rate on 4 GPUs": 549, "no measured rate on 8 GPUs": 511,
			"no measured rate on 16 GPUs": 255, "no measured rate on 32 GPUs": 91, "no measured rate on 12 GPUs": 6,
			"no measured rate on 24 GPUs": 5, "no measured rate on 7 GPUs": 2, "no measured rate on 64 GPUs": 1,
			"no measured rate on 20 GPUs": 1}},
	} {
		t.Run(c.file, func(t *testing.T) {
			trace := readFile(t, c.format, shared.Data(t, c.file), Options{Rates: publishedRates(t, RateSource{})})
			wantWork(t, trace, c.jobs, c.gpuHours)
			wantCounts(t, trace.Excluded, c.excluded)
		})
	}
}

func publishedRates(t testing.TB, want RateSource) *Rates {
	t.Helper()
	f := openFile(t, shared.Data(t, "profiles/isolated_throughput_gavel_shockwave.csv"))
	rates, err := ReadRates(f.Name(), f, want)
	if err != nil {
		t.Fatal(err)
	}
	return rates
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The span that the published figures of Philly are of: 68,503 jobs of the virtual clusters whose size is known.
func TestPhillySpan(t *testing.T) {
	nodes := readNodes(t, shared.Data(t, "philly/philly_vc_nodes.csv"), 0)
	if len(nodes.Nodes) != 352 || nodes.GPUs() != 2816 || len(nodes.Part("ed69ec").Nodes) != 8 {
		t.Errorf("%d nodes with %d GPUs, want 352 with 2816", len(nodes.Nodes), nodes.GPUs())
	}
	trace := readFile(t, "philly", shared.Data(t, "philly/philly_jobs.csv"),
		Options{From: bound(t, "2017-10-01"), To: bound(t, "2017-12-01")})
	known := 0
	for _, j := range trace.Jobs {
		if len(nodes.Part(j.VC).Nodes) > 0 {
			known++
		}
	}
	if known != 68503 || trace.Origin.Format(time.DateTime) != "2017-10-01 00:00:45" {
		t.Errorf("%d jobs from %v, want 68503 from 2017-10-01 00:00:45", known, trace.Origin)
	}
}

// Every job of a Gavel trace names its model as the pair table does, and so has a partner on record.
func TestNamesMatchPairs(t *testing.T) {
	f := openFile(t, shared.Data(t, "interference/pairs.csv"))
	pairs, err := ReadPairs(f.Name(), f)
	if err != nil || len(pairs) != 2055 {
		t.Fatalf("%d pairs, want 2055: %v", len(pairs), err)
	}
	known := map[[2]string]bool{}
	for _, p := range pairs {
		if p.NormA <= 0 || p.NormB <= 0 || p.Source == "" || p.GPU == "" || p.JobA == "" || p.JobB == "" {
			t.Fatalf("pair %+v", p)
		}
		if p.Source == "gavel_oracle" {
			known[[2]string{p.JobA, p.BatchA}], known[[2]string{p.JobB, p.BatchB}] = true, true
		}
	}
	if len(known) != 26 || !known[[2]string{"A3C", ""}] {
		t.Fatalf("%d configurations in the pair table, want 26 with A3C", len(known))
	}
	for _, file := range []string{"gavel/msr_seed0_traces.csv", "gavel/physical_max_min_fairness.csv",
		"gavel/physical_minimize_makespan.csv", "shockwave/reproduce_traces.csv"} {
		trace := readFile(t, "gavel", shared.Data(t, file), Options{Rates: publishedRates(t, RateSource{GPU: "V100"})})
		for _, j := range trace.Jobs {
			if !known[[2]string{j.Model, j.Batch}] {
				t.Fatalf("%s: job %s is %s:%s, which no pair names", file, j.ID, j.Model, j.Batch)
			}
		}
	}
}

func readNodes(t testing.TB, path string, gpusPerNode int) cluster.Cluster {
	t.Helper()
	c, err := ReadCluster(path, openFile(t, path), gpusPerNode)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPublishedOpenb(t *testing.T) {
	nodes := readNodes(t, shared.Data(t, "openb/openb_node_list_gpu_node.csv"), 0)
	if len(nodes.Nodes) != 1213 || nodes.GPUs() != 6212 || nodes.Nodes[0].GPUModel != "P100" || nodes.Nodes[0].CPU != 64000 {
		t.Errorf("%d nodes with %d GPUs, first %+v", len(nodes.Nodes), nodes.GPUs(), nodes.Nodes[0])
	}
	if all := readNodes(t, shared.Data(t, "openb/openb_node_list_all_node.csv"), 0); len(all.Nodes) != 1523 || all.GPUs() != 6212 {
		t.Errorf("all: %d nodes with %d GPUs", len(all.Nodes), all.GPUs())
	}
	f := openFile(t, shared.Data(t, "openb/openb_pod_list_default.csv"))
	pods, err := ReadOpenbPods(f.Name(), f)
	if err != nil || len(pods) != 8152 {
		t.Fatalf("%d pods, want 8152: %v", len(pods), err)
	}
	milli, cpuOnly := 0, 0
	for i, p := range pods {
		milli += p.Workers * int(p.Share)
		if p.Workers == 0 {
			cpuOnly++
		}
		if want := fmt.Sprintf("openb-pod-%04d", i); p.ID != want {
			t.Fatalf("pod %d is %s, want file order", i, p.ID)
		}
	}
	if milli != 6_086_800 || cpuOnly != 1088 {
		t.Errorf("pods ask for %d milli-GPUs, %d for none; want 6086800 and 1088", milli, cpuOnly)
	}
	if tiresias := readNodes(t, shared.Data(t, "tiresias/n32g4.csv"), 0); len(tiresias.Nodes) != 32 || tiresias.GPUs() != 128 {
		t.Errorf("n32g4: %d nodes with %d GPUs", len(tiresias.Nodes), tiresias.GPUs())
	}
}
