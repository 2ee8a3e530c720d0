package trace

import (
	"fmt"
	"io"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// PolluxJob is one row of a workload of the Pollux simulator (Qiao et al., OSDI 2021; repository petuum/adaptdl).
type PolluxJob struct {
	Line        int // of the file, for messages
	Set         string
	Workload    string // of the set; each workload is a trace of its own
	Name        string // unique within a workload
	Application string
	SubmitS     float64 // seconds
	Replicas    int     // gang size, a GPU each
	Batch       int     // samples, over all replicas
}

// polluxSet is the name of the set of workloads that the paper's figures are of.
const polluxSet = "pollux_workloads"

// VC names the workload among all sets: "6" in the set of the published figures, "realistic-6" in the other.
func (j PolluxJob) VC() string {
	if j.Set == polluxSet {
		return j.Workload
	}
	return strings.TrimPrefix(j.Set, polluxSet+"-") + "-" + j.Workload
}

// PolluxStatistic is what training an application with a batch size had reached, and how noisy its gradients were,
// at the end of an epoch.
type PolluxStatistic struct {
	Application  string
	Batch, Epoch int
	Progress     float64 // iterations of the initial batch size that would have reached as far
	GradSqr      float64 // squared norm of the mean gradient
	GradVar      float64 // variance of the gradient at the initial batch size
}

// PolluxStepTime is one measured iteration time. Placement is the replicas of each node, a digit each, in its
// lexicographically smallest rotation; it is empty where only their number was recorded.
type PolluxStepTime struct {
	Application string
	Placement   string
	Nodes       int
	Replicas    int
	LocalBatch  int     // samples per replica
	StepS       float64 // seconds of an iteration
	SyncS       float64 // seconds of it that go into synchronisation
}

// PolluxProfiles are the measurements that the workloads' run times follow from.
type PolluxProfiles struct {
	Statistics []PolluxStatistic
	StepTimes  []PolluxStepTime
}

// Bounds of believable measurements. Epochs index tables, and steps of a year are a slip of unit.
const (
	polluxMaxBatch   = 1 << 30
	polluxMaxEpochs  = 1 << 16
	polluxMaxStepS   = 365.25 * 86400
	polluxLeastStep  = 1e-9 // a nanosecond
	polluxLeastValue = 1e-300
	polluxMaxValue   = 1e300
)

var polluxColumns = []string{"set", "workload", "name", "time", "application", "num_replicas", "batch_size"}

// ReadPollux reads workloads in file order. Every fault of the text is in the returned Errors.
func ReadPollux(file string, r io.Reader) ([]PolluxJob, error) {
	return readPolluxRows(file, r, false)
}

func readPolluxRows(file string, r io.Reader, ignoreUnknown bool) ([]PolluxJob, error) {
	var jobs []PolluxJob
	lines := map[[3]string]int{}
	err := readRows(file, r, Columns{Required: polluxColumns, IgnoreUnknown: ignoreUnknown}, func(t *Table) {
		j := PolluxJob{
			Line:        t.Line(),
			Set:         strings.Clone(t.Text("set")),
			Workload:    strings.Clone(t.Text("workload")),
			Name:        strings.Clone(t.Text("name")),
			Application: strings.Clone(t.Text("application")),
			SubmitS:     t.Float("time", 0, maxSeconds, 0),
			Replicas:    t.Int("num_replicas", 1, maxWorkers, 1),
			Batch:       t.Int("batch_size", 1, polluxMaxBatch, 1),
		}
		key := [3]string{j.Set, j.Workload, j.Name}
		if first, twice := lines[key]; twice {
			t.Fault("name", "double_id", fmt.Sprintf("name %q stands twice in workload %s; first on line %d", clean(j.Name),
				clean(j.VC()), first), "", "give every job of a workload a name of its own")
		}
		lines[key] = j.Line
		jobs = append(jobs, j)
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// readRows hands every full row to row. With faults in the text it returns them all.
func readRows(file string, r io.Reader, columns Columns, row func(t *Table)) error {
	t, err := NewTable(file, r, columns)
	if err != nil {
		return err
	}
	for t.Next() {
		if cellsFilled(t, columns.Required) {
			row(t)
		}
	}
	return t.Err()
}

// ReadPolluxStatistics reads validation.csv: the progress and gradient statistics per application, batch size and
// epoch.
func ReadPolluxStatistics(file string, r io.Reader) ([]PolluxStatistic, error) {
	columns := Columns{Required: []string{"application", "batch_size", "epoch", "progress", "grad_sqr", "grad_var"},
		Optional: []string{"iteration", "metric"}}
	var statistics []PolluxStatistic
	err := readRows(file, r, columns, func(t *Table) {
		statistics = append(statistics, PolluxStatistic{
			Application: strings.Clone(t.Text("application")),
			Batch:       t.Int("batch_size", 1, polluxMaxBatch, 1),
			Epoch:       t.Int("epoch", 0, polluxMaxEpochs, 0),
			Progress:    t.Float("progress", 0, maxSteps, 0),
			GradSqr:     t.Float("grad_sqr", 0, polluxMaxValue, 0),
			GradVar:     t.Float("grad_var", polluxLeastValue, polluxMaxValue, 1),
		})
	})
	if err != nil {
		return nil, err
	}
	return statistics, nil
}

// ReadPolluxStepTimes reads step_times.csv: the measured iteration times.
func ReadPolluxStepTimes(file string, r io.Reader) ([]PolluxStepTime, error) {
	columns := Columns{Required: []string{"application", "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"},
		Optional: []string{"gpu_type", "kind", "placement"}}
	var times []PolluxStepTime
	err := readRows(file, r, columns, func(t *Table) {
		s := PolluxStepTime{
			Application: strings.Clone(t.Text("application")),
			Placement:   strings.Clone(t.Text("placement")),
			Nodes:       t.Int("num_nodes", 1, maxWorkers, 1),
			Replicas:    t.Int("num_replicas", 1, maxWorkers, 1),
			LocalBatch:  t.Int("local_bsz", 1, polluxMaxBatch, 1),
			StepS:       t.Float("step_time", polluxLeastStep, polluxMaxStepS, 1),
			SyncS:       t.Float("sync_time", 0, polluxMaxStepS, 0),
		}
		if s.SyncS > s.StepS {
			t.Fault("sync_time", "out_of_range", fmt.Sprintf("sync_time %g is longer than step_time %g", s.SyncS, s.StepS),
				"synchronisation is a part of the step", "")
		}
		times = append(times, s)
	})
	if err != nil {
		return nil, err
	}
	return times, nil
}

// readPollux makes jobs of Pollux workloads, for weft's own rules: each workload is a virtual cluster, and the run
// time is that of the job alone, from Options.PolluxDuration.
func readPollux(file string, r io.Reader, o Options) (*Trace, error) {
	if o.PolluxDuration == nil {
		return nil, Errors{{Code: "no_profiles", File: file, Column: "batch_size",
			Message: "this trace states no run times: they follow from measurements in validation.csv and step_times.csv",
			Fix:     "lay validation.csv and step_times.csv beside it"}}
	}
	rows, err := readPolluxRows(file, r, o.IgnoreUnknown)
	if err != nil {
		return nil, err
	}
	t := &Trace{Timed: true}
	for _, row := range rows {
		d, err := o.PolluxDuration(row)
		if err != nil {
			t.Excluded.Count("no run time alone: "+err.Error(), 1)
			continue
		}
		t.Jobs = append(t.Jobs, cluster.Job{ID: row.VC() + "/" + row.Name, Name: row.Name, VC: row.VC(),
			Model: row.Application, Batch: fmt.Sprint(row.Batch), Workers: row.Replicas, Share: unit.WholeGPU,
			Submit: unit.Seconds(row.SubmitS), Duration: d})
	}
	return t, nil
}
