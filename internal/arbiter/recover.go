package arbiter

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// Settled ends the settle time after a restart: everybody who may hold something has said so.
func (a *Arbiter) Settled(now unit.Time) []Decision {
	a.begin(now)
	a.settled = min(a.settled, a.now)
	return a.decide()
}

// expire drops holders whose slice is over and takes the tokens of those that were dropped long ago and are silent.
func (a *Arbiter) expire() {
	for g := range a.gpus {
		j := a.gpus[g].holder
		if j == nil {
			continue
		}
		if j.state == holding && j.deadline <= a.now {
			a.drop(j, Deadline)
			j.dropped = j.deadline
		}
		if j.state == holding {
			a.rejoin(j)
		}
		if j.state == holding {
			a.look(j.deadline)
			continue
		}
		if end := j.dropped.Add(a.o.MaxDrain); end > a.now {
			a.look(end)
			continue
		}
		a.revoke(j)
	}
}

// rejoin opens the gates of ranks that released while others of their job still hold its tokens: those do not move. A
// rank on a GPU that the job does not hold makes it start anew.
func (a *Arbiter) rejoin(j *job) {
	for _, s := range j.sessions {
		switch {
		case !s.wants || s.epoch > 0:
		case j.covers(s):
			a.open(s, a.nextEpoch())
		default:
			a.drop(j, Regroup)
			return
		}
	}
}

// revoke takes the tokens of a job that hangs.
func (a *Arbiter) revoke(j *job) {
	a.tell(j, Overrun, None)
	j.usage.Overruns++
	for _, s := range j.sessions {
		s.epoch = 0
	}
	a.release(j)
}

// replay lets a session keep what it says it holds from before a restart, where that is the newest claim.
func (a *Arbiter) replay(s *session, epoch uint64) {
	j := s.job
	a.epoch = max(a.epoch, epoch)
	stale := j.state == draining
	for _, g := range s.gpus {
		h := a.gpus[g].holder
		stale = stale || h != nil && h != j && h.replayed() >= epoch
	}
	if stale {
		a.out = append(a.out, Decision{Kind: Drop, Session: s.id, Epoch: epoch, Deadline: unit.Never, Reason: Stale})
		return
	}
	for _, g := range s.gpus {
		if h := a.gpus[g].holder; h != nil && h != j {
			a.tell(h, Drop, Stale)
			for _, other := range h.sessions {
				other.epoch = 0
			}
			a.release(h)
		}
	}
	if !j.holds() {
		a.unqueue(j)
		j.state, j.start, j.first, j.held = holding, a.now, j.tag, j.held[:0]
		j.deadline, j.floor, j.yielding, j.given = unit.Never, false, false, 0
	}
	for _, g := range s.gpus {
		a.gpus[g].holder = j
		if !slices.Contains(j.held, g) {
			j.held = append(j.held, g)
		}
	}
	s.epoch = epoch
}

// replayed is the newest epoch that a job's sessions hold.
func (j *job) replayed() uint64 {
	var epoch uint64
	for _, s := range j.sessions {
		epoch = max(epoch, s.epoch)
	}
	return epoch
}
