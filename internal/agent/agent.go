// Package agent is the node agent: the sockets around internal/arbiter and internal/ledger. One goroutine, the reactor, owns
// the arbiter, the ledgers, the sessions of all processes and the allocations of all jobs; whatever is slow (the driver's
// process lists, the control socket, the disk, the log) happens in other goroutines, which hand their results in.
//
// The socket that accepts a connection is the identity of who connects: there is one per allocation, in a folder that only
// that job sees. The kernel says which process and user is behind it; nothing that a process says of itself, and nothing in
// its environment, gives it rights.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
)

// Options are what an agent is started with.
type Options struct {
	Dir     string            // of its sockets and its state
	Machine device.Machine    // its GPUs
	Locks   string            // folder of the GPUs' locks; DefaultLocks for ""
	Arbiter arbiter.Options   // of all GPUs
	Chunk   unit.Bytes        // that ledgers lend at once; 0 for their least
	Audit   Audit             // nil for none
	Log     *slog.Logger      // nil for none
	Poll    time.Duration     // between looks at the driver's process lists; 1 s for 0
	Env     map[string]string // that processes need beside their socket; in a file of each allocation's folder
}

// Audit is told who may launch, by somebody who sees the launches: the broker of emulated GPUs. Allow comes before the
// process learns of it, Revoke after it said that nothing is outstanding.
type Audit interface {
	Enter(pid int) // it is asked for tokens from now on
	Allow(pid, gpu int, epoch uint64)
	Revoke(pid, gpu int)
	Overrun(pid, gpu int)
	Close() // the agent ends: nobody is asked for tokens from now on. Nothing is said after it
}

// Agent is a running agent.
type Agent struct {
	o     Options
	clock clock
	poll  *poller
	locks []*lock

	arb      *arbiter.Arbiter
	gpus     []*gpu
	allocs   map[uint64]*allocation
	sessions map[uint64]*session
	conns    map[*conn]struct{}
	ids      struct{ alloc, session uint64 } // the last ones given

	state    keeper
	journal  journal
	comeback // after a restart
	handover handover
	events   events
	messages struct{ in, out, token, memory uint64 }
	granted  struct { // ever
		grants, overruns, launches uint64
		window                     time.Duration // of the last grant
	}
	counts       counts
	registration histogram // from the acceptance of a connection to WELCOME
	holders      map[*session]struct{}
	wanting      int       // sessions that wait for a token
	felt         unit.Time // when holders were last looked at
	started      time.Time
	served       uint64 // from when it could be asked, in the ticks that /proc counts in
	group        string // the agent's own control group

	work    []func()  // to be done after the event at hand
	paused  []*conn   // until their allocation may say more
	resumes unit.Time // when that is tried
	second  unit.Time // when the next look at everything is due
	control *control

	stopping bool
	fault    error
	logged   chan Event
	gone     chan struct{} // closed when the reactor has ended
	stop     context.CancelFunc
	ended    []chan struct{} // of the agent's goroutines
}

// gpu is a GPU of the machine.
type gpu struct {
	device.GPU
	number  int
	ledger  *ledger.Ledger
	waits   map[ledger.Request]*wait
	crowded bool   // somebody waits for the pool
	xid     uint64 // of the last critical error; 0 once the GPU is well again
	broke   unit.Time
	busy    float64
	blind   string             // why its processes cannot be listed
	foreign map[int]unit.Bytes // processes of nobody
	busyFor time.Duration      // the token was held
	since   unit.Time          // it is held; 0 when it is not
	holders int                // sessions that hold it
	late    map[uint64]bool    // jobs that it was said of that others wait for their memory
}

