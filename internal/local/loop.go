package local

import (
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/plan"
)

// Times of the loop.
const (
	planPause  = 20 * time.Millisecond // between two plans: what comes meanwhile is decided together
	lookEvery  = time.Second           // at the agent's figures
	lookIdle   = 5 * time.Second       // the same while there is no job
	saveEvery  = 30 * time.Second      // what is kept but of little moment
	clockSlack = 2 * time.Second       // by which the wall clock may differ from the time that passed
)

// loop plans when something changed, observes at each window, and looks at the agent now and then.
func (b *Box) loop() {
	look, save := time.NewTicker(lookEvery), time.NewTicker(saveEvery)
	defer look.Stop()
	defer save.Stop()
	window := time.Now()
	clock := newClock(time.Now())
	b.plan()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-save.C:
			b.save()
			b.forget(time.Now())
		case <-look.C:
			now := time.Now()
			if step := clock.step(now); step != 0 {
				b.stepped(step)
			}
			b.checkRoom()
			if now.Sub(b.looked()) < lookIdle-lookEvery/2 && b.idle() {
				continue
			}
			b.look(now)
			if now.Sub(window) >= b.o.Window {
				b.observe(now)
				window = now
			}
			b.settle(now)
			b.saveEvents()
			b.keepUnsaved()
		case <-b.kick:
			b.decide()
			select {
			case <-b.ctx.Done():
				return
			case <-time.After(planPause):
			}
		}
	}
}

// looked is when the agent's figures were last looked at.
func (b *Box) looked() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.at
}

// idle says whether there is nothing to look after: no job runs or waits, and nothing is to be written.
func (b *Box) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.unsaved) == 0 && len(b.events.unsaved) == 0 && !slices.ContainsFunc(b.order, func(id box.ID) bool { return b.jobs[id].State != box.Done })
}

// clock notices when the wall clock is set: what counts time here goes by the monotonic clock, and dates are shown as they are.
type clock struct{ wall, monotonic time.Time }

func newClock(now time.Time) clock { return clock{now.Round(0), now} }

// step is by how much the wall clock was set since the last call, 0 for not worth telling.
func (c *clock) step(now time.Time) time.Duration {
	passed, shown := now.Sub(c.monotonic), now.Round(0).Sub(c.wall)
	*c = newClock(now)
	if step := shown - passed; step.Abs() > clockSlack {
		return step.Round(time.Second)
	}
	return 0
}

// decide makes a snapshot, lets dispatch decide, and starts what may start if the snapshot still holds.
func (b *Box) decide() {
	began := time.Now()
	b.mu.Lock()
	b.cancelOrphans(began)
	s := b.snapshot(began)
	b.mu.Unlock()
	d := dispatch.Plan(&s)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures.Plan.Observe(time.Since(began).Seconds())
	again := false
	for _, start := range d.Starts {
		if !b.holds(&s, start) {
			again = true
			continue
		}
		b.start(b.jobs[start.Job], start.GPUs)
	}
	b.takeWaits(&d)
	if again {
		b.plan()
	}
	b.touch()
}

// takeWaits remembers why jobs wait.
func (b *Box) takeWaits(d *dispatch.Decision) {
	clear(b.waits)
	for _, w := range d.Waits {
		b.waits[w.Job] = w
	}
	b.promised = d.Promised
	b.line = d.Order
}

// holds says whether a start is still what the snapshot says it is: the job waits, and nothing came to its GPUs. The mutex is
// held.
func (b *Box) holds(s *dispatch.State, start dispatch.Start) bool {
	j := b.jobs[start.Job]
	if b.closed || j == nil || j.State != box.Waiting || j.StopAsked {
		return false
	}
	for _, g := range start.GPUs {
		if b.state.gpus[g].closed(b.drained[g]) != s.GPUs[g].Closed {
			return false
		}
	}
	for _, id := range b.order {
		other := b.jobs[id]
		if !other.State.Live() || !slices.ContainsFunc(other.On, func(g int) bool { return slices.Contains(start.GPUs, g) }) {
			continue
		}
		was := slices.ContainsFunc(s.Jobs, func(x dispatch.Job) bool { return x.ID == id && len(x.On) > 0 })
		if !was && !slices.ContainsFunc(b.fresh, func(f box.ID) bool { return f == id }) {
			return false
		}
	}
	return true
}

