// Package arbiter decides who holds the GPU now. Events go in with their time, decisions come out as data (as in etcd
// raft's Ready); it reads no clock, starts no goroutine and talks to nobody.
//
// There is one token per GPU. A job takes the tokens of all GPUs of all its sessions (processes) at once or none of
// them, since the kernels of its ranks spin on each other. Classes come first, weighted virtual time decides within a
// class, and a lower class lives in the gaps of a higher one, within a budget for what that costs the higher one.
package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// Options are what an operator may set. The zero value of each means its default.
type Options struct {
	Handover time.Duration // from one process's release to another's first launch; 0.14 ms, as measured on two cores
	Loss     float64       // share of a higher job's time that lower ones may cost it, in (0, 1); 0.01
	Minimum  float64       // share of a GPU that the besteffort class gets even beside busy higher ones, in [0, 1); 0
	Grace    time.Duration // before a lower class gets what a higher one just left, while its gaps are not known; 0.2 ms
	MaxDrain time.Duration // after a drop, until a silent holder is overrun; 80 ms, so that a waiter runs within 100 ms
	Settle   time.Duration // after a restart, for sessions to say what they hold, before the first grant; 500 ms
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		of *time.Duration
		to time.Duration
	}{
		{&o.Handover, 140 * time.Microsecond}, {&o.Grace, 200 * time.Microsecond},
		{&o.MaxDrain, 80 * time.Millisecond}, {&o.Settle, 500 * time.Millisecond},
	} {
		if *d.of <= 0 {
			*d.of = d.to
		}
	}
	if !(o.Loss > 0 && o.Loss < 1) {
		o.Loss = 0.01
	}
	if !(o.Minimum > 0 && o.Minimum < 1) {
		o.Minimum = 0
	}
	return o
}

// useful is the shortest slice worth a hand-over to a lower class and one back: as much again, so that at least half
// of the time it takes from the GPU is work.
func (o Options) useful() time.Duration { return 4 * o.Handover }

// Arbiter holds the tokens of the GPUs of one machine. Every method that takes an event first brings the arbiter to
// its time (a time before the last one counts as the last one) and returns what is to be done, in order; the slice is
// valid until the next call. It is not safe for concurrent use.
type Arbiter struct {
	o       Options
	now     unit.Time
	wake    unit.Time
	settled unit.Time // no grant before
	epoch   uint64
	joined  uint64 // jobs so far

	jobs     map[JobID]*job // looked up, never iterated
	sessions map[SessionID]*session
	gpus     []gpu
	waiting  []*job // in order of right
	short    []*job // that wait, and for which gaps were too short in this walk
	count    [classes]int
	out      []Decision
}

// gpu is one token.
type gpu struct {
	holder *job
	on     []*job                 // that use it, in order of joining
	clock  [classes]time.Duration // virtual time of each class: that of the last job served
	claim  unit.Time              // from when a waiter with more right needs it; set by each walk
	room   unit.Time              // when what is left of a gap is over, for those that use this GPU alone; the same
	done   bool                   // nothing more to decide about it in this walk
	owed   float64                // to the besteffort class, of its minimum; ns, as shares of short times would round to 0
}

// New makes an arbiter of so many GPUs, numbered from 0.
func New(gpus int, o Options) *Arbiter {
	return &Arbiter{
		o: o.withDefaults(), wake: unit.Never,
		jobs: map[JobID]*job{}, sessions: map[SessionID]*session{}, gpus: make([]gpu, gpus),
	}
}

// Restore makes an arbiter for a machine whose last one is gone. Its epochs are above epoch, the last one that may
// have been given out, and it grants nothing for the settle time, in which sessions join again and say what they hold.
func Restore(now unit.Time, gpus int, o Options, epoch uint64) *Arbiter {
	a := New(gpus, o)
	a.now, a.epoch = now, epoch+1
	a.settled = now.Add(a.o.Settle)
	a.wake = a.settled
	return a
}

// Next is when the arbiter wants Tick at the latest, unless an event comes first; unit.Never if it waits for events
// only.
func (a *Arbiter) Next() unit.Time { return a.wake }