// Open starts an agent: it takes the locks of its folder and GPUs, reads what the last one left, and serves until Close, also beyond
// the end of ctx.
func Open(ctx context.Context, o Options) (*Agent, error) {
	a := &Agent{
		o: o, clock: newClock(), allocs: map[uint64]*allocation{}, sessions: map[uint64]*session{}, conns: map[*conn]struct{}{}, holders: map[*session]struct{}{}, comeback: comeback{missed: map[*session]struct{}{}},
		logged: make(chan Event, 256), gone: make(chan struct{}), started: time.Now(), group: cgroupOf(os.Getpid()),
	}
	if a.o.Log == nil {
		a.o.Log = slog.New(slog.DiscardHandler)
	}
	if a.o.Poll <= 0 {
		a.o.Poll = time.Second
	}
	a.events.log = a.logged
	if err := a.open(); err != nil {
		a.release()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	a.run(func() { write(a.o.Log, a.logged) })
	a.run(a.state.serve)
	a.run(a.react)
	a.run(func() { a.watch(ctx) })
	a.run(func() { a.watchFaults(ctx) })
	a.run(func() { a.control.serve(ctx) })
	return a, nil
}

// open makes all that the reactor needs.
func (a *Agent) open() error {
	if err := makeDir(a.o.Dir); err != nil {
		return err
	}
	if err := a.lock(); err != nil {
		return err
	}
	var err error
	if a.poll, err = newPoller(); err != nil {
		return err
	}
	for i, g := range a.o.Machine.GPUs() {
		a.gpus = append(a.gpus, &gpu{GPU: g, number: i, ledger: ledger.New(g.Usable, a.o.Chunk), waits: map[ledger.Request]*wait{}, foreign: map[int]unit.Bytes{}})
	}
	if a.handover.cost = a.o.Arbiter.Handover; a.handover.cost == 0 {
		a.handover.cost = firstHand
	}
	a.o.Arbiter.Handover = a.handover.cost
	if err := a.restore(); err != nil {
		return err
	}
	a.control, err = listenControl(a)
	a.served = ticks()
	return err
}

// run starts a goroutine of the agent.
func (a *Agent) run(f func()) {
	ended := make(chan struct{})
	a.ended = append(a.ended, ended)
	go func() {
		defer close(ended)
		f()
	}()
}

// Close ends the agent and waits for its goroutines. Its jobs go on: they run free until the next agent is there.
func (a *Agent) Close() error {
	a.stop()
	a.control.close()
	a.poll.call(func() { a.stopping = true })
	for _, ended := range a.ended {
		<-ended
	}
	a.release()
	return a.fault
}

// release gives back what open took.
func (a *Agent) release() {
	if a.control != nil {
		a.control.close()
	}
	if a.poll != nil {
		a.poll.close()
	}
	a.journal.close()
	for _, l := range a.locks {
		l.release()
	}
}

// react is the reactor.
func (a *Agent) react() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	urgent()
	defer close(a.gone)
	defer close(a.logged)
	defer close(a.state.wake)
	a.second = a.clock.now()
	for !a.stopping {
		if err := a.poll.wait(a.until(), a.settle); err != nil {
			a.fault = err
			a.note(Event{Type: EventState, Text: err.Error()})
			break
		}
		a.settle()
	}
	a.shut()
}

// until is when the reactor has something to do although nothing happens.
func (a *Agent) until() unit.Time {
	until := min(a.arb.Next(), a.second)
	if len(a.paused) > 0 {
		until = min(until, a.resumes)
	}
	if len(a.holders) > 0 && a.wanting > 0 {
		until = min(until, a.felt.Add(pulse))
	}
	if a.unsettled {
		until = min(until, a.settles)
	}
	return until
}

// settle does what is due after an event: what the event left to do, the arbiter's own deadlines, and once a second the
// rest.
func (a *Agent) settle() {
	a.finish()
	now := a.clock.now()
	if now >= a.arb.Next() {
		a.act(a.arb.Tick(now))
	}
	a.resume(now)
	a.feel(now)
	if a.unsettled && now >= a.settles {
		a.settled()
	}
	if now >= a.second {
		a.second = now.Add(time.Second)
		a.look(now)
	}
	a.finish()
}

// later leaves something to be done when the event at hand has been dealt with.
func (a *Agent) later(f func()) { a.work = append(a.work, f) }

func (a *Agent) finish() {
	for len(a.work) > 0 {
		f := a.work[0]
		a.work = a.work[1:]
		f()
	}
}

// look is done once a second.
func (a *Agent) look(now unit.Time) {
	for c := range a.conns {
		if c.session == nil && now.Sub(c.since) > greeting {
			c.close()
		}
	}
	for _, al := range a.allocs {
		al.count(now)
		al.listen()
		al.sweep()
	}
	a.lookAtBooks(now)
	a.measure(now)
	a.keep(now)
}

// shut ends the reactor: it writes the state and lets go of everybody.
func (a *Agent) shut() {
	if err := a.keepAtOnce(); err != nil {
		a.note(Event{Type: EventState, Text: err.Error()})
		a.fault = errors.Join(a.fault, err)
	}
	if a.o.Audit != nil {
		a.o.Audit.Close() // before programs learn that they are alone: soon after that they launch as they like
	}
	for c := range a.conns {
		c.close()
	}
	a.work = nil
	for _, s := range a.sessions {
		s.forgetProcess()
	}
	for _, al := range a.allocs {
		al.shut()
	}
	a.poll.close()
}

// do runs f on the reactor and waits for it. It says false when the agent ended before.
func (a *Agent) do(f func()) bool {
	done := make(chan struct{})
	if !a.poll.call(func() { f(); a.finish(); close(done) }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-a.gone:
		return false
	}
}

// note files an event.
func (a *Agent) note(e Event) {
	e.Time = time.Now().UTC()
	a.events.add(e)
}

// clock is the machine's monotonic time, the same for an agent and the one before it.
type clock struct {
	base  unit.Time
	start time.Time
}

func newClock() clock {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return clock{unit.Time(t.Nano()), time.Now()}
}

func (c clock) now() unit.Time { return c.base.Add(time.Since(c.start)) }

// at is a GPU of the machine by its number or UUID.
func (a *Agent) at(name string) (*gpu, bool) {
	for _, g := range a.gpus {
		if name == fmt.Sprint(g.number) || name == fmt.Sprintf("gpu%d", g.number) || name == g.UUID.String() {
			return g, true
		}
	}
	return nil, false
}
