package muri

import (
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// entry is what is known of one job's fate. Start and completion are kept exact beside the rounded outcome.
type entry struct {
	outcome     sim.Outcome
	jct         float64 // s
	begun, done bool
}

// recorder gathers the result of a loop.
type recorder struct {
	result  *Result
	entries []entry // by index in the caller's list
}

func newRecorder(jobs int) *recorder {
	return &recorder{result: &Result{}, entries: make([]entry, jobs)}
}

func (r *recorder) started(j *job, now float64) {
	if e := &r.entries[j.index]; !e.begun {
		e.begun = true
		e.outcome.Start = unit.Seconds(now)
	}
}

func (r *recorder) ended(j *job, now float64) {
	e := &r.entries[j.index]
	e.done, e.jct = true, now-j.submit
	e.outcome.Job = j.index
	e.outcome.Submit, e.outcome.End, e.outcome.Ended = unit.Seconds(j.submit), unit.Seconds(now), true
	e.outcome.Run = unit.Duration(j.executed)
	e.outcome.Standalone = !j.shared
	e.outcome.Slowdown = max(1, j.executed/j.alone)
	e.outcome.Preemptions, e.outcome.Migrations = j.preemptions, j.migrations
	r.result.Preemptions += j.preemptions
}

func (r *recorder) decided(now float64, inUse int, _ []*job) {
	r.result.Events++
	at, curve := unit.Seconds(now), r.result.Usage
	switch n := len(curve); {
	case n > 0 && curve[n-1].GPUs == inUse:
	case n > 0 && curve[n-1].At == at:
		curve[n-1].GPUs = inUse
	default:
		r.result.Usage = append(curve, sim.Usage{At: at, GPUs: inUse})
	}
}

// finish lists the jobs that ended.
func (r *recorder) finish() *Result {
	for _, e := range r.entries {
		if e.done {
			r.result.Outcomes = append(r.result.Outcomes, e.outcome)
			r.result.JCTs = append(r.result.JCTs, e.jct)
		}
	}
	return r.result
}
