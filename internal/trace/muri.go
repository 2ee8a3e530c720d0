package trace

import (
	"fmt"
	"io"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// MuriJob is one row of a trace of the Muri simulator (Zhao et al., SIGCOMM 2022; repository Rivendile/Muri). Times
// are in milliseconds, as in the file.
type MuriJob struct {
	Line        int // of the file, for messages
	ID          string
	Model       string
	Batch       string
	GPUs        int
	SubmitMS    float64
	Iterations  float64    // a whole number
	IterationMS float64    // of one iteration, running alone
	DurationMS  float64    // run time the trace was made from; iterations times iteration time within a second
	StageMS     [3]float64 // of one iteration on each of the three resources it uses in turn; their sum need not be IterationMS
	// Opportunistic is the trace's priority 1: the job may run on GPUs that guaranteed jobs (priority 0) use.
	Opportunistic bool
}

// Bounds of a believable row; beyond them a cell is a slip of unit or column, and virtual time would saturate.
const (
	muriMaxMS         = maxSeconds * 1000
	muriMaxIterations = 1 << 40
	muriLeastMS       = 1e-6 // a nanosecond: nothing shorter is an iteration
)

// muriRequired are the columns the simulation needs.
var muriRequired = []string{"job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time",
	"resource_time_0", "resource_time_1", "resource_time_2", "priority"}

// muriOptional are the trace's other columns. Without duration the run time is iterations times iteration_time.
var muriOptional = []string{"batch_size", "duration", "interval"}

// ReadMuri reads a Muri trace in file order. Every fault of the text is in the returned Errors: an empty or
// doubled id, a cell that is missing, not a number, or out of range. An empty list is not an error.
func ReadMuri(file string, r io.Reader) ([]MuriJob, error) {
	return readMuriRows(file, r, false)
}

func readMuriRows(file string, r io.Reader, ignoreUnknown bool) ([]MuriJob, error) {
	t, err := NewTable(file, r, Columns{Required: muriRequired, Optional: muriOptional, IgnoreUnknown: ignoreUnknown})
	if err != nil {
		return nil, err
	}
	var jobs []MuriJob
	lines := map[string]int{}
	for t.Next() {
		if !cellsFilled(t, muriRequired) {
			continue
		}
		j := muriRow(t)
		if first, twice := lines[j.ID]; twice {
			t.Fault("job_id", "double_id", fmt.Sprintf("job_id %q stands twice; first on line %d", j.ID, first), "",
				"give every job an id of its own")
		}
		lines[j.ID] = j.Line
		jobs = append(jobs, j)
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	return jobs, nil
}

func muriRow(t *Table) MuriJob {
	j := MuriJob{
		Line:        t.Line(),
		ID:          strings.Clone(t.Text("job_id")),
		Model:       strings.Clone(t.Text("model_name")),
		Batch:       strings.Clone(t.Text("batch_size")),
		GPUs:        t.Int("num_gpu", 1, maxWorkers, 1),
		SubmitMS:    t.Float("submit_time", 0, muriMaxMS, 0),
		Iterations:  float64(t.Int("iterations", 1, muriMaxIterations, 1)),
		IterationMS: t.Float("iteration_time", muriLeastMS, muriMaxMS, 1),
	}
	for i, column := range [...]string{"resource_time_0", "resource_time_1", "resource_time_2"} {
		j.StageMS[i] = t.Float(column, 0, muriMaxMS, 0)
	}
	j.Opportunistic = t.Int("priority", 0, 1, 0) == 1
	alone := j.Iterations * j.IterationMS
	if alone > muriMaxMS {
		t.Fault("iterations", "out_of_range", fmt.Sprintf("%g iterations of %g ms are more than %g ms",
			j.Iterations, j.IterationMS, muriMaxMS), "no job runs for a century", "check the unit of iteration_time (ms)")
	}
	j.DurationMS = t.Float("duration", muriLeastMS, muriMaxMS, alone)
	return j
}

// readMuri makes jobs of a Muri trace, for weft's own rules: the priority column is the class, guaranteed or best
// effort.
func readMuri(file string, r io.Reader, o Options) (*Trace, error) {
	rows, err := readMuriRows(file, r, o.IgnoreUnknown)
	if err != nil {
		return nil, err
	}
	t := &Trace{Timed: true}
	for _, row := range rows {
		j := cluster.Job{ID: row.ID, Model: row.Model, Batch: row.Batch, Workers: row.GPUs, Share: unit.WholeGPU,
			Class: cluster.Guaranteed, Submit: unit.Seconds(row.SubmitMS / 1000), Duration: seconds(row.DurationMS / 1000)}
		if row.Opportunistic {
			j.Class = cluster.BestEffort
		}
		t.Jobs = append(t.Jobs, j)
	}
	return t, nil
}

// cellsFilled records a fault for each of the columns that is empty in the current row, and says whether none is.
func cellsFilled(t *Table, columns []string) bool {
	full := true
	for _, column := range columns {
		if t.Text(column) == "" {
			t.Fault(column, "empty_cell", column+" is empty", "", "fill the cell or remove the row")
			full = false
		}
	}
	return full
}
