package emugpu

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
)

// run is the thread of the model: it takes what processes submitted, advances the model to now, tells who waits, and
// sleeps until the next instant that somebody waits for.
func (b *Broker) run() {
	runtime.LockOSThread() // never unlocked: the thread's timer slack ends with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	sleeping := b.clock.page.u32(clockSleeping)
	events := make([]unix.EpollEvent, 64)
	for {
		b.mu.Lock()
		b.pass()
		sleeping.Store(1)
		b.pass() // whoever did not ring, as the broker did not sleep yet
		most := b.patience()
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return
		}
		n := b.waiter.wait(most, events)
		sleeping.Store(0)
		b.reap(events[:n])
	}
}

// reap ends the attachments of processes that ended.
func (b *Broker) reap(events []unix.EpollEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		for _, a := range b.attachments {
			if a.pidfd == int(e.Fd) && a.ended() {
				b.detach(a)
				break
			}
		}
	}
}

// pass brings the model to now. Virtual time goes on, too, while every thread waits.
func (b *Broker) pass() {
	b.catchUp()
	for b.clock.mode == Virtual && b.quiet() {
		b.catchUp() // nobody runs: what there is now is all there is
		next := min(b.model.Next(), b.nextSleeper())
		if next == unit.Never {
			return
		}
		if b.quiet() {
			b.model.Advance(next)
			b.clock.jump(b.model.Now())
			b.publish()
		}
	}
}

// catchUp takes what was submitted until now. In virtual time it does so only when no thread runs: then what happens at
// one instant is complete, and in an order that does not depend on the processors.
func (b *Broker) catchUp() {
	if b.clock.mode == Virtual {
		if running, _ := b.threadsNow(); running {
			return
		}
	}
	b.take()
	b.model.Advance(b.clock.now())
	b.publish()
}

// publish tells processes what ended.
func (b *Broker) publish() {
	for _, r := range b.model.Records() {
		if ring := b.byStream[r.Stream]; ring != nil {
			ring.context.record(r)
		}
	}
	for _, s := range b.model.Changed() {
		if r := b.byStream[s]; r != nil {
			r.word(ringDone).Store(s.Done())
			b.retire(r)
		}
	}
	now := b.model.Now()
	for _, a := range b.attachments {
		for _, t := range a.threads() {
			if t.over(a, now) {
				t.resume()
			}
		}
	}
}

// quiet says whether somebody waits and nobody runs.
func (b *Broker) quiet() bool {
	running, waiting := b.threadsNow()
	return waiting && !running
}

// threadsNow says whether any thread runs, and whether any waits.
func (b *Broker) threadsNow() (running, waiting bool) {
	for _, a := range b.attachments {
		for _, t := range a.threads() {
			switch t.state() {
			case threadRunning:
				return true, waiting
			case threadWaiting, threadSleeping:
				waiting = true
			}
		}
	}
	return false, waiting
}

// nextSleeper is when the first sleeping thread wakes.
func (b *Broker) nextSleeper() unit.Time {
	next := unit.Never
	for _, a := range b.attachments {
		for _, t := range a.threads() {
			if t.state() == threadSleeping {
				next = min(next, t.until())
			}
		}
	}
	return next
}

// patience is how long the thread may sleep: until something that somebody waits or polls for may have ended. What may
// end earlier than a bound cannot be waited for.
func (b *Broker) patience() time.Duration {
	if b.clock.mode == Virtual {
		return -1
	}
	next, first := b.nextSleeper(), unit.Never
	for _, a := range b.attachments {
		for _, t := range a.threads() {
			if t.state() == threadWaiting {
				if r := a.ring(t.context(), t.ring()); r != nil {
					first = min(first, b.model.Bound(r.stream, uint64(t.until())))
				}
			}
		}
	}
	for _, r := range b.rings {
		if want := r.word(ringWant).Load(); want > r.stream.Done() {
			first = min(first, b.model.Bound(r.stream, want))
		}
	}
	if first != unit.Never {
		next = min(next, max(first, b.model.Next()))
	}
	if next == unit.Never {
		return -1
	}
	return b.clock.real(next.Sub(b.clock.now()))
}
