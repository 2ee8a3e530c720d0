package muri

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/trace"
)

// job is the state of one job in the loop. Times are in seconds.
type job struct {
	index         int // in the caller's list
	rank          int // in submit order, ties in file order
	gpus          int
	opportunistic bool
	submit        float64
	iteration     float64 // time of one iteration alone
	stage         [3]float64
	overhead      float64

	remaining float64 // iterations
	executed  float64 // time spent running
	pace      float64 // time of one iteration now: iteration, or more where AntMan shares GPUs
	key       float64 // SRTF, SRSF: order in the list
	queue     int     // Tiresias
	nodes     []int   // SRTF, SRSF: where it runs; AntMan: the node a guaranteed job gathers on
	held      []int   // AntMan: GPUs held

	alone                   float64 // time of all iterations alone
	preemptions, migrations int
	shared                  bool // a GPU with another job, ever

	running, wasRunning, done bool
}

// iterationScale stretches the trace's iteration times, as the published simulator does. It is a variable because
// constant arithmetic is exact in Go and would not give the double-precision product.
var iterationScale = 1.015

// progress moves a running job on from one event to the next. The overhead is charged in every such interval, also
// to a job that was not interrupted, as the published simulator does. Here and in execute the order of the operations
// is that simulator's too: an interval shorter than the overhead carries the last bit of other events' times into a
// job's end, and over thousands of events that bit grows to seconds.
func (j *job) progress(last, now float64) {
	j.remaining -= max(now-last-j.overhead, 0) / j.pace
	j.execute(last, now)
}

// execute counts the time from one event to the next as run.
func (j *job) execute(last, now float64) { j.executed = j.executed + now - last }

// newJobs converts rows to jobs by submit time, ties in file order. skip holds rows that are left out.
func newJobs(rows []trace.MuriJob, skip map[int]bool) ([]*job, error) {
	jobs := make([]*job, 0, len(rows))
	for i, row := range rows {
		if skip[i] {
			continue
		}
		seconds, err := overhead(row)
		if err != nil {
			return nil, err
		}
		j := &job{index: i, gpus: row.GPUs, opportunistic: row.Opportunistic, overhead: seconds,
			submit: row.SubmitMS / 1000, iteration: float64(row.IterationMS*iterationScale) / 1000,
			remaining: row.Iterations}
		for k, ms := range row.StageMS {
			j.stage[k] = ms / 1000
		}
		j.pace = j.iteration
		j.alone = j.remaining * j.iteration
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(a.submit, b.submit) })
	for rank, j := range jobs {
		j.rank = rank
	}
	return jobs, nil
}
