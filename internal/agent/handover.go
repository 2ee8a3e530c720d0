package agent

import (
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// A hand-over is a message from the holder to the agent, one from it to the next, and the wake-ups of both: as much as a
// question and its answer. That is measured, with the processes that are there, since a budget of losses that is told a
// wrong cost is kept at a wrong cost.

// handover measures what one costs.
type handover struct {
	took  [samples]time.Duration // the last answers
	count int
	last  uint64        // session asked last
	cost  time.Duration // as the arbiter was told
}

const (
	samples      = 64
	atOnce       = 8                     // processes asked each second
	launch       = 20 * time.Microsecond // from a shim's thread that reads the grant to the one that launches
	leastHand    = 40 * time.Microsecond
	firstHand    = 140 * time.Microsecond // until it is measured: as two cores were found to take
	mostHand     = time.Millisecond       // more is not the cost of a hand-over but a machine in trouble
	firstSamples = 16                     // answers before they count
)

// cost is what a hand-over costs by the times that answers took.
func cost(took []time.Duration) time.Duration {
	slices.Sort(took)
	return min(max(took[len(took)/2]+launch, leastHand), mostHand)
}

// measure asks some of the processes, and tells the arbiter what the answers took so far.
func (a *Agent) measure(now unit.Time) {
	h := &a.handover
	if h.count >= firstSamples {
		h.cost = cost(slices.Clone(h.took[:min(h.count, samples)]))
		a.arb.SetHandover(h.cost)
	}
	for range min(atOnce, len(a.sessions)) {
		s := a.following(h.last)
		if s == nil {
			break
		}
		h.last = s.number
		if !s.observer {
			s.ping(now)
		}
	}
}

// following is the session after a number, the first one after the last.
func (a *Agent) following(number uint64) *session {
	var next, first *session
	for n, s := range a.sessions {
		if n > number && (next == nil || n < next.number) {
			next = s
		}
		if first == nil || n < first.number {
			first = s
		}
	}
	if next == nil {
		return first
	}
	return next
}

// add files how long an answer took. One that took long says something of its process and nothing of hand-overs.
func (h *handover) add(took time.Duration) {
	if took < mostHand {
		h.took[h.count%samples] = took
		h.count++
	}
}
