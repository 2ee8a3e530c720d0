package sim

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// engine replays one part.
type engine struct {
	part
	order       policy.Order
	placer      policy.Placer
	rater       policy.Rater    // nil when jobs do not slow each other down
	retaker     policy.Retaker  // nil when the placer is none
	fitter      policy.Fitter   // nil when the placer is none
	adjuster    policy.Adjuster // nil when the placer moves nobody
	due         unit.Time       // when the adjuster is to be called at the latest
	restartCost time.Duration
	line        line
	progress    *progress
	record      bool

	now       unit.Time
	state     []state
	arrived   int // jobs submitted so far
	events    events
	occupancy occupancy
	result    tally
	onRate    func(job int, rate float64)
	onMove    func(job int, slots []policy.Slot, pause time.Duration)
	err       error
}

// line is the waiting jobs and the rule by which they get GPUs.
type line interface {
	// add puts a job at its place among the waiting.
	add(job int32)
	// gone says that a running job ended; moved, that it went to another queue; freed, that running jobs may have made
	// room by going to other GPUs.
	gone(job int32)
	moved(job int32)
	freed()
	// serve gives GPUs to whoever is to have them now.
	serve()
}

// tally is what one part contributes to a Result, besides the outcomes.
type tally struct {
	events  int
	partial bool
	refused []Refusal
	spans   []Span
}

func newEngine(cfg Config, p part, placer policy.Placer, progress *progress) *engine {
	e := &engine{part: p, order: cfg.Order, placer: placer, restartCost: cfg.RestartCost, record: cfg.Spans,
		progress: progress, state: make([]state, len(p.jobs)), events: newEvents(len(p.jobs)),
		occupancy: newOccupancy(p.cluster, len(p.jobs))}
	e.rater, _ = placer.(policy.Rater)
	e.retaker, _ = placer.(policy.Retaker)
	e.fitter, _ = placer.(policy.Fitter)
	e.adjuster, _ = placer.(policy.Adjuster)
	e.onRate, e.onMove, e.due = e.takeRate, e.takeMove, unit.Never
	if cfg.Order.Preemptive {
		e.line = newPreemptiveLine(e)
	} else {
		e.line = &strictLine{engine: e}
	}
	if len(p.jobs) > 0 {
		e.now = p.jobs[0].Submit
		e.occupancy.now = e.now
	}
	return e
}

// run replays to the end, or until done is closed.
func (e *engine) run(done <-chan struct{}) error {
	for e.err == nil {
		at := e.events.next()
		if e.arrived < len(e.jobs) {
			at = min(at, e.jobs[e.arrived].Submit)
		}
		if at == unit.Never {
			break
		}
		at = min(at, e.due)
		select {
		case <-done:
			e.result.partial = true
			e.suspend()
			return nil
		default:
		}
		e.now = at
		e.occupancy.pass(at)
		e.endJobs()
		e.submitJobs()
		if e.adjuster != nil {
			e.adjust()
		}
		e.line.serve()
		if e.rater != nil {
			e.rater.Rates(e.onRate)
		}
	}
	if e.err == nil && len(e.events.heap) > 0 {
		return fmt.Errorf("job %d ends beyond virtual time", e.index[e.events.heap[0].job])
	}
	e.occupancy.note()
	return e.err
}

// endJobs handles all events of this instant.
func (e *engine) endJobs() {
	for e.events.next() == e.now {
		job := e.events.heap[0].job
		s := &e.state[job]
		e.advance(job)
		if s.end > e.now {
			s.queue++
			s.since = e.now
			e.line.moved(job)
			e.schedule(job)
			continue
		}
		e.events.remove(job)
		s.remaining, s.ended = 0, true
		e.vacate(job)
		e.placer.Release(int(job), s.slots)
		s.slots = nil
		e.line.gone(job)
		e.result.events++
		e.progress.step()
	}
}

// submitJobs handles all submissions of this instant.
func (e *engine) submitJobs() {
	for ; e.arrived < len(e.jobs) && e.jobs[e.arrived].Submit == e.now; e.arrived++ {
		job := int32(e.arrived)
		s := &e.state[job]
		s.remaining, s.since, s.last = e.jobs[job].Duration, e.now, e.now
		if reason := e.misfit(job); reason != "" {
			e.refuse(job, reason)
			continue
		}
		e.result.events++
		e.line.add(job)
	}
}

