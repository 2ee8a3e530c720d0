package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// readPhilly reads Microsoft's Philly trace: the derived CSV, or the original cluster_job_log, which is a JSON array.
// Times are naive and taken as UTC.
func readPhilly(s *Stream, r *bufio.Reader) error {
	if firstByte(r) == '[' {
		return readPhillyLog(s, r)
	}
	return readLayout(s, r, phillyLayouts)
}

// phillyJob is one element of cluster_job_log.
type phillyJob struct {
	Status    string          `json:"status"`
	VC        string          `json:"vc"`
	ID        string          `json:"jobid"`
	User      string          `json:"user"`
	Submitted string          `json:"submitted_time"`
	Attempts  []phillyAttempt `json:"attempts"`
}

type phillyAttempt struct {
	Start  string `json:"start_time"`
	End    string `json:"end_time"`
	Detail []struct {
		IP   string   `json:"ip"`
		GPUs []string `json:"gpus"`
	} `json:"detail"`
}

const (
	reasonAttempt = "other attempt of a kept job"
	reasonBroken  = "no attempt with a start, an end after it, and GPUs"
)

// readPhillyLog reads the original log. A job is its last attempt that has a start, an end after it, and GPUs: that
// is the work a replay without the failures would do. Its other attempts are
// counted.
func readPhillyLog(s *Stream, r *bufio.Reader) error {
	if err := s.axis(true); err != nil {
		return err
	}
	b, ration := newBuffer(r)
	lines := &lineCounter{r: b}
	d := json.NewDecoder(lines)
	if _, err := d.Token(); err != nil {
		return s.jsonFault(err, d, lines)
	}
	var faults Errors
	var raw json.RawMessage // one job, its memory used again
	for len(faults) < maxErrors && !s.stopped && (s.Rows%ctxEvery != 0 || s.ctx.Err() == nil) {
		ration.left = maxPhillyJob
		if !d.More() {
			break
		}
		if err := d.Decode(&raw); err != nil {
			return s.jsonFault(err, d, lines)
		}
		start := d.InputOffset() - int64(len(raw))
		line := lines.at(start)
		var j phillyJob
		if err := json.Unmarshal(raw, &j); err != nil {
			var wrong *json.UnmarshalTypeError
			if !errors.As(err, &wrong) {
				return fmt.Errorf("read %s: job on line %d: %w", s.file, line, err)
			}
			faults = append(faults, &Error{Code: "wrong_type", File: s.file, Line: lines.at(start + wrong.Offset), Column: wrong.Field,
				Value: clean(wrong.Value), Message: fmt.Sprintf("%s is a %s, not a %s", wrong.Field, clean(wrong.Value), wrong.Type)})
			continue
		}
		s.Rows++
		s.phillyJob(&j, line)
	}
	switch {
	case len(faults) > 0:
		return faults
	case s.stopped || s.ctx.Err() != nil:
		return nil
	}
	if _, err := d.Token(); err != nil {
		return s.jsonFault(err, d, lines)
	}
	return nil
}

// maxPhillyJob bounds the bytes of one job of the log: the longest on record, of thousands of attempts, has under 1 MiB.
const maxPhillyJob = 16 << 20

func (s *Stream) phillyJob(p *phillyJob, line int) {
	j, attempts, reason := p.job()
	if reason == "" {
		if _, isNew := s.first(p.ID, line); !isNew {
			reason = reasonRepeated
		}
	}
	if reason != "" {
		s.exclude(reason)
		return
	}
	if attempts > 1 {
		s.extra += attempts - 1
		s.Excluded.Count(reasonAttempt, attempts-1)
	}
	j.VC, j.User = s.names.text(p.VC), s.names.text(p.User)
	s.keep(j)
}

// job is the last complete attempt and the number of attempts, or the reason why there is none.
func (p *phillyJob) job() (j cluster.Job, attempts int, reason string) {
	j = cluster.Job{ID: p.ID, Share: unit.WholeGPU}
	submitted, ok := phillyTime(p.Submitted)
	for _, a := range p.Attempts {
		start, startOK := phillyTime(a.Start)
		end, endOK := phillyTime(a.End)
		gpus := 0
		for _, d := range a.Detail {
			gpus += len(d.GPUs)
		}
		if startOK && endOK && !end.Before(start) && gpus > 0 && gpus <= maxWorkers && end.Sub(start).Seconds() <= maxSeconds {
			j.Workers, j.Duration = gpus, end.Sub(start)
		}
	}
	switch {
	case p.Status == "Running":
		reason = reasonRunning
	case len(p.Attempts) == 0:
		reason = reasonNoStart
	case j.Workers == 0:
		reason = reasonBroken
	case !ok:
		reason = reasonNoTime
	case p.ID == "":
		reason = "no jobid"
	}
	if ok {
		j.Submit = unit.Time(submitted.UnixNano())
	}
	return j, len(p.Attempts), reason
}

// phillyTime reads a time of the log. Absent ones are null, "" or "None"; some carry a zone name, which is ignored, as
// all are of one place.
func phillyTime(s string) (time.Time, bool) {
	if len(s) > len(time.DateTime) {
		s = s[:len(time.DateTime)]
	}
	t, err := time.Parse(time.DateTime, s)
	return t, err == nil && validDate(t)
}

func (s *Stream) jsonFault(err error, d *json.Decoder, lines *lineCounter) error {
	rest := make([]byte, 256) // the fault is past the blanks after the last job
	n, _ := d.Buffered().Read(rest)
	blanks := n - len(bytes.TrimLeft(rest[:n], " \t\r\n"))
	e := &Error{Code: "syntax", File: s.file, Line: lines.at(d.InputOffset() + int64(blanks))}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errLongRow):
		e.Code, e.Message = "long_row", fmt.Sprintf("a job is longer than %d MiB", maxPhillyJob>>20)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Code, e.Message, e.Fix = "truncated", "the JSON array ends before its closing bracket", "fetch the whole file"
	case errors.As(err, &syntax):
		e.Message = clean(syntax.Error())
	default:
		return fmt.Errorf("read %s near line %d: %w", s.file, e.Line, err)
	}
	return Errors{e}
}

// lineCounter remembers where the lines not yet asked for end, to name the line of an offset.
type lineCounter struct {
	r      io.Reader
	read   int64
	passed int     // line ends before the first of ends
	ends   []int64 // offsets of line ends at or after the last offset asked for
}

func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	return n, err
}

// at is the line of an offset, from 1. Offsets must not decrease.
func (l *lineCounter) at(offset int64) int {
	n := 0
	for n < len(l.ends) && l.ends[n] < offset {
		n++
	}
	l.passed += n
	l.ends = append(l.ends[:0], l.ends[n:]...)
	return l.passed + 1
}
