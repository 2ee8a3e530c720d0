package trace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Reasons that several formats share; a reason is stable for programs that read it.
const (
	reasonOutside  = "outside --from/--to"
	reasonOtherVC  = "other virtual cluster"
	reasonNoGPU    = "no GPU"
	reasonNoStart  = "never started"
	reasonRunning  = "still running"
	reasonReversed = "ends before it begins"
	reasonNoTime   = "no valid submission time"
	reasonRepeated = "repeats an id"
)

// Stream reads a trace job by job in file order, for inputs larger than memory. The fields are final once the
// sequence of Jobs ended.
type Stream struct {
	Excluded Exclusions // rows that became no job
	Notes    []string   // what was assumed
	Rows     int        // rows read, the header apart
	Dated    bool       // Submit counts from 1970-01-01 UTC, not from the zero of the trace
	Timed    bool       // every job has a submission and a run time

	file    string
	format  format
	in      *bufio.Reader
	o       Options
	whole   bool // the caller keeps all jobs and applies SubmitAt and bounds in seconds itself
	ctx     context.Context
	yield   func(cluster.Job, error) bool
	stopped bool
	names   interner
	ids     map[uint64]int32
	kept    int
	merged  int // rows that joined another row's job
	extra   int // jobs in a row beyond its first

	found  bool     // a row was of the virtual cluster asked for
	others []string // the first virtual clusters that rows were of instead
}

// NewStream opens an input in one of Formats; a gzip-compressed one is inflated on the way. It reads no more than the
// first bytes.
func NewStream(format, file string, r io.Reader, o Options) (*Stream, error) {
	f, err := findFormat(format, file)
	if err != nil {
		return nil, err
	}
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	return &Stream{file: file, format: f, in: in, o: o, Timed: true, names: interner{}, ids: map[uint64]int32{}}, nil
}

// Jobs is the jobs in file order (sacct: after the last row, for rows of one job may stand anywhere). A last element
// with an error ends the sequence when the input has faults (Errors), r fails, or ctx ends. It can be used once.
//
// Submit counts as Dated says. Bounds in seconds need the earliest job of a trace in dates and are an error here.
func (s *Stream) Jobs(ctx context.Context) iter.Seq2[cluster.Job, error] {
	return func(yield func(cluster.Job, error) bool) {
		s.ctx, s.yield = ctx, yield
		err := s.format.read(s, s.in)
		if !s.stopped {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(cluster.Job{}, err)
			}
		}
	}
}

// ctxEvery is how many rows pass between two looks at the context: few enough to end within a millisecond.
const ctxEvery = 64

// next advances a table unless the caller has had enough or the context ended.
func (s *Stream) next(t *Table) bool {
	if s.stopped || t.count%ctxEvery == 0 && s.ctx.Err() != nil || !t.Next() {
		return false
	}
	s.Rows++
	return true
}

// exclude counts one row that becomes no job.
func (s *Stream) exclude(reason string) { s.Excluded.Count(reason, 1) }

// keep hands a job to the caller unless an option takes it out. It fills floor and model where the row has none.
func (s *Stream) keep(j cluster.Job) {
	switch {
	case s.stopped:
		return
	case s.ofOtherVC(j.VC):
		return
	case s.outside(j.Submit):
		s.exclude(reasonOutside)
		return
	}
	if j.Floor == 0 {
		j.Floor = s.o.floor()
	}
	s.o.Models.apply(&j)
	if s.o.SubmitAt != nil && !s.whole {
		j.Submit = *s.o.SubmitAt
	}
	s.kept++
	s.stopped = !s.yield(j, nil)
}

// ofOtherVC says whether a row of a virtual cluster is not asked for, and counts it.
func (s *Stream) ofOtherVC(vc string) bool {
	if s.o.VC == "" {
		return false
	}
	if vc == s.o.VC {
		s.found = true
		return false
	}
	if len(s.others) < namedVCs && !slices.Contains(s.others, vc) {
		s.others = append(s.others, strings.Clone(vc))
	}
	s.exclude(reasonOtherVC)
	return true
}