// adjust lets the placer move running jobs.
func (e *engine) adjust() {
	if e.due = e.adjuster.Adjust(e.now, e.onMove); e.due <= e.now {
		e.err = fmt.Errorf("placer wants to be called again at %d ns, and it is %d ns", int64(e.due), int64(e.now))
	}
}

// takeMove is what an Adjuster reports to.
func (e *engine) takeMove(job int, slots []policy.Slot, pause time.Duration) {
	if job < 0 || job >= len(e.jobs) || e.events.at[job] < 0 || len(slots) != e.jobs[job].Workers || pause < 0 {
		e.err = fmt.Errorf("placer moved job %d to %d GPUs for %v", job, len(slots), pause)
		return
	}
	e.advance(int32(job))
	e.vacate(int32(job))
	s := &e.state[job]
	s.slots = slots
	s.migrations++
	e.settleIn(int32(job), pause)
	e.line.freed()
}

// misfit says why a job could never run, as far as that can be known without trying; "" when it may.
func (e *engine) misfit(job int32) string {
	j := &e.jobs[job]
	if j.Workers < 1 || j.Share < 1 {
		return "asks for no GPU"
	}
	if have := len(e.occupancy.gpus); j.Workers > have {
		return fmt.Sprintf("gang of %d, %s has %d", j.Workers, e.name(), have)
	}
	if e.fitter != nil {
		if reason, ok := e.fitter.Fits(int(job)); !ok {
			return reason
		}
	}
	return ""
}

func (e *engine) refuse(job int32, reason string) {
	e.result.refused = append(e.result.refused, Refusal{int(e.index[job]), reason})
	e.progress.step()
}

// misplaced is the reason of a job that the placer refused although no other job held a GPU.
const misplaced = "fits nowhere on the empty cluster"

// refuseWaiting refuses a job that had been let into the line.
func (e *engine) refuseWaiting(job int32) {
	e.result.events--
	e.refuse(job, misplaced)
}

// start lets a job that got slots run: for the first time, again, or elsewhere.
func (e *engine) start(job int32) {
	pause := time.Duration(0)
	if s := &e.state[job]; s.begun {
		pause = e.restartCost
	} else {
		s.begun, s.first = true, e.now
	}
	e.settleIn(job, pause)
}

// settleIn begins a job's stay on its slots, with a pause before it works on.
func (e *engine) settleIn(job int32, pause time.Duration) {
	s := &e.state[job]
	s.last, s.stay, s.rate, s.pause = e.now, e.now, 1, pause
	given := e.occupancy.enter(job, e.jobs[job].Share, s.slots)
	if len(s.slots) != e.jobs[job].Workers || e.rater == nil && given > int32(unit.WholeGPU) {
		e.err = fmt.Errorf("placer gave job %d %d GPUs of which one is given out to %d/1000", e.index[job], len(s.slots), given)
	}
	e.schedule(job)
}

// vacate ends a job's stay on its GPUs, which it has done its work on up to now.
func (e *engine) vacate(job int32) {
	s := &e.state[job]
	e.occupancy.leave(job, e.jobs[job].Share, s.slots)
	e.addSpans(job)
}

func (e *engine) addSpans(job int32) {
	s := &e.state[job]
	if !e.record || s.stay == e.now {
		return
	}
	for _, slot := range s.slots {
		e.result.spans = append(e.result.spans,
			Span{Job: e.index[job], GPU: e.firstGPU[slot.Node] + slot.GPU, Start: s.stay, End: e.now})
	}
}

// suspend brings the running jobs up to date where a replay is cut short.
func (e *engine) suspend() {
	for _, v := range e.events.heap {
		e.advance(v.job)
		e.addSpans(v.job)
	}
}

// name is what the nodes of this part are called in a reason.
func (p *part) name() string {
	if p.vc == "" {
		return "cluster"
	}
	return "virtual cluster " + p.vc
}
