package arbiter

import "weft.dev/weft/internal/unit"

// Request says that a session wants to launch and its gate is closed.
func (a *Arbiter) Request(now unit.Time, id SessionID) []Decision {
	a.begin(now)
	s := a.sessions[id]
	if s == nil {
		return a.decide()
	}
	a.crossed(s.job)
	if s.epoch > 0 {
		return a.decide()
	}
	s.wants = true
	if j := s.job; j.state == resting {
		a.resume(j)
		a.enqueue(j)
	}
	return a.decide()
}

// Released says that a session closed its gate and that nothing of it is outstanding. A release under another epoch than
// the session's own is of the past and changes nothing.
func (a *Arbiter) Released(now unit.Time, id SessionID, r Release) []Decision {
	a.begin(now)
	s := a.sessions[id]
	if s == nil || r.Epoch == 0 || s.epoch != r.Epoch {
		return a.decide()
	}
	s.epoch = 0
	j := s.job
	j.usage.Used += min(max(0, r.Used), a.now.Sub(j.start))
	if r.Launched {
		j.returned = min(j.returned, j.start.Add(min(max(0, r.Rested), a.now.Sub(j.start))))
	}
	if !j.open() {
		a.release(j)
	}
	return a.decide()
}

// Idle says that a session holds a token and has had nothing outstanding for the idle grace of its gate.
func (a *Arbiter) Idle(now unit.Time, id SessionID) []Decision {
	a.begin(now)
	if s := a.sessions[id]; s != nil && s.epoch > 0 {
		s.idle = true
	}
	return a.decide()
}

// Hung says that a session does not answer: it cannot be waited for. What it holds is taken from it, and the rest of its job
// is dropped, as kernels of ranks wait for each other. It may leave and join again.
func (a *Arbiter) Hung(now unit.Time, id SessionID) []Decision {
	a.begin(now)
	s := a.sessions[id]
	if s == nil || s.epoch == 0 {
		return a.decide()
	}
	j := s.job
	a.drop(j, Silent)
	a.out = append(a.out, Decision{Kind: Overrun, Session: s.id, Epoch: s.epoch, Deadline: unit.Never})
	j.usage.Overruns++
	s.epoch = 0
	if !j.open() {
		a.release(j)
	}
	return a.decide()
}

// Usage is what a job had until now; zero for one that is unknown or forgotten. Asking changes nothing.
func (a *Arbiter) Usage(now unit.Time, id JobID) Usage {
	j := a.jobs[id]
	if j == nil {
		return Usage{}
	}
	u := j.usage
	if len(j.held) > 0 && a.gpus[j.held[0]].holder == j {
		u.Held += max(0, now.Sub(a.now)) // a job alone may hold for hours, and nothing happens
	}
	return u
}