// Epoch is the last epoch given out, for a later Restore.
func (a *Arbiter) Epoch() uint64 { return a.epoch }

// Tick lets time pass.
func (a *Arbiter) Tick(now unit.Time) []Decision {
	a.begin(now)
	return a.decide()
}

// Faults of Join.
var (
	ErrSession = errors.New("session exists")
	ErrGPUs    = errors.New("no such GPU")
	ErrJob     = errors.New("class or weight is out of range, or not that of the job's other sessions")
)

// mostWeight is the largest weight of a job: beyond it, a quantum of the largest would be a stall for the smallest.
const mostWeight = 1000

// Join adds a session. The first session of a job sets its class and weight. A session that holds a token from before
// a restart says its epoch: it keeps the token if its GPUs are free or held by its job, takes it from holders of lower
// epochs, and is dropped otherwise.
func (a *Arbiter) Join(now unit.Time, s Session) ([]Decision, error) {
	a.begin(now)
	if err := a.check(s); err != nil {
		return nil, fmt.Errorf("join session %d of job %s: %w", s.ID, s.Job, err)
	}
	j := a.jobs[s.Job]
	if j == nil {
		j = newJob(s, a.joined, a.now)
		a.joined++
		a.jobs[s.Job] = j
		a.count[s.Class]++
	}
	own := &session{id: s.ID, job: j, gpus: slices.Compact(slices.Sorted(slices.Values(s.GPUs)))}
	a.sessions[s.ID] = own
	j.sessions = append(j.sessions, own)
	a.regroup(j)
	if s.Epoch > 0 {
		a.replay(own, s.Epoch)
	}
	a.narrow(j)
	return a.decide(), nil
}

func (a *Arbiter) check(s Session) error {
	if a.sessions[s.ID] != nil {
		return ErrSession
	}
	if len(s.GPUs) == 0 || slices.Min(s.GPUs) < 0 || slices.Max(s.GPUs) >= len(a.gpus) {
		return ErrGPUs
	}
	j := a.jobs[s.Job]
	if s.Class < 0 || s.Class >= classes || s.Weight <= 0 || s.Weight > mostWeight || j != nil && (j.class != s.Class || j.weight != s.Weight) {
		return ErrJob
	}
	return nil
}

// Leave removes a session, whatever it holds. Its job stays, with the virtual time and the gaps that it had, also without
// sessions: nobody gains by leaving and joining again.
func (a *Arbiter) Leave(now unit.Time, id SessionID) []Decision {
	a.begin(now)
	s := a.sessions[id]
	if s == nil {
		return a.decide()
	}
	j := s.job
	delete(a.sessions, id)
	j.sessions = slices.DeleteFunc(j.sessions, func(x *session) bool { return x == s })
	a.regroup(j)
	if s.epoch > 0 && !j.open() {
		a.release(j)
	}
	if j.state == waiting && !j.wanting() {
		a.unqueue(j)
		j.state = resting
	}
	return a.decide()
}

// Forget ends a job: its sessions leave, and what was known of it goes.
func (a *Arbiter) Forget(now unit.Time, id JobID) []Decision {
	a.begin(now)
	j := a.jobs[id]
	if j == nil {
		return a.decide()
	}
	for _, s := range j.sessions {
		delete(a.sessions, s.id)
	}
	j.sessions = nil
	a.regroup(j)
	if j.holds() {
		a.release(j)
	}
	a.unqueue(j)
	delete(a.jobs, id)
	a.count[j.class]--
	return a.decide()
}

// SetHandover tells what a hand-over was measured to cost, from now on.
func (a *Arbiter) SetHandover(handover time.Duration) {
	if handover > 0 {
		a.o.Handover = handover
	}
}

// begin brings the arbiter to a time.
func (a *Arbiter) begin(now unit.Time) {
	passed := max(0, now.Sub(a.now))
	a.now = max(a.now, now)
	a.out = a.out[:0]
	a.charge(passed)
}
