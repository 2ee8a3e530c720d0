package local

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/plan"
)

// reason is why a job waits, as the last plan had it. The mutex is held.
func (b *Box) reason(j *job) *box.Reason {
	w, ok := b.waits[j.ID]
	if !ok {
		return &box.Reason{Code: plan.Planning, Text: string(plan.Planning)}
	}
	return b.asReason(w, j)
}

// asReason is a wait for people. The mutex is held.
func (b *Box) asReason(w dispatch.Wait, j *job) *box.Reason {
	r := &box.Reason{Code: w.Reason.Code, Text: string(w.Reason.Code), Got: w.Reason.Got, Limit: w.Reason.Limit, After: w.After}
	if w.Reason.Code == plan.Dependency {
		for _, id := range j.After {
			if other := b.jobs[id]; other != nil && other.State != box.Done {
				r.After = id
				break
			}
		}
	}
	switch {
	case r.After != 0:
		r.Text += " after " + r.After.String()
	case w.GPU >= 0:
		gpu := w.GPU
		r.GPU = &gpu
		r.Text += fmt.Sprintf(" gpu%d", gpu)
	}
	return r
}

// Explain says why a job waits or sits where it sits. Its user and administrators may ask.
func (b *Box) Explain(c box.Caller, id box.ID) (box.Explanation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.own(c, id)
	if err != nil {
		return box.Explanation{}, err
	}
	e := box.Explanation{Job: b.describe(j, b.caller(c)), Refusals: []box.Refusal{}, Ahead: []box.ID{}, Residents: []box.Resident{}, History: []box.Event{}}
	for _, event := range b.events.ring {
		if event.Job == id {
			e.History = append(e.History, event)
		}
	}
	switch {
	case j.State == box.Waiting:
		b.explainWait(j, &e)
	case j.State.Live():
		b.explainStay(j, &e)
	}
	return e, nil
}

// explainWait adds what refuses a job each GPU. The mutex is held.
func (b *Box) explainWait(j *job, e *box.Explanation) {
	s := b.snapshot(time.Now())
	x, _ := dispatch.Explain(&s, j.ID) // where it does not wait any more, there is nothing to say
	for i, r := range x.Refusals {
		gpu := r.GPU
		out := box.Refusal{GPU: gpu, Beside: r.Beside, Nearest: i == 0 && r.Reason.Refused()}
		if out.Beside == nil {
			out.Beside = []box.ID{}
		}
		if r.Reason.Refused() {
			out.Reason = box.Reason{Code: r.Reason.Code, Text: b.refusalText(j, &r), GPU: &gpu, Got: r.Reason.Got, Limit: r.Reason.Limit, After: r.After}
		}
		e.Refusals = append(e.Refusals, out)
	}
	e.Ahead = append(e.Ahead, x.Ahead...)
	if !x.Promised.IsZero() {
		e.Promised = &x.Promised
	}
	e.Opens = b.opens(j, &x, time.Now())
}

// refusalText is the numbers of a refusal. The mutex is held.
func (b *Box) refusalText(j *job, r *dispatch.Refusal) string {
	switch r.Reason.Code {
	case plan.MemoryReserved:
		if r.Most > 0 { // the persistent parts fit; the greatest of what comes and goes does not beside them
			return fmt.Sprintf("%v + %v + up to %v = %v, usable %v", r.Held, j.reserved(), r.Most, r.Held+j.reserved()+r.Most, r.Room)
		}
		return fmt.Sprintf("%v + %v = %v, usable %v", r.Held, j.reserved(), r.Held+j.reserved(), r.Room)
	case plan.MemoryOverflow:
		return fmt.Sprintf("P(over %v) %.2f, allowed %.2f", r.Room, r.Reason.Got, r.Reason.Limit)
	case plan.FloorSelf:
		return fmt.Sprintf("it keeps at least %s, floor %s", percent(r.Reason.Got), percent(r.Reason.Limit))
	case plan.FloorResident:
		return fmt.Sprintf("%d keeps at least %s, floor %s", r.Resident, percent(r.Reason.Got), percent(r.Reason.Limit))
	case plan.ClassConflict:
		return b.classText(r.Beside)
	case plan.ProfileUnknown:
		if r.Resident != 0 {
			return fmt.Sprintf("nothing is known of %d: it shares with nobody", r.Resident)
		}
		return "nothing is known of it: it shares with nobody"
	case plan.PairBanned:
		return fmt.Sprintf("it was in conflict with %d a short while ago", r.Resident)
	case plan.MaxResidents:
		return fmt.Sprintf("%d jobs are there, at most %.0f", len(r.Beside), r.Reason.Limit)
	case plan.Priority:
		return fmt.Sprintf("%d comes first, and could be delayed", r.After)
	case plan.GPUUnhealthy, plan.Drained, plan.Foreign:
		return b.closedText(r.GPU)
	}
	return ""
}

