package arbiter

import (
	"time"

	"weft.dev/weft/internal/unit"
)

func (a *Arbiter) nextEpoch() uint64 {
	a.epoch++
	return a.epoch
}

// grant gives a job, which waits no longer, all its tokens until a deadline.
func (a *Arbiter) grant(j *job, deadline unit.Time, floor bool) {
	a.unqueue(j)
	a.debit(j)
	j.ahead = false
	a.give(j, deadline, floor)
}

// give makes a job the holder of all its tokens until a deadline.
func (a *Arbiter) give(j *job, deadline unit.Time, floor bool) {
	j.state, j.start, j.first, j.deadline, j.floor, j.yielding = holding, a.now, j.tag, deadline, floor, false
	j.held = append(j.held[:0], j.gpus...)
	for _, g := range j.held {
		t := &a.gpus[g]
		t.holder = j
		t.clock[j.class] = max(t.clock[j.class], j.tag)
	}
	a.look(deadline)
	a.lend(j)
	epoch := a.nextEpoch()
	for _, s := range j.sessions {
		a.open(s, epoch)
	}
}

// open tells one session that it holds its job's tokens.
func (a *Arbiter) open(s *session, epoch uint64) {
	ahead := s.job.ahead && !s.wants
	s.epoch, s.wants, s.idle = epoch, false, false
	s.job.given = a.windowOf(s.job)
	s.job.wide = s.job.given == 0
	a.out = append(a.out, Decision{
		Kind: Grant, Session: s.id, Epoch: epoch, Deadline: s.job.deadline, Window: s.job.given, Ahead: ahead,
	})
}

// windowOf is none where nobody may ask for the job's tokens before it returns them by itself, the widest where its
// peers may or the minimum may be due, and what its losses taught where a higher class may.
func (a *Arbiter) windowOf(j *job) time.Duration {
	var window time.Duration
	for _, g := range j.gpus {
		for _, k := range a.gpus[g].on {
			switch {
			case k.class < j.class:
				return j.window
			case k != j && (k.class == j.class || a.o.Minimum > 0 && k.class == BestEffort):
				window = mostWindow
			}
		}
	}
	return window
}

// above says whether any job on the machine is of a higher class.
func (a *Arbiter) above(j *job) bool {
	for c := range j.class {
		if a.count[c] > 0 {
			return true
		}
	}
	return false
}

// narrow tells the holders of a job's GPUs the windows that they have beside it, where those were wider or none.
func (a *Arbiter) narrow(j *job) {
	for _, g := range j.gpus {
		h := a.gpus[g].holder
		if h == nil || h.state != holding {
			continue
		}
		if w := a.windowOf(h); w > 0 && (h.given == 0 || w < h.given) {
			h.given = w
			a.tell(h, Narrow, None)
		}
	}
}

func (a *Arbiter) tell(j *job, k Kind, r Reason) {
	for _, s := range j.sessions {
		if s.epoch > 0 {
			d := Decision{Kind: k, Session: s.id, Epoch: s.epoch, Deadline: unit.Never, Reason: r}
			switch k {
			case Narrow:
				d.Window = j.given
			case Yield:
				d.Spare = j.spared
			}
			a.out = append(a.out, d)
		}
	}
}

// drop tells a holder to release now.
func (a *Arbiter) drop(j *job, r Reason) {
	if j.state != holding {
		return
	}
	j.state, j.dropped = draining, a.now
	a.look(a.now.Add(a.o.MaxDrain))
	a.tell(j, Drop, r)
}

// release takes the tokens of a job all of whose sessions released or left.
func (a *Arbiter) release(j *job) {
	told := j.state == draining || j.deadline <= a.now
	if told && !j.wide {
		j.measure(a.now.Sub(min(j.deadline, a.droppedAt(j))))
		if a.above(j) {
			j.adapt()
		}
	}
	for _, g := range j.held {
		if a.gpus[g].holder == j {
			a.gpus[g].holder = nil
		}
	}
	j.state, j.held, j.deadline, j.floor = resting, j.held[:0], unit.Never, false
	if !j.ahead || a.resumed(j) {
		j.rest.begin(a.now, !told, j.yielding && a.now.Sub(j.yielded) < 2*a.o.Handover)
	}
	if j.wanting() {
		a.enqueue(j)
	}
}

func (a *Arbiter) droppedAt(j *job) unit.Time {
	if j.state == draining {
		return j.dropped
	}
	return unit.Never
}

// look asks to be called again at a time.
func (a *Arbiter) look(at unit.Time) {
	if at > a.now {
		a.wake = min(a.wake, at)
	}
}

// quantum is how long a holder keeps its tokens before another job of its class gets its turn: so long that handing
// over takes a small share of it and that it is longer than the drain after it. A shorter one would cost more, a longer
// one would keep those that wait.
func (a *Arbiter) quantum(j *job) time.Duration {
	const (
		share = 50                     // 2 % of the time at most goes to hand-overs: 7 ms at 0.14 ms
		most  = 500 * time.Millisecond // beyond, a turn feels like a stall, whatever the kernels
	)
	return min(most, max(share*a.o.Handover, 2*j.late))
}
