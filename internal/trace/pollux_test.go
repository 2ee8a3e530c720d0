package trace

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/unit"
)

const polluxText = `set,workload,name,time,application,num_replicas,batch_size
pollux_workloads,6,cifar10-0,107,cifar10,6,2048
pollux_workloads-realistic,6,cifar10-0,0.5,bert,1,12
mine,a,x,0,bert,1,24
`

func TestReadPollux(t *testing.T) {
	got, err := ReadPollux("t.csv", strings.NewReader(polluxText))
	if err != nil {
		t.Fatal(err)
	}
	want := []PolluxJob{
		{Line: 2, Set: "pollux_workloads", Workload: "6", Name: "cifar10-0", Application: "cifar10", SubmitS: 107, Replicas: 6, Batch: 2048},
		{Line: 3, Set: "pollux_workloads-realistic", Workload: "6", Name: "cifar10-0", Application: "bert", SubmitS: 0.5, Replicas: 1, Batch: 12},
		{Line: 4, Set: "mine", Workload: "a", Name: "x", Application: "bert", Replicas: 1, Batch: 24},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for i, vc := range []string{"6", "realistic-6", "mine-a"} {
		if got[i].VC() != vc {
			t.Errorf("line %d: VC %q, want %q", got[i].Line, got[i].VC(), vc)
		}
	}
}

// TestPolluxJobs: run times come from the caller; a row without one is counted, not dropped.
func TestPolluxJobs(t *testing.T) {
	_, err := readPollux("t.csv", strings.NewReader(polluxText), Options{})
	if e := firstFault(t, err); e.Code != "no_profiles" || !strings.Contains(e.Message, "validation.csv") {
		t.Errorf("without profiles: fault %+v", e)
	}
	o := Options{PolluxDuration: func(j PolluxJob) (time.Duration, error) {
		if j.Batch == 24 {
			return 0, errors.New("unmeasured")
		}
		return time.Duration(j.Batch) * time.Second, nil
	}}
	got, err := readPollux("t.csv", strings.NewReader(polluxText), o)
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.Job{ID: "6/cifar10-0", Name: "cifar10-0", VC: "6", Model: "cifar10", Batch: "2048", Workers: 6,
		Share: unit.WholeGPU, Submit: unit.Seconds(107), Duration: 2048 * time.Second}
	if len(got.Jobs) != 2 || !got.Timed {
		t.Fatalf("%d jobs, timed %v; want 2, true", len(got.Jobs), got.Timed)
	}
	if d := cmp.Diff(want, got.Jobs[0]); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff(Exclusions{{Reason: "no run time alone: unmeasured", Rows: 1}}, got.Excluded); d != "" {
		t.Errorf("excluded (-want +got)\n%s", d)
	}
}

func TestReadPolluxFaults(t *testing.T) {
	workload := func(text string) error { _, err := ReadPollux("t.csv", strings.NewReader(text)); return err }
	statistics := func(text string) error {
		_, err := ReadPolluxStatistics("t.csv", strings.NewReader(text))
		return err
	}
	times := func(text string) error {
		_, err := ReadPolluxStepTimes("t.csv", strings.NewReader(text))
		return err
	}
	const jobs = "set,workload,name,time,application,num_replicas,batch_size\n"
	const rows = "application,batch_size,epoch,progress,grad_sqr,grad_var\n"
	const steps = "application,num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
	for _, c := range []struct {
		read         func(string) error
		text         string
		line         int
		column, code string
	}{
		{workload, jobs + "s,1,a,0,bert,0,12", 2, "num_replicas", "out_of_range"},
		{workload, jobs + "s,1,a,-1,bert,1,12", 2, "time", "out_of_range"},
		{workload, jobs + "s,1,a,0,bert,1,nan", 2, "batch_size", "not_a_number"},
		{workload, jobs + "s,1,a,0,,1,12", 2, "application", "empty_cell"},
		{workload, jobs + "s,1,a,0,bert,1,12\ns,1,a,0,bert,1,12", 3, "name", "double_id"},
		{statistics, rows + "bert,12,0,NaN,1,1", 2, "progress", "not_a_number"},
		{statistics, rows + "bert,12,-1,5,1,1", 2, "epoch", "out_of_range"},
		{statistics, rows + "bert,12,0,5,1,0", 2, "grad_var", "out_of_range"},
		{statistics, "application,batch_size\n", 1, "epoch", "missing_column"},
		{times, steps + "bert,1,1,4,0,0", 2, "step_time", "out_of_range"},
		{times, steps + "bert,1,1,4,1,2", 2, "sync_time", "out_of_range"},
		{times, steps + "bert,0,1,4,1,0", 2, "num_nodes", "out_of_range"},
	} {
		e := firstFault(t, c.read(c.text))
		if e.Line != c.line || e.Column != c.column || e.Code != c.code || e.File != "t.csv" {
			t.Errorf("%q: fault %+v, want %s of %s on line %d", c.text, e, c.code, c.column, c.line)
		}
	}
}

func TestReadPolluxFiles(t *testing.T) {
	read := func(name string, count func(path string, text *bytes.Reader) (int, error), want int) {
		t.Helper()
		path := shared.Data(t, "pollux/"+name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := count(path, bytes.NewReader(text)); err != nil || n != want {
			t.Errorf("%s: %d rows, error %v; want %d", name, n, err, want)
		}
	}
	read("workloads.csv", func(path string, r *bytes.Reader) (int, error) {
		rows, err := ReadPollux(path, r)
		return len(rows), err
	}, 2560)
	read("validation.csv", func(path string, r *bytes.Reader) (int, error) {
		rows, err := ReadPolluxStatistics(path, r)
		return len(rows), err
	}, 2152)
	read("step_times.csv", func(path string, r *bytes.Reader) (int, error) {
		rows, err := ReadPolluxStepTimes(path, r)
		return len(rows), err
	}, 7103)
}

// FuzzPollux: whatever the texts, each reader gives faults that name the file, or rows within bounds.
func FuzzPollux(f *testing.F) {
	f.Add([]byte(polluxText))
	f.Add([]byte("application,batch_size,epoch,progress,grad_sqr,grad_var\nbert,12,0,7387.0,1e14,6e15\n"))
	f.Add([]byte("application,num_nodes,num_replicas,local_bsz,step_time,sync_time\nbert,1,1,4,0.45,Inf\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, err := ReadPollux("fuzz.csv", bytes.NewReader(text))
		checkRefusal(t, err)
		for _, j := range jobs {
			if j.Name == "" || j.Application == "" || j.Replicas < 1 || j.Batch < 1 || !(j.SubmitS >= 0 && j.SubmitS <= maxSeconds) {
				t.Fatalf("job %+v", j)
			}
		}
		statistics, err := ReadPolluxStatistics("fuzz.csv", bytes.NewReader(text))
		checkRefusal(t, err)
		for _, s := range statistics {
			if s.Batch < 1 || s.Epoch < 0 || !(s.Progress >= 0) || !(s.GradVar > 0) || !(s.GradSqr >= 0) {
				t.Fatalf("statistic %+v", s)
			}
		}
		times, err := ReadPolluxStepTimes("fuzz.csv", bytes.NewReader(text))
		checkRefusal(t, err)
		for _, s := range times {
			if !(s.StepS > 0) || !(s.SyncS >= 0 && s.SyncS <= s.StepS) || s.Nodes < 1 || s.LocalBatch < 1 {
				t.Fatalf("step time %+v", s)
			}
		}
	})
}
