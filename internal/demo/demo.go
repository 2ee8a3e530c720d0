// Package demo runs one group of training jobs on emulated GPUs in several ways, with real processes, and measures what
// each way gives: a GPU for each job, the driver's time slices without weft, and weft.
package demo

import (
	"context"
	"fmt"
	"math"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/unit"
)

// Mode is a way to run a group.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive" // each job has a GPU of its own; jobs wait in order of submission
	Timeslice Mode = "timeslice" // all jobs at once, in turn over the GPUs, by the driver's time slices; no weft
	Weft      Mode = "weft"      // submitted to weft, all at once
)

// Modes are all modes, in the order in which they run.
func Modes() []Mode { return []Mode{Exclusive, Timeslice, Weft} }

// Setup is what a group runs on, the same in each mode.
type Setup struct {
	Weft     string       // the weft binary
	Programs string       // folder of weft-train and of emu/libcuda.so.1
	GPUs     []emugpu.GPU // emulated, all alike
	Memory   unit.Bytes   // of each, as weft up --gpu-memory takes it
	Group    []Job        // in order of submission
	// Told is called with what is done so far: jobs that ended, and the share of all iterations. It may be called by several
	// goroutines, one at a time. Nil is not called.
	Told func(jobs int, share float64)
}

// Run is what happened in one mode.
type Run struct {
	Mode Mode
	Jobs []Outcome       // of the group's jobs, in its order
	Busy []time.Duration // time with a kernel running, of each GPU
}

// Outcome is what became of a job. It ended, after all of its iterations.
type Outcome struct {
	Running time.Duration // of all attempts together; waiting, starting and being restarted are not in it
	OOM     int           // attempts that ended for want of memory
	Stays   []Stay        // its attempts, in order
}

// Stay is one attempt of a job on a GPU, as times since the first of the group.
type Stay struct {
	GPU      int
	From, To time.Duration
}

// Figures are what a mode gives; docs/demo.md defines each.
type Figures struct {
	Mode        Mode    `json:"mode"`
	Completion  float64 `json:"completion_s"`
	Utilisation float64 `json:"utilisation"`
	HighLoss    float64 `json:"high_loss"`
	LowRate     float64 `json:"low_rate"`
	Broken      int     `json:"broken_floors"`
	OOM         int     `json:"oom"`
	GPUs        int     `json:"gpus"`
}

// Execute runs the group in a mode.
func Execute(ctx context.Context, mode Mode, s Setup) (Run, error) {
	var run Run
	var err error
	switch mode {
	case Exclusive:
		run, err = runExclusive(ctx, s)
	case Timeslice:
		run, err = runTimeslice(ctx, s)
	case Weft:
		run, err = runWeft(ctx, s)
	default:
		return run, fmt.Errorf("no mode %q", mode)
	}
	run.Mode = mode
	run.begin()
	return run, err
}

// begin makes the first start of a job the origin of time.
func (r *Run) begin() {
	first := time.Duration(math.MaxInt64)
	for _, o := range r.Jobs {
		for _, s := range o.Stays {
			first = min(first, s.From)
		}
	}
	for _, o := range r.Jobs {
		for i := range o.Stays {
			o.Stays[i].From -= first
			o.Stays[i].To -= first
		}
	}
}

// Rate is the rate of a job while it ran, as a share of its rate alone.
func (r *Run) Rate(job int, alone *Run) float64 {
	return float64(alone.Jobs[job].Running) / float64(r.Jobs[job].Running)
}

// Below says whether a job's rate was below its floor.
func (r *Run) Below(group []Job, job int, alone *Run) bool {
	return r.Rate(job, alone) < group[job].Floor
}

// Completion is the time from the first start to the last end.
func (r *Run) Completion() time.Duration {
	var last time.Duration
	for _, o := range r.Jobs {
		for _, s := range o.Stays {
			last = max(last, s.To)
		}
	}
	return last
}

// Measure makes the figures of a run beside those of each job alone.
func Measure(group []Job, r, alone *Run) Figures {
	f := Figures{Mode: r.Mode, Completion: r.Completion().Seconds(), GPUs: r.gpus()}
	var high, low mean
	for i, j := range group {
		rate := r.Rate(i, alone)
		switch j.Class {
		case box.Guaranteed:
			high.add(rate)
		case box.BestEffort:
			low.add(rate)
		}
		if r.Below(group, i, alone) {
			f.Broken++
		}
		f.OOM += r.Jobs[i].OOM
	}
	f.HighLoss, f.LowRate = 1-high.value(), low.value()
	f.Utilisation = r.utilisation()
	return f
}

// mean gathers values.
type mean struct {
	sum   float64
	count int
}

func (m *mean) add(v float64) { m.sum += v; m.count++ }

// value is the mean; of nothing it is 1, as if nothing was lost.
func (m *mean) value() float64 {
	if m.count == 0 {
		return 1
	}
	return m.sum / float64(m.count)
}

// utilisation is the share of the time from the first start to the last end in which a kernel ran, averaged over the GPUs
// that were used.
func (r *Run) utilisation() float64 {
	used := map[int]bool{}
	for _, o := range r.Jobs {
		for _, s := range o.Stays {
			used[s.GPU] = true
		}
	}
	var busy time.Duration
	for gpu := range used {
		busy += r.Busy[gpu]
	}
	whole := float64(len(used)) * r.Completion().Seconds()
	if whole == 0 {
		return 0
	}
	return busy.Seconds() / whole
}

// gpus is how many GPUs were in use at once, at most.
func (r *Run) gpus() int {
	most := 0
	for _, step := range r.Usage() {
		most = max(most, step.GPUs)
	}
	return most
}
