package arbiter

import (
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// decide brings what was decided up to date. It walks through the waiting jobs in order of right. The first one is
// granted if its GPUs are free; otherwise it displaces their holders as far as its right goes, and claims its GPUs from
// when they will all be free. A later one is granted if its GPUs are free and no claim, and no return of a higher job
// from a gap, comes before a useful slice is over; the slice then ends in time for it. As claims are made in one total
// order and held by nobody, gangs cannot deadlock, and the first always comes to run.
//
// O(waiting jobs x their GPUs); where every GPU is settled by the first of them, the rest are not looked at. Each job has its
// own need of a gap, as it drains in its own time: where that decides, all are looked at.
func (a *Arbiter) decide() []Decision {
	a.wake = unit.Never
	if a.now < a.settled {
		a.look(a.settled)
		return a.out
	}
	a.expire()
	unsettled := len(a.gpus)
	for g := range a.gpus {
		a.gpus[g].claim, a.gpus[g].room, a.gpus[g].done = unit.Never, unit.Never, false
	}
	if a.o.Minimum > 0 {
		a.payMinimum()
	}
	a.short = a.short[:0]
	for i := 0; i < len(a.waiting) && unsettled > 0; {
		j := a.waiting[i]
		if !a.consider(j) {
			i++
		}
		unsettled -= a.settle(j)
	}
	a.passOver()
	a.sendHome()
	return a.out
}

// passOver sees to the jobs for which a gap was too short: tokens that no other could use go back to whose they were.
func (a *Arbiter) passOver() {
	for _, j := range a.short {
		a.handBack(j)
		held := func(g int) bool { return a.gpus[g].holder != nil }
		if !slices.ContainsFunc(j.gpus, held) {
			continue
		}
		if j.slow {
			j.late -= j.late / forget
		}
		a.displace(j)
	}
}

// settle counts the GPUs of a job about which nothing more is to be decided: a waiter has spoken for them, and they
// are held or claimed.
func (a *Arbiter) settle(j *job) int {
	n := 0
	for _, g := range j.gpus {
		t := &a.gpus[g]
		if !t.done && j.state == waiting && (t.holder != nil && !t.holder.ahead || min(t.claim, t.room).Sub(a.now) < a.o.useful()) {
			t.done = true
			n++
		}
	}
	return n
}

// consider grants a waiting job or does what brings that nearer. It says whether it was granted.
func (a *Arbiter) consider(j *job) bool {
	limit, blocked := unit.Never, false
	for _, g := range j.gpus {
		limit = min(limit, a.gpus[g].claim)
		blocked = blocked || a.gpus[g].holder != nil
	}
	if blocked {
		ready := a.displace(j)
		for _, g := range j.gpus {
			a.gpus[g].claim = min(a.gpus[g].claim, ready)
		}
		return false
	}
	limit = min(limit, a.room(j))
	if limit == unit.Never {
		a.grant(j, unit.Never, false)
		return true
	}
	if room := limit.Sub(a.now); room < a.o.useful()+j.late {
		j.slow = room >= a.o.useful() && !a.lent(j)
		a.short = append(a.short, j)
		if len(j.gpus) == 1 { // the others that wait for this GPU alone have no more room
			a.gpus[j.gpus[0]].room = limit
		}
		return false
	}
	a.grant(j, limit.Add(-j.late), false)
	return true
}

// displace asks the holders of a waiting job's GPUs for them, and returns when they will be free: unit.Never where a
// higher class holds one. Holders of lower classes are left alone while others, or too little of a gap, hold the job up anyway.
func (a *Arbiter) displace(j *job) unit.Time {
	ready := a.now
	for _, g := range j.gpus {
		if h := a.gpus[g].holder; h != nil && (h.class <= j.class || h.floor) {
			ready = max(ready, a.takeTurn(h, j))
		}
	}
	for _, g := range j.gpus {
		h := a.gpus[g].holder
		if h == nil || h.class <= j.class || h.floor || a.room(j).Sub(a.now) < a.o.useful()+j.late {
			continue
		}
		if wait := ready.Sub(a.now); wait > h.late {
			if ready < unit.Never {
				a.look(ready.Add(-h.late))
			}
			continue
		}
		h.hurt, j.rest.delayed = true, true
		a.drop(h, Priority)
	}
	return ready
}

// takeTurn asks a holder of the same or a higher class for its tokens and returns when they will be free.
func (a *Arbiter) takeTurn(h, j *job) unit.Time {
	switch {
	case h.state == draining:
		return a.now
	case h.floor:
		return h.deadline
	case h.class < j.class:
		a.borrow(h, j)
		return unit.Never
	}
	quantum := a.quantum(h)
	turn := h.start.Add(max(quantum, (j.tag-h.first)*time.Duration(h.weight)))
	end := min(turn.Add(quantum/2), h.deadline)
	switch {
	case a.now >= end:
		a.drop(h, Quantum)
		return a.now
	case a.now >= turn || h.idle():
		a.yield(h, 0)
	default:
		a.look(turn)
	}
	a.look(end)
	return end
}

// borrow asks a higher holder for its next gap, if its budget has room for the hand-over and its gaps are worth it. One that
// was granted ahead gives the token back at once if it has not returned, so it is not asked before that would be of use.
func (a *Arbiter) borrow(h, j *job) {
	at := max(a.solvent(h, j), h.rest.probe)
	if h.ahead {
		at = max(at, a.reclaim(h, j))
	}
	if at > a.now {
		a.look(at)
		return
	}
	h.rest.asked = true
	a.yield(h, a.spare(h))
}

// yield tells a holder that others wait: once, and again where it is to be sooner.
func (a *Arbiter) yield(h *job, spare time.Duration) {
	if !h.yielding || spare < h.spared {
		h.yielding, h.yielded, h.spared = true, a.now, spare
		a.tell(h, Yield, None)
	}
}

// payMinimum grants besteffort jobs that are owed their minimum, whoever else waits, and drops who is in their way.
func (a *Arbiter) payMinimum() {
	for i := 0; i < len(a.waiting); {
		j := a.waiting[i]
		i++
		if due := a.due(j); due > a.now {
			a.look(due)
			continue
		}
		blocked := false
		for _, g := range j.gpus {
			h := a.gpus[g].holder
			blocked = blocked || h != nil || a.gpus[g].claim == a.now
			if h != nil && h.class < j.class {
				a.drop(h, Minimum)
			}
			a.gpus[g].claim = a.now
		}
		if !blocked {
			a.grant(j, a.now.Add(slice), true)
			i--
		}
	}
}