// namedVCs is how many virtual clusters an error about a wrong one names.
const namedVCs = 12

// missingVC is the error of a virtual cluster that no row was of, or nil.
func (s *Stream) missingVC() error {
	if s.o.VC == "" || s.found || len(s.others) == 0 {
		return nil
	}
	return Errors{{Code: "unknown_vc", File: s.file, Column: "--vc", Value: clean(s.o.VC),
		Message: fmt.Sprintf("no row is of virtual cluster %q", clean(s.o.VC)), Fix: "one of " + clean(strings.Join(s.others, ", "))}}
}

func (s *Stream) outside(at unit.Time) bool {
	from, to := s.o.From, s.o.To
	return s.measures(from) && at < from.at() || s.measures(to) && at >= to.at()
}

// measures says whether a bound is on the time axis of this trace.
func (s *Stream) measures(b Bound) bool {
	return b.kind == dateBound && s.Dated || b.kind == secondsBound && !s.Dated
}

// axis states which times the trace has and holds the bounds against it. Readers call it before the first keep.
func (s *Stream) axis(dated bool) error {
	s.Dated = dated
	for _, b := range []struct {
		flag  string
		bound Bound
	}{{"--from", s.o.From}, {"--to", s.o.To}} {
		switch {
		case b.bound.kind == dateBound && !dated:
			return Errors{{Code: "bad_bound", File: s.file, Column: b.flag, Value: b.bound.date.Format("2006-01-02 15:04:05"),
				Message: b.flag + " is a date, but the times of this trace are seconds", Fix: "give seconds, such as 86400"}}
		case b.bound.kind == secondsBound && dated && !s.whole:
			return Errors{{Code: "bad_bound", File: s.file, Column: b.flag, Value: fmt.Sprint(b.bound.seconds.Seconds()),
				Message: b.flag + " is seconds, but the times of this trace are dates", Fix: "give a date, such as 2017-10-01"}}
		}
	}
	return nil
}

// first says whether an id is new, and else on which line it stood.
func (s *Stream) first(id string, line int) (at int, isNew bool) {
	h := hash(id)
	if at, ok := s.ids[h]; ok {
		return int(at), false
	}
	s.ids[h] = int32(min(line, 1<<31-1))
	return line, true
}

// hash is FNV-1a of 64 bits. Ids are compared by it alone, which costs 12 bytes a job whatever the length of ids: a
// false alarm has odds of n*n/2^65, one in ten million for a million jobs.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// interner keeps one copy of each repeated text, and frees kept texts of the row that they were cut from.
type interner map[string]string

// maxNames bounds an interner: beyond it texts hardly repeat and a copy each is cheaper.
const maxNames = 1 << 13

func (n interner) text(s string) string {
	if known, ok := n[s]; ok {
		return known
	}
	s = strings.Clone(s)
	if len(n) < maxNames {
		n[s] = s
	}
	return s
}

// readWhole makes a streamed format of a reader that returns all its jobs at once.
func readWhole(read func(string, io.Reader, Options) (*Trace, error)) func(*Stream, *bufio.Reader) error {
	return func(s *Stream, r *bufio.Reader) error {
		if err := s.axis(false); err != nil {
			return err
		}
		o := s.o
		o.From, o.To, o.VC, o.SubmitAt = Bound{}, Bound{}, "", nil // keep applies them
		t, err := read(s.file, untilDone{s.ctx, r}, o)
		if err != nil {
			return err
		}
		s.Excluded, s.Notes, s.Rows = t.Excluded, t.Notes, len(t.Jobs)
		for _, x := range t.Excluded {
			s.Rows += x.Rows
		}
		for _, j := range t.Jobs {
			if s.stopped || s.ctx.Err() != nil {
				break
			}
			s.keep(j)
		}
		return nil
	}
}

// untilDone is a reader that fails once its context ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
