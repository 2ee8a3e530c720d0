package sim

import "weft.dev/weft/internal/unit"

// events is when each running job next needs attention: a binary heap of job numbers, ordered by time, then by job.
// A job stands in it at most once, and knows where, so that a new rate moves its entry and leaves nothing stale.
type events struct {
	heap []event
	at   []int32 // position of each job in heap; -1 for none
}

type event struct {
	time unit.Time
	job  int32
}

func (a event) before(b event) bool { return a.time < b.time || a.time == b.time && a.job < b.job }

func newEvents(jobs int) events {
	e := events{at: make([]int32, jobs)}
	for i := range e.at {
		e.at[i] = -1
	}
	return e
}

// next is the time of the first event, unit.Never when there is none.
func (e *events) next() unit.Time {
	if len(e.heap) == 0 {
		return unit.Never
	}
	return e.heap[0].time
}

// set puts the job's event at a time, wherever it was before.
func (e *events) set(job int32, at unit.Time) {
	i := e.at[job]
	if i < 0 {
		i = int32(len(e.heap))
		e.heap = append(e.heap, event{})
	}
	e.settle(int(i), event{at, job})
}

// remove takes the job's event out; there must be one.
func (e *events) remove(job int32) {
	i, last := int(e.at[job]), len(e.heap)-1
	e.at[job] = -1
	moved := e.heap[last]
	e.heap = e.heap[:last]
	if i < last {
		e.settle(i, moved)
	}
}

// settle writes x into the free position i and moves it up or down to where it belongs.
func (e *events) settle(i int, x event) {
	h := e.heap
	for i > 0 && x.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		e.at[h[i].job] = int32(i)
		i = (i - 1) / 2
	}
	for child := 2*i + 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		e.at[h[i].job] = int32(i)
		i = child
	}
	h[i] = x
	e.at[x.job] = int32(i)
}