// snapshot is what dispatch decides on. The mutex is held.
func (b *Box) snapshot(now time.Time) dispatch.State {
	b.fresh = b.fresh[:0]
	s := dispatch.State{Now: now, Users: map[string]dispatch.User{}, Options: dispatch.Options{Epsilon: epsilon, Grace: b.o.Grace}}
	if b.o.Dispatch != nil {
		b.o.Dispatch(&s.Options)
	}
	for g := range b.gpus {
		s.GPUs = append(s.GPUs, b.state.gpus[g].dispatch(b.gpus[g].Usable, b.drained[g]))
	}
	for _, id := range b.order {
		j := b.jobs[id]
		if j.State == box.Done {
			continue
		}
		s.Jobs = append(s.Jobs, b.asDispatch(j, now))
		if j.live != nil && len(j.live.target) > 0 { // where it goes is taken already
			there := b.asDispatch(j, now)
			there.ID, there.On, there.NoMove = id|arriving, j.live.target, true
			s.Jobs = append(s.Jobs, there)
		}
		if _, known := s.Users[j.User]; !known {
			l := b.o.Limits(j.User)
			s.Users[j.User] = dispatch.User{Weight: l.Weight, Used: b.used[j.User], MaxGPUs: l.MaxGPUs, MaxRunning: l.MaxRunning}
		}
	}
	for _, x := range b.book.Bans() {
		s.Bans = append(s.Bans, dispatch.Ban{A: b.book.Config(x.A), B: b.book.Config(x.B), Until: x.Until})
	}
	s.Table = b.book.Safe()
	return s
}

// arriving marks, in a snapshot, the second entry of a job that is on its way to other GPUs.
const arriving box.ID = 1 << 62

// epsilon is the probability with which jobs on a GPU may want more memory than it has at a random instant (C2). They wait
// for it then.
const epsilon = 0.05

// asDispatch is a job as dispatch sees it. The mutex is held.
func (b *Box) asDispatch(j *job, now time.Time) dispatch.Job {
	d := dispatch.Job{
		ID: j.ID, User: j.User, Priority: j.Priority, Submitted: j.Queued, Class: classOf(j.Class), Floor: j.Floor, GPUs: j.GPUs,
		Config: b.book.Config(j.kind()), Memory: j.memory(), Cooperates: j.Cooperate, MaxTime: j.MaxTime, Ran: j.Ran, Migratable: j.Migratable, NoMove: j.NoMove,
		Pause: movePause, Rate: j.MeanRate,
	}
	if j.State.Live() {
		d.On, d.Stopping = j.On, j.State == box.Stopping
	}
	if j.live != nil {
		d.Started = j.live.began
		d.Ran += now.Sub(j.live.began)
	}
	if j.State == box.Waiting {
		d.Waits = b.waitsFor(j)
	}
	return d
}

// movePause is how long a moved job makes no progress, until more is known: the checkpoint, the start, the warming up.
const movePause = 10 * time.Second

// waitsFor is why a job waits for something other than a place. The mutex is held.
func (b *Box) waitsFor(j *job) plan.Code {
	for _, id := range j.After {
		if other := b.jobs[id]; other != nil && other.State != box.Done {
			return plan.Dependency
		}
	}
	if j.Stdin && j.stdin == nil && time.Since(j.Submitted) < stdinWait {
		return plan.Planning
	}
	if j.StopAsked || j.held.After(time.Now()) {
		return plan.Planning
	}
	return ""
}

// stdinWait is how long a job waits for the input that it was promised: who handed it in may have to wait for a processor, or be gone.
const stdinWait = 10 * time.Second

// cancelOrphans ends jobs that would come after one that did not succeed. The mutex is held.
func (b *Box) cancelOrphans(now time.Time) {
	for again := true; again; {
		again = false
		for _, id := range b.order {
			j := b.jobs[id]
			if j.State != box.Waiting {
				continue
			}
			for _, after := range j.After {
				if other := b.jobs[after]; other != nil && other.State == box.Done && other.Outcome != box.Succeeded {
					b.finish(j, ending{outcome: box.Cancelled, fault: "job " + after.String() + " has not succeeded", at: now})
					again = true
					break
				}
			}
		}
	}
}
