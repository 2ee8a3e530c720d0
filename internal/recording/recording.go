// Package recording turns recorded GPU memory into profiles: it holds what was measured as a step curve over time,
// finds the training iterations in it, and says how much of the memory comes and goes. Its sub-packages read the
// recordings of different tools.
package recording

import (
	"slices"
	"strconv"
	"time"

	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Clock says what the times of a recording are.
type Clock uint8

// What is known of time.
const (
	Real    Clock = iota // nanoseconds
	Even                 // samples that are taken to be evenly spaced: shares of time hold, durations do not
	Ordered              // only the order is known: neither shares nor durations hold
)

// Recording is the memory that one process, or all of one GPU, held over time.
type Recording struct {
	Device    string // which GPU, as the recording names it; "" when it names none
	Source    string // what recorded it: "pytorch snapshot", "pytorch profiler", ...
	Allocated Curve  // what was in use; of an outside measurement all that was taken from the GPU
	Reserved  Curve  // what the allocator held of the GPU; empty when unknown
	Marks     []Iteration
	Clock     Clock
	Outside   bool // measured from outside the process
	Relative  bool // memory is counted from the start of the recording: what was held before is missing

	Utilisation    *float64      // mean share of time that the GPU was busy, 0 to 1; nil when unknown
	SampleInterval time.Duration // of a sampled recording; 0 when every change was recorded
	Missing        int           // samples without a memory value
	SkippedLines   int           // lines that hold no sample

	Partial string   // why the recording is cut; "" when it is whole
	Notes   []string // what a reader of the result must know
}

// Bad is a fault of a recording that cannot be read. at is the byte offset where it shows, negative when it has none.
func Bad(file, code, message string, at int64, why, fix string) trace.Errors {
	e := &trace.Error{Code: code, Message: message, File: file, Why: why, Fix: fix}
	if at >= 0 {
		e.Value = "byte " + strconv.FormatInt(at, 10)
	}
	return trace.Errors{e}
}

// Progress is told how many bytes of a recording were read; its error ends the reading. nil tells nobody.
type Progress func(read int64) error

// Choose keeps the recordings of one device: all when device is empty. The fault lists the devices there are.
func Choose(file string, recordings []Recording, device string) ([]Recording, error) {
	if device == "" {
		return recordings, nil
	}
	var found []string
	for _, r := range recordings {
		if r.Device == device {
			return []Recording{r}, nil
		}
		if r.Device != "" {
			found = append(found, r.Device)
		}
	}
	fix := "leave --gpu out: the recording names no GPU"
	if len(found) > 0 {
		fix = "one of " + join(found)
	}
	return nil, Bad(file, "unknown_gpu", "no GPU "+strconv.Quote(device)+" in the recording", -1, "", fix)
}

// Iteration is one training iteration: [Start, End).
type Iteration struct {
	Start, End unit.Time
}

// Duration is how long it took.
func (i Iteration) Duration() time.Duration { return i.End.Sub(i.Start) }

// MaxMarks bounds the iterations that a reader keeps: 16 MiB. A million of them say all that more would.
const MaxMarks = 1 << 20

// SortMarks puts iterations in order and drops those that are empty or overlap the one before: a mark that stands
// twice, as on the CPU and the GPU lane of a trace.
func SortMarks(marks []Iteration) []Iteration {
	slices.SortStableFunc(marks, func(a, b Iteration) int {
		if c := cmpTime(a.Start, b.Start); c != 0 {
			return c
		}
		return cmpTime(a.End, b.End)
	})
	kept := marks[:0]
	for _, m := range marks {
		if m.End <= m.Start || len(kept) > 0 && m.Start < kept[len(kept)-1].End {
			continue
		}
		kept = append(kept, m)
	}
	return kept
}
