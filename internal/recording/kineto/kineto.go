// Package kineto reads traces of the PyTorch profiler that were taken with profile_memory=True: JSON in the form of
// Chrome traces, as an object with traceEvents or as a bare array. A trace is read as a stream of any size; of it only
// the memory curves and the marks of the iterations are kept.
package kineto

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/unit"
)

// Source names what these recordings come from.
const Source = "pytorch profiler"

// Read reads a trace: one recording for each GPU with memory events. A trace that is cut is used as far as it goes and
// marked partial; faults are trace.Errors that name the byte offset.
func Read(file string, r io.Reader, progress recording.Progress) ([]recording.Recording, error) {
	t := &events{scanner: scanner{r: bufio.NewReaderSize(r, 1<<16), hook: progress}, devices: map[int]*device{}}
	err := t.read()
	partial := ""
	var syntax *syntaxError
	switch {
	case errors.Is(err, errEnd) && t.inEvents:
		partial = fmt.Sprintf("the trace is cut at byte %d: what comes before is used", t.offset)
		if t.whole {
			partial = "" // a bare array may lack its last bracket
		}
	case errors.Is(err, errEnd):
		return nil, recording.Bad(file, "truncated", fmt.Sprintf("truncated at byte %d, before any event", t.offset), t.offset, "", "write or copy the trace again")
	case errors.As(err, &syntax):
		return nil, recording.Bad(file, "malformed", "bad JSON: "+syntax.Error(), syntax.offset, "",
			"mend that place, or write the trace again")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return t.recordings(file, partial)
}

// events is what was read so far.
type events struct {
	scanner
	devices  map[int]*device
	order    []int
	marks    []recording.Iteration
	gpuMarks []recording.Iteration // the same on the GPU's lane, for traces with no others
	begun    bool
	origin   float64 // us
	inEvents bool    // the events have begun
	whole    bool    // the text may end here
	infinite int     // events with a number that is not finite
	far      int     // events with a time or an amount beyond reason
	host     int     // memory events of the host
}

// read reads the trace to its end. Text after it, as of an appended file, is left alone.
func (t *events) read() error {
	if mark, err := t.r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = t.r.Discard(3)
		t.offset = 3
	}
	c, err := t.peek()
	if err != nil {
		return err
	}
	if c == '[' {
		return t.array(true)
	}
	return t.each(func(key string) error {
		if key != "traceEvents" {
			return t.skip()
		}
		return t.array(false)
	})
}

// array reads the array of events. After each whole event a bare array may end.
func (t *events) array(bare bool) error {
	t.inEvents = true
	t.whole = bare
	return t.each(func(string) error {
		t.whole = false
		if err := t.event(); err != nil {
			return err
		}
		t.whole = bare
		return nil
	})
}

// event is one entry of traceEvents, as far as it matters.
type event struct {
	name, category  string
	start, duration float64 // us
	args            args
}

type args struct {
	allocated, reserved, change, device, kind float64
}

// field is where the argument of that name belongs, nil when it does not matter.
func (a *args) field(key string) *float64 {
	switch key {
	case "Total Allocated":
		return &a.allocated
	case "Total Reserved":
		return &a.reserved
	case "Bytes":
		return &a.change
	case "Device Id":
		return &a.device
	case "Device Type":
		return &a.kind
	}
	return nil
}

