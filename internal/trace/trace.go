// Package trace reads recorded jobs: logs of clusters (Slurm's sacct, Philly, openb), the traces that simulators of
// the literature were published with, and the project's own JOBS.csv. Every reader streams its input, names each
// fault by file, line, column and value, and counts by reason each row that it does not turn into a job.
package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Trace is the jobs of one input, sorted by submission and, within one instant, in file order.
type Trace struct {
	Jobs     []cluster.Job
	Excluded Exclusions // rows that became no job
	Notes    []string   // what was assumed, for the reader of a result

	// Origin is the date of Submit 0, the earliest kept job. It is zero for a trace in seconds, whose Submit counts
	// from the trace's own zero.
	Origin time.Time

	// Timed says that the input has a submission and a run time for every job. JOBS.csv may come without.
	Timed bool
}

// Read reads all jobs of an input in one of Formats. Memory is that of the kept jobs and one row; time is O(n) for an
// input sorted by submission, else O(n log n).
//
// When ctx ends, the jobs read so far are returned with ctx.Err(), so that a caller may go on and mark its result
// partial. A fault of the input gives Errors and no trace; a failure of r is returned wrapped.
func Read(ctx context.Context, format, file string, r io.Reader, o Options) (*Trace, error) {
	s, err := NewStream(format, file, r, o)
	if err != nil {
		return nil, err
	}
	s.whole = true
	var jobs chunks
	var failure error
	for job, err := range s.Jobs(ctx) {
		if err != nil {
			failure = err
			break
		}
		jobs.add(job)
	}
	if failure != nil && (ctx.Err() == nil || !errors.Is(failure, ctx.Err())) {
		return nil, failure
	}
	if err := s.missingVC(); err != nil && failure == nil {
		return nil, err
	}
	t := &Trace{Jobs: slices.Concat(jobs...)}
	t.settle(s)
	return t, failure
}

// chunks gathers jobs without moving them as they grow, for a job is large: 82,247 of them are 19 MB.
type chunks [][]cluster.Job

// Chunks double from the first to the largest number of jobs.
const (
	firstChunk = 64
	chunk      = 4096
)

func (c *chunks) add(j cluster.Job) {
	last := len(*c) - 1
	if last < 0 || len((*c)[last]) == cap((*c)[last]) {
		*c = append(*c, make([]cluster.Job, 0, min(chunk, firstChunk<<min(len(*c), 6))))
		last++
	}
	(*c)[last] = append((*c)[last], j)
}

// settle does what needs all jobs: origin, bounds in seconds of a trace in dates, order, and the notes.
func (t *Trace) settle(s *Stream) {
	if s.Dated {
		t.cut(s)
		t.rebase()
	}
	if s.o.SubmitAt != nil {
		for i := range t.Jobs {
			t.Jobs[i].Submit = *s.o.SubmitAt
		}
	}
	sortJobs(t.Jobs)
	t.Excluded, t.Timed = s.Excluded, s.Timed
	t.Notes = append(s.Notes, s.o.Models.notes()...)
	n := nameless(t.Jobs)
	switch {
	case n == 0:
	case s.o.Draw != nil:
		draw(t.Jobs, s.o.Draw)
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d jobs name no model: drawn at random", n, len(t.Jobs)))
	default:
		t.Notes = append(t.Notes, fmt.Sprintf(
			"%d of %d jobs name no model: not shared; add a \"model\" column or a map with --models", n, len(t.Jobs)))
	}
}

// draw names the models of jobs without one.
func draw(jobs []cluster.Job, next func() (model, batch string)) {
	for i := range jobs {
		if jobs[i].Model == "" {
			jobs[i].Model, jobs[i].Batch = next()
		}
	}
}

// sortJobs is a stable sort by submission. It moves each job at most once, for jobs are large.
func sortJobs(jobs []cluster.Job) {
	if sorted(jobs) {
		return
	}
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(jobs[a].Submit, jobs[b].Submit), cmp.Compare(a, b))
	})
	moved := make([]cluster.Job, len(jobs))
	for to, from := range order {
		moved[to] = jobs[from]
	}
	copy(jobs, moved)
}

func sorted(jobs []cluster.Job) bool {
	for i := 1; i < len(jobs); i++ {
		if jobs[i].Submit < jobs[i-1].Submit {
			return false
		}
	}
	return true
}

// cut applies bounds in seconds to a trace in dates: they count from its earliest job.
func (t *Trace) cut(s *Stream) {
	if s.o.From.kind != secondsBound && s.o.To.kind != secondsBound {
		return
	}
	zero, kept := earliest(t.Jobs), t.Jobs[:0]
	for _, j := range t.Jobs {
		at := j.Submit - zero
		if s.o.From.kind == secondsBound && at < s.o.From.seconds || s.o.To.kind == secondsBound && at >= s.o.To.seconds {
			s.Excluded.Count(reasonOutside, 1)
			continue
		}
		kept = append(kept, j)
	}
	clear(t.Jobs[len(kept):])
	t.Jobs = kept
}

// rebase counts submissions from the earliest.
func (t *Trace) rebase() {
	if len(t.Jobs) == 0 {
		return
	}
	zero := earliest(t.Jobs)
	t.Origin = time.Unix(0, int64(zero)).UTC()
	for i := range t.Jobs {
		t.Jobs[i].Submit -= zero
	}
}

func earliest(jobs []cluster.Job) unit.Time {
	first := unit.Never
	for i := range jobs {
		first = min(first, jobs[i].Submit)
	}
	return first
}

func nameless(jobs []cluster.Job) int {
	n := 0
	for i := range jobs {
		if jobs[i].Model == "" {
			n++
		}
	}
	return n
}

// seconds is a number of seconds as a run time.
func seconds(s float64) time.Duration { return unit.Duration(s) }
