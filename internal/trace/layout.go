package trace

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// layout names the columns of a published trace whose rows are jobs with a submission and a run time. "" is a column
// that it does not have.
type layout struct {
	id, submit, duration, workers, model, batch, vc string
	more                                            []string // columns without a use here
	dated                                           bool     // submissions are dates, else seconds
}

func (l layout) required() []string {
	return slices.DeleteFunc([]string{l.id, l.vc, l.submit, l.duration, l.workers, l.model, l.batch},
		func(c string) bool { return c == "" })
}

// The layouts, by format. Times are whole seconds or naive dates.
var (
	phillyLayouts = []layout{{submit: "timestamp", duration: "duration", workers: "num_gpus", vc: "cluster", dated: true}}

	// itp is Microsoft's ITP trace and the files that ElasticFlow derived from it (and from Philly) with models.
	itpLayouts = []layout{
		{vc: "cluster", submit: "submission_time", duration: "duration", workers: "num_gpu"},
		{id: "job_id", submit: "submission_time", duration: "duration", workers: "num_gpu", model: "model_name",
			batch: "batch_size", more: []string{"num_iteration", "deadline"}},
		{id: "job_id", submit: "submit_time", duration: "duration", workers: "num_gpu", model: "model_name",
			batch: "batch_size", more: []string{"iteration", "ddl", "real_iteration", "real_duration"}},
	}

	tiresiasLayouts = []layout{{id: "job_id", submit: "submit_time", duration: "duration", workers: "num_gpu",
		model: "model_name", more: []string{"iterations", "interval"}}}
)

// readITP reads the format itp.
func readITP(s *Stream, r *bufio.Reader) error { return readLayout(s, r, itpLayouts) }

// readTiresias reads the job files of the Tiresias simulator (Gu et al., NSDI 2019). Its times are seconds.
func readTiresias(s *Stream, r *bufio.Reader) error { return readLayout(s, r, tiresiasLayouts) }

// readLayout reads the first of the layouts whose columns are all there; without one the first names what is missing.
// A trace without an id column numbers its rows from 1.
func readLayout(s *Stream, r *bufio.Reader, layouts []layout) error {
	t, err := openTable(s.file, newCSVRows(r, 0), layouts[0].required())
	if err != nil {
		return err
	}
	l := layouts[0]
	for _, other := range layouts {
		if !slices.ContainsFunc(other.required(), func(c string) bool { return !slices.Contains(t.header, c) }) {
			l = other
			break
		}
	}
	if err := t.check(Columns{l.required(), l.more, s.o.IgnoreUnknown, 0}); err != nil {
		return err
	}
	if err := s.axis(l.dated); err != nil {
		return err
	}
	for s.next(t) {
		s.layoutRow(t, l)
	}
	return t.Err()
}

// maxWorkers is the largest gang: a hundred thousand GPUs is above any cluster on record.
const maxWorkers = 100_000

func (s *Stream) layoutRow(t *Table, l layout) {
	full := cellsFilled(t, []string{l.submit, l.duration, l.workers})
	j := cluster.Job{
		Workers: t.Int(l.workers, 0, maxWorkers, 0), Share: unit.WholeGPU,
		Duration: t.span(l.duration),
	}
	if l.dated {
		j.Submit = t.date(l.submit)
	} else {
		j.Submit = t.instant(l.submit)
	}
	if !full || len(t.errs) > 0 {
		return
	}
	if j.Workers == 0 {
		s.exclude(reasonNoGPU)
		return
	}
	if j.ID = strings.Clone(t.Text(l.id)); l.id == "" {
		j.ID = strconv.Itoa(s.Rows)
	} else if !s.idOf(t, l.id) {
		return
	}
	j.VC, j.Model, j.Batch = s.names.text(t.Text(l.vc)), s.names.text(t.Text(l.model)), s.names.text(t.Text(l.batch))
	s.keep(j)
}

// idOf holds the id in a column: an empty one is a fault, and a row that repeats one is counted as excluded.
func (s *Stream) idOf(t *Table, column string) bool {
	id := t.Text(column)
	if id == "" {
		t.Fault(column, "empty_cell", column+" is empty", "", "give every job an id")
		return false
	}
	if _, isNew := s.first(id, t.line); !isNew {
		s.exclude(reasonRepeated)
		return false
	}
	return true
}

// date is the cell as a naive date, taken as UTC: nanoseconds since 1970.
func (t *Table) date(column string) unit.Time {
	text := t.Text(column)
	if text == "" {
		return 0
	}
	at, err := time.Parse(time.DateTime, text)
	if err != nil || !validDate(at) {
		t.Fault(column, "not_a_date", fmt.Sprintf("%s %s is not a date", column, clean(text)), "",
			"write it as 2017-10-01 12:00:00")
		return 0
	}
	return unit.Time(at.UnixNano())
}