func (b *Box) classText(beside []box.ID) string {
	besteffort := 0
	for _, id := range beside {
		switch j := b.jobs[id]; {
		case j == nil:
		case j.Class == box.Guaranteed:
			return fmt.Sprintf("guaranteed %d shares with one besteffort at most", id)
		case j.Class == box.BestEffort:
			besteffort++
		}
	}
	if besteffort > 1 {
		return fmt.Sprintf("%d besteffort jobs are there, at most 2", besteffort)
	}
	return "a guaranteed job shares with one besteffort at most"
}

// closedText is what keeps jobs off a GPU.
func (b *Box) closedText(gpu int) string {
	s := &b.state.gpus[gpu]
	switch {
	case s.xid != nil:
		return fmt.Sprintf("XID %d", *s.xid)
	case b.drained[gpu]:
		return "drained by an administrator"
	}
	var texts []string
	for _, f := range s.foreign {
		texts = append(texts, fmt.Sprintf("pid %d %s (%s) holds %v", f.PID, f.Name, f.User, f.Bytes))
	}
	return strings.Join(texts, "; ")
}

// opens is what would have to change for a job to start. The mutex is held.
func (b *Box) opens(j *job, x *dispatch.Explanation, now time.Time) string {
	if w := b.waitsFor(j); w == plan.Dependency {
		if len(j.After) == 1 {
			return "Starts when " + idNames(j.After) + " has succeeded"
		}
		return "Starts when " + idNames(j.After) + " have succeeded"
	}
	var ways []string
	if len(x.Ends) > 0 {
		way := "when " + idNames(x.Ends) + " ends"
		if len(x.Ends) > 1 {
			way = "when " + idNames(x.Ends) + " end"
		}
		if !x.EndsBy.IsZero() {
			way += fmt.Sprintf(" (at the latest in %s)", x.EndsBy.Sub(now).Round(time.Second))
		}
		ways = append(ways, way)
	}
	if x.Peak > 0 {
		ways = append(ways, fmt.Sprintf("now with a peak <= %v (what-if, gpu%d)", x.Peak, x.PeakGPU))
	}
	if x.Floor > 0 {
		ways = append(ways, fmt.Sprintf("now with a floor <= %.2f (what-if, gpu%d)", x.Floor, x.FloorGPU))
	}
	if len(ways) == 0 {
		return ""
	}
	return "Starts " + strings.Join(ways, ", or ")
}

// explainStay adds who is beside a job, and where its speed went. The mutex is held.
func (b *Box) explainStay(j *job, e *box.Explanation) {
	for _, id := range b.beside(&j.record) {
		other := b.jobs[id]
		_, _, _, basis := b.book.Predict(j.kind(), b.kindsOf([]box.ID{id}))
		e.Residents = append(e.Residents, box.Resident{
			ID: id, Name: other.Name, Slows: b.book.Mean(j.kind(), other.kind()), SlowedBy: b.book.Mean(other.kind(), j.kind()),
			Observed: b.book.Seen(j.kind(), other.kind()), Predicted: basis,
		})
	}
	e.Held = max(0, e.Job.Run-j.Below.Seconds())
	if j.view.rate == nil {
		return
	}
	lost := max(0, 1-*j.view.rate)
	token := min(lost, j.view.waits[0])
	stall := min(lost-token, j.view.waits[1])
	e.Lost = &box.Loss{Token: token, Stall: stall, Contention: lost - token - stall}
}

// Figures are what is counted, for monitoring.
func (b *Box) Figures() box.Figures {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := box.Figures{Plan: b.figures.Plan.Clone(), QueueWait: map[box.Class]box.Histogram{}, Outcomes: maps.Clone(b.figures.Outcomes), Operations: maps.Clone(b.figures.Operations)}
	for class, h := range b.figures.QueueWait {
		f.QueueWait[class] = h.Clone()
	}
	return f
}

func newFigures() box.Figures {
	f := box.Figures{Plan: box.NewHistogram(box.PlanBounds()...), QueueWait: map[box.Class]box.Histogram{}, Outcomes: map[box.Outcome]uint64{}, Operations: map[box.OperationKey]uint64{}}
	for _, class := range []box.Class{box.Guaranteed, box.Burstable, box.BestEffort} {
		f.QueueWait[class] = box.NewHistogram(box.WaitBounds()...)
	}
	return f
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
