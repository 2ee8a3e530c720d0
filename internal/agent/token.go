package agent

import (
	"math/bits"
	"slices"
	"time"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// token is what a session has and wants of its job's token, as the agent sees it.
type token struct {
	gpus    []int // of the machine, that it is known to the arbiter with; none when it is not
	epoch   uint64
	stamp   uint64 // of the job's holding: the epoch of the session that was granted first
	counted bool   // among those who wait
	wants   bool   // asked since it was last granted
	hung    bool   // was overrun, and has said nothing about tokens since: unknown to the arbiter
	lost    []int  // GPUs whose token was taken from it, and on which it may still compute
	ahead   bool   // was granted without having asked
	above   bool   // a lower class held the token when it asked
	moving  bool   // was told to drop since it uses other GPUs now

	asked, granted, dropped unit.Time // 0 for not
	ends                    unit.Time // of the grant by itself
}

// use says on which GPUs the process has contexts from now on. A session that holds a token gives it back first.
func (s *session) use(mask uint32) bool {
	if bits.Len32(mask) > len(s.alloc.gpus) {
		return false
	}
	if mask == s.mask {
		return true
	}
	s.mask = mask
	if s.token.epoch == 0 {
		s.rejoin()
	} else if s.token.moving = true; s.token.dropped == 0 {
		s.tell(arbiter.Decision{Kind: arbiter.Drop, Epoch: s.token.epoch, Reason: arbiter.Regroup})
	}
	s.alloc.tellWanted(s)
	return true
}

// rejoin tells the arbiter of a session as it is now.
func (s *session) rejoin() {
	s.token.moving = false
	s.leave()
	decisions, _ := s.join(0)
	s.a.act(decisions)
	if s.token.wants && len(s.token.gpus) > 0 {
		s.a.act(s.a.arb.Request(s.a.clock.now(), s.id()))
	}
}

// join makes the session known to the arbiter, if it uses GPUs, and says whether the token that it claims is its own. The
// decisions are valid until the arbiter is asked again.
func (s *session) join(epoch uint64) (decisions []arbiter.Decision, held bool) {
	gpus := s.gpusOf()
	if s.observer || len(gpus) == 0 {
		return nil, false
	}
	decisions, err := s.a.arb.Join(s.a.clock.now(), arbiter.Session{
		ID: s.id(), Job: s.alloc.job(), Class: arbiter.Class(s.alloc.spec.Class), Weight: s.alloc.spec.Weight, GPUs: gpus, Epoch: epoch,
	})
	if err != nil {
		s.a.note(s.event(EventState, err.Error())) // the allocation's terms were checked: a fault of the agent
		return nil, false
	}
	s.token.gpus, s.token.hung = gpus, false
	s.want(s.token.wants)
	stale := func(d arbiter.Decision) bool {
		return d.Session == s.id() && d.Kind == arbiter.Drop && d.Reason == arbiter.Stale
	}
	if held = epoch > 0 && !slices.ContainsFunc(decisions, stale); held {
		s.hold(epoch)
	}
	return slices.DeleteFunc(decisions, stale), held
}

// leave makes the session unknown to the arbiter, whatever it holds.
func (s *session) leave() {
	if len(s.token.gpus) == 0 {
		return
	}
	if !s.token.hung {
		s.letGo()
	}
	wants := s.token.wants
	s.want(false)
	s.token.wants = wants // it does so still, if it joins again
	s.token.gpus, s.token.dropped = nil, 0
	s.a.act(s.a.arb.Leave(s.a.clock.now(), s.id()))
}

// request says that the process wants to launch.
func (s *session) request() {
	now := s.a.clock.now()
	if s.token.epoch > 0 { // a grant is on its way
		s.a.act(s.a.arb.Request(now, s.id()))
		return
	}
	s.supervise()
	if !s.token.wants {
		s.token.asked, s.token.above = now, s.preempts()
		s.want(true)
	}
	if len(s.token.gpus) > 0 {
		s.a.act(s.a.arb.Request(now, s.id()))
	}
}

// released says that the process closed its gate and has nothing outstanding.
func (s *session) released(m *wire.Released) {
	s.alloc.tally.launches += m.Launches
	s.a.granted.launches += m.Launches
	if m.Launches > 0 {
		s.computed()
	}
	if m.Epoch == 0 || m.Epoch != s.token.epoch {
		s.clear()
		if s.token.hung {
			s.rejoin()
		}
		return
	}
	now := s.a.clock.now()
	due := s.token.ends // a process cannot run longer beyond its time than that is past
	if s.token.dropped > 0 {
		s.alloc.tally.preemption.add(now.Sub(s.token.dropped))
		s.a.counts.drain[s.alloc.spec.Class].add(now.Sub(s.token.dropped))
		due = min(due, s.token.dropped)
	}
	overrun := min(duration(m.Overrun), max(0, now.Sub(due)))
	s.letGo()
	s.a.act(s.a.arb.Released(now, s.id(), arbiter.Release{
		Epoch: m.Epoch, Used: duration(m.Used), Overrun: overrun, Launched: m.Launches > 0, Rested: duration(m.Rested),
	}))
	switch {
	case !s.token.moving:
	case s.token.epoch == 0:
		s.rejoin()
	default: // its gang was granted again at once
		s.tell(arbiter.Decision{Kind: arbiter.Drop, Epoch: s.token.epoch, Reason: arbiter.Regroup})
	}
}

// idle says that the process holds a token and has had nothing outstanding for the grace.
func (s *session) idle(epoch uint64) {
	if epoch != 0 && epoch == s.token.epoch {
		if !s.token.ahead {
			s.computed() // what it had asked for
		}
		s.a.act(s.a.arb.Idle(s.a.clock.now(), s.id()))
	}
}

// act tells the sessions what the arbiter decided.
func (a *Agent) act(decisions []arbiter.Decision) {
	for _, d := range decisions {
		if s := a.sessions[uint64(d.Session)]; s != nil {
			s.tell(d)
		}
	}
}

// tell tells one session of a decision. It does not ask the arbiter anything: its decisions are still being read.
func (s *session) tell(d arbiter.Decision) {
	if s.token.hung {
		return // it is on its way out of the arbiter
	}
	now := s.a.clock.now()
	s.a.messages.token++
	switch d.Kind {
	case arbiter.Grant:
		s.hold(d.Epoch)
		s.token.ends, s.token.ahead = d.Deadline, d.Ahead
		if s.token.wants {
			s.waited(now.Sub(s.token.asked))
		}
		s.want(false)
		s.a.granted.grants++
		s.bounded(d.Window)
		s.say(&wire.Grant{Terms: wire.Terms{Epoch: d.Epoch, Lasts: lasts(now, d.Deadline), Window: nanoseconds(d.Window), Ahead: flag(d.Ahead)}})
	case arbiter.Narrow:
		s.bounded(d.Window)
		s.say(&wire.Narrow{Terms: wire.Terms{Epoch: d.Epoch, Window: nanoseconds(d.Window)}})
	case arbiter.Yield:
		s.say(&wire.Yield{Epoch: d.Epoch, Spare: nanoseconds(d.Spare)})
	case arbiter.Drop:
		s.token.dropped = now
		s.say(&wire.Drop{Epoch: d.Epoch, Reason: uint32(d.Reason)})
		if d.Reason == arbiter.Stale {
			s.lose() // the arbiter gave it to another already
		}
	case arbiter.Overrun:
		s.overrun()
	}
}

// waited books a wait that ended with the grant.
func (s *session) waited(d time.Duration) {
	class := s.alloc.spec.Class
	s.alloc.tally.wait.add(d)
	s.a.counts.wait[class].add(d)
	if s.token.above {
		s.a.counts.preemption[class].add(d)
	}
}

// overrun takes the token of a process that did not release it. It is left alone until it does, so that a gang with one hung
// process, or a job with an endless kernel, costs the others that time once and not in each of its turns.
func (s *session) overrun() {
	s.alloc.tally.overruns++
	s.a.granted.overruns++
	for _, g := range s.token.gpus {
		s.a.counts.on(g).overruns[s.alloc.spec.Class]++
		s.a.note(Event{Type: EventOverrun, Job: s.alloc.spec.Name, ID: s.alloc.id, PID: s.peer.pid, GPU: &g,
			Text: "it did not give the token back in time: others run beside what it still computes"})
	}
	s.lose()
	s.token.hung = true
	s.a.later(func() {
		if s.token.hung {
			s.leave()
		}
	})
}

// hold books that the session holds a token, before the process learns of it.
func (s *session) hold(epoch uint64) {
	s.drop()
	now := s.a.clock.now()
	s.token.stamp = s.stampOf(epoch)
	s.token.epoch, s.token.granted, s.token.dropped, s.token.ends = epoch, now, 0, unit.Never
	s.watched = 0
	s.a.holders[s] = struct{}{}
	for _, g := range s.token.gpus {
		s.a.gpus[g].held(now, +1)
	}
	if s.a.o.Audit != nil {
		for _, g := range s.token.gpus {
			s.a.o.Audit.Allow(s.peer.pid, g, s.token.stamp)
		}
	}
}

// stampOf is what the launches of a session are known by: the newest epoch there is, as a process that says what it held before
// a restart may hold it again after others did; for a rank that comes back while others of its job hold the token, the same
// as for those.
func (s *session) stampOf(epoch uint64) uint64 {
	for _, other := range s.alloc.sessions {
		if other != s && other.token.epoch > 0 {
			return other.token.stamp
		}
	}
	return max(epoch, s.a.arb.Epoch())
}

// want books whether the session, known to the arbiter, waits for the token.
func (s *session) want(wants bool) {
	counted := s.token.counted
	s.token.wants = wants
	if s.token.counted = wants && len(s.token.gpus) > 0; s.token.counted == counted {
		return
	}
	change := 1
	if counted {
		change = -1
	}
	s.a.wanting += change
	for _, g := range s.token.gpus {
		s.alloc.wanting[g] += change
	}
}

// letGo books that the session holds no token any more: it said so, or is gone.
func (s *session) letGo() {
	s.clear()
	if s.drop() && s.a.o.Audit != nil {
		for _, g := range s.token.gpus {
			s.a.o.Audit.Revoke(s.peer.pid, g)
		}
	}
}

// lose books that its token was taken from the session, which may compute all the same.
func (s *session) lose() {
	if !s.drop() {
		return
	}
	s.token.lost = s.token.gpus
	if s.a.o.Audit != nil {
		for _, g := range s.token.lost {
			s.a.o.Audit.Overrun(s.peer.pid, g)
		}
	}
}

// clear books that nothing of what was taken from the session computes any more.
func (s *session) clear() {
	if s.a.o.Audit != nil {
		for _, g := range s.token.lost {
			s.a.o.Audit.Revoke(s.peer.pid, g)
		}
	}
	s.token.lost = nil
}

// drop ends the time in which the session holds its token. It says false where it held none.
func (s *session) drop() bool {
	if s.token.epoch == 0 {
		return false
	}
	now := s.a.clock.now()
	s.alloc.tally.hold.add(now.Sub(s.token.granted))
	s.a.counts.hold[s.alloc.spec.Class].add(now.Sub(s.token.granted))
	s.token.epoch = 0
	delete(s.a.holders, s)
	for _, g := range s.token.gpus {
		s.a.gpus[g].held(now, -1)
	}
	return true
}

// held counts the sessions that hold a GPU's token, and the time in which any does.
func (g *gpu) held(now unit.Time, change int) {
	if g.holders > 0 {
		g.busyFor += now.Sub(g.since)
	}
	g.since = now
	g.holders += change
}

// bounded notes the last bound that was told of what a job may have outstanding.
func (s *session) bounded(window time.Duration) {
	if window > 0 {
		s.a.granted.window = window
	}
}

// lasts is how long a grant lasts for the shim: 0 for as long as nothing is said.
func lasts(now, deadline unit.Time) uint64 {
	if deadline == unit.Never {
		return 0
	}
	return uint64(max(1, deadline.Sub(now)))
}

func flag(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

func nanoseconds(d time.Duration) uint64 { return uint64(max(0, d)) }

// duration is what a process says in nanoseconds.
func duration(ns uint64) time.Duration { return time.Duration(min(ns, uint64(time.Hour))) }
