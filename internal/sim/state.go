package sim

import (
	"fmt"
	"math"
	"time"

	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// state is what is known of one job while it lives. remaining, ran and pause are as of last.
type state struct {
	remaining time.Duration // standalone run time still needed
	ran       time.Duration // time it held GPUs
	below     time.Duration // time it worked below its floor
	pause     time.Duration // time it must still hold its GPUs before it goes on working
	last      unit.Time
	since     unit.Time // when it entered its queue
	stay      unit.Time // when it came to the GPUs that it has
	first     unit.Time // when it first started
	end       unit.Time // when it ends, at the present rate
	rate      float64   // share of standalone speed
	slots     []policy.Slot

	queue       int32
	preemptions int32
	migrations  int32
	begun       bool
	ended       bool
	broken      bool
}

// place is where a live job stands in the order now.
func (e *engine) place(job int32) place {
	s := &e.state[job]
	left, _ := s.after(e.now.Sub(s.last))
	return place{job: job, queue: s.queue,
		rank: e.order.Rank(&e.jobs[job], policy.Standing{Remaining: left, Since: s.since})}
}

// schedule sets the event of a running job: its end, or before that the time when it leaves its queue.
func (e *engine) schedule(job int32) {
	s := &e.state[job]
	s.end = e.now.Add(s.pause).Add(s.needs())
	at := s.end
	if int(s.queue) < len(e.order.Limits) {
		leaves := e.order.Leaves(&e.jobs[job], int(s.queue))
		at = min(at, e.now.Add(max(0, leaves-s.ran)))
	}
	e.events.set(job, at)
}

// needs is how long the job must work at its rate.
func (s *state) needs() time.Duration {
	if s.rate == 1 {
		return s.remaining
	}
	return unit.Duration(s.remaining.Seconds() / s.rate)
}

// after is what remains of the job's work, and of its pause, dt after last.
func (s *state) after(dt time.Duration) (remaining, pause time.Duration) {
	idle := min(dt, s.pause)
	done := dt - idle
	if s.rate != 1 {
		done = time.Duration(math.Round(float64(done) * s.rate))
	}
	return max(0, s.remaining-done), s.pause - idle
}

// floorTolerance keeps a rate that equals the floor up to rounding from counting as broken.
const floorTolerance = 1e-9

// advance brings a running job up to date.
func (e *engine) advance(job int32) {
	s := &e.state[job]
	dt := e.now.Sub(s.last)
	if dt > s.pause && s.rate < e.jobs[job].Floor-floorTolerance {
		s.broken = true
		s.below += dt - s.pause
	}
	s.remaining, s.pause = s.after(dt)
	s.ran += dt
	s.last = e.now
}

// takeRate is what a Rater reports to.
func (e *engine) takeRate(job int, rate float64) {
	if job < 0 || job >= len(e.jobs) || e.events.at[job] < 0 || !(rate > 0 && rate <= 1) {
		e.err = fmt.Errorf("placer gave job %d the rate %g", job, rate)
		return
	}
	e.setRate(int32(job), rate)
}

func (e *engine) setRate(job int32, rate float64) {
	if e.state[job].rate != rate {
		e.advance(job)
		e.state[job].rate = rate
		e.schedule(job)
	}
}