func (t *events) event() error {
	c, err := t.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return t.skip()
	}
	unknown := math.NaN()
	e := event{start: unknown, duration: unknown, args: args{unknown, unknown, unknown, unknown, unknown}}
	infinite := false
	err = t.each(func(key string) error {
		var err error
		switch key {
		case "name":
			e.name, err = t.textOrSkip()
		case "cat":
			e.category, err = t.textOrSkip()
		case "ts":
			e.start, err = t.amount(&infinite)
		case "dur":
			e.duration, err = t.amount(&infinite)
		case "args":
			err = t.arguments(&e.args, &infinite)
		default:
			err = t.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	t.use(&e, infinite)
	return nil
}

func (t *events) textOrSkip() (string, error) {
	c, err := t.peek()
	if err != nil {
		return "", err
	}
	if c == '"' {
		return t.string()
	}
	return "", t.skip()
}

// amount is a number, NaN when it is none. infinite is set when the trace says NaN or Infinity.
func (t *events) amount(infinite *bool) (float64, error) {
	v, ok, err := t.number()
	if !ok {
		return math.NaN(), err
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		*infinite = true
	}
	return v, err
}

func (t *events) arguments(a *args, infinite *bool) error {
	c, err := t.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return t.skip()
	}
	return t.each(func(key string) error {
		field := a.field(key)
		if field == nil {
			return t.skip()
		}
		var err error
		*field, err = t.amount(infinite)
		return err
	})
}

// use takes a memory event or a mark.
func (t *events) use(e *event, infinite bool) {
	memory := e.name == "[memory]"
	if !memory && !strings.HasPrefix(e.name, "ProfilerStep#") {
		return
	}
	if infinite {
		t.infinite++
		return
	}
	at, ok := t.time(e.start)
	switch {
	case !ok:
		t.far++
	case memory:
		t.memory(at, &e.args)
	case e.duration > 0 && e.duration < farthest && len(t.marks)+len(t.gpuMarks) < recording.MaxMarks:
		mark := recording.Iteration{Start: at, End: at + unit.Time(math.Round(e.duration*1e3))}
		if e.category == "gpu_user_annotation" {
			t.gpuMarks = append(t.gpuMarks, mark)
		} else {
			t.marks = append(t.marks, mark)
		}
	}
}

// Bounds of what is believed: a trace of a year, in microseconds, and a pebibyte.
const (
	farthest = 366 * 24 * 3600 * 1e6
	most     = 1 << 50
)

func (t *events) time(us float64) (unit.Time, bool) {
	if math.IsNaN(us) || math.IsInf(us, 0) {
		return 0, false
	}
	if !t.begun {
		t.begun, t.origin = true, us
	}
	since := us - t.origin
	if math.Abs(since) > farthest {
		return 0, false
	}
	return unit.Time(math.Round(since * 1e3)), true
}

func (t *events) memory(at unit.Time, a *args) {
	if a.kind == 0 || a.device < 0 {
		t.host++
		return
	}
	number := 0
	if a.device >= 0 && a.device < 1<<16 {
		number = int(a.device)
	}
	d := t.devices[number]
	if d == nil {
		d = &device{}
		t.devices[number] = d
		t.order = append(t.order, number)
	}
	if !d.add(at, a) {
		t.far++
	}
}

// device is the memory of one GPU.
type device struct {
	total, reserved, summed recording.Builder
	sum                     float64
	before                  unit.Bytes // held before the first event
}

// add takes one event; false when it has no amount that can be believed.
func (d *device) add(at unit.Time, a *args) bool {
	used := false
	if a.allocated >= 0 && a.allocated <= most {
		if d.total.Points() == 0 && a.change <= a.allocated && a.allocated-a.change <= most {
			d.before = unit.Bytes(a.allocated - a.change)
		}
		d.total.Add(at, unit.Bytes(a.allocated))
		used = true
	}
	if a.reserved >= 0 && a.reserved <= most {
		d.reserved.Add(at, unit.Bytes(a.reserved))
	}
	if math.Abs(a.change) <= most && math.Abs(d.sum+a.change) <= most {
		d.sum += a.change
		if d.total.Points() == 0 {
			d.summed.Add(at, unit.Bytes(d.sum))
		}
		used = true
	}
	return used
}

func (d *device) recording() (recording.Recording, bool) {
	r := recording.Recording{Source: Source}
	var thinned bool
	switch {
	case d.total.Points() > 0:
		r.Allocated, thinned = d.total.Curve(0, 0)
	case d.summed.Points() > 0:
		r.Allocated, thinned = d.summed.Curve(0, 0)
		r.Relative = true
		r.Notes = append(r.Notes, "the trace has no totals: memory counts from its start, what was allocated before is missing")
	default:
		return r, false
	}
	if d.reserved.Points() > 0 {
		r.Reserved, _ = d.reserved.Curve(0, r.Allocated.End)
	}
	if thinned {
		r.Notes = append(r.Notes, "a long recording: neighbouring events are joined at the higher of their levels")
	}
	return r, true
}

func (t *events) recordings(file, partial string) ([]recording.Recording, error) {
	marks := recording.SortMarks(t.marks)
	if len(marks) == 0 {
		marks = recording.SortMarks(t.gpuMarks)
	}
	var out []recording.Recording
	for _, number := range t.order {
		r, ok := t.devices[number].recording()
		if !ok {
			continue
		}
		r.Device, r.Partial = strconv.Itoa(number), partial
		if len(marks) > 0 && marks[0].Start < r.Allocated.Start() && t.devices[number].before > 0 {
			r.Allocated.Points = slices.Insert(r.Allocated.Points, 0, recording.Point{At: marks[0].Start, Bytes: t.devices[number].before})
		}
		for _, m := range marks {
			if partial != "" && m.End > r.Allocated.End {
				continue // its end was cut off
			}
			if m.End > r.Allocated.Start() {
				r.Marks = append(r.Marks, m)
				r.Allocated.End = max(r.Allocated.End, m.End)
			}
		}
		r.Notes = append(r.Notes, t.notes()...)
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, t.nothing(file, partial)
	}
	return out, nil
}

func (t *events) nothing(file, partial string) error {
	message := "the trace holds no GPU memory events"
	if t.host > 0 {
		message += fmt.Sprintf(", %d of the host", t.host)
	}
	if partial != "" {
		message += "; " + partial
	}
	return recording.Bad(file, "no_events", message, -1, "the profiler records memory only when it is told to",
		"profile with profile_memory=True and on a GPU")
}

// notes says what was mended and left out.
func (t *events) notes() []string {
	var notes []string
	for i, what := range [mends]string{"backslashes that are not doubled", "control characters", "bytes that are not UTF-8"} {
		if t.mended[i] > 0 {
			notes = append(notes, fmt.Sprintf("mended in the trace: %s (%d)", what, t.mended[i]))
		}
	}
	if t.infinite > 0 {
		notes = append(notes, fmt.Sprintf("skipped %d events with NaN or Infinity", t.infinite))
	}
	if t.far > 0 {
		notes = append(notes, fmt.Sprintf("skipped %d events without a usable time or amount", t.far))
	}
	return notes
}
