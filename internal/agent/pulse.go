package agent

import (
	"time"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// A holder that hangs is noticed by its silence. The arbiter alone would take a stopped process of a high class for a busy
// one for as long as only lower ones wait.

const (
	pulse   = 5 * time.Millisecond  // between looks at holders while somebody waits for them
	silence = 20 * time.Millisecond // after which a holder is asked
	deadly  = 60 * time.Millisecond // after which one that was asked counts as hung: with the rest, within 100 ms
)

// heard notes that a process said something. An answer to a question tells how long hand-overs take.
func (s *session) hear(pong bool) {
	now := s.a.clock.now()
	if pong && s.pinged > 0 {
		s.a.handover.add(now.Sub(s.pinged))
	}
	s.heard, s.pinged = now, 0
}

// ping asks a process whether it is there, unless it is being asked.
func (s *session) ping(now unit.Time) {
	if s.pinged == 0 && s.conn != nil {
		s.pinged = now
		s.a.messages.token++
		s.say(&wire.Ping{})
	}
}

// contested says whether a job other than the session's waits for a GPU that it holds.
func (s *session) contested() bool {
	for _, g := range s.token.gpus {
		for _, al := range s.a.allocs {
			if al != s.alloc && al.wanting[g] > 0 {
				return true
			}
		}
	}
	return false
}

// feel looks for holders that are silent while others wait for them, and takes their tokens.
func (a *Agent) feel(now unit.Time) {
	if now < a.felt.Add(pulse) || len(a.holders) == 0 {
		return
	}
	a.felt = now
	for s := range a.holders {
		switch {
		case !s.contested():
			s.watched = 0
		case s.watched == 0:
			s.watched = now // its answers count from here on
		case s.pinged > 0 && now.Sub(max(s.pinged, s.watched)) > deadly:
			a.later(func() {
				if s.token.epoch > 0 {
					a.act(a.arb.Hung(a.clock.now(), s.id()))
				}
			})
		case s.pinged == 0 && now.Sub(max(s.heard, s.watched)) > silence:
			s.ping(now)
		}
	}
}
