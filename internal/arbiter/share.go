package arbiter

import (
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// Start-time fair queueing (Goyal, Vin and Cheng, 1996) with two deviations: a job is charged for the time that it
// holds tokens, as that is what others cannot have, and continuously, as nobody knows beforehand how long it will; and
// a job that comes back keeps up to sleeper of what it is behind, so that a short pause between release and request
// costs it no turn.
const (
	sleeper = 100 * time.Millisecond // of virtual time: a dozen turns
	lead    = 100 * time.Millisecond // that a job may be ahead of a peer that waits: kernels up to that long are made up for
)

// charge books the time that passed to those who held tokens in it.
func (a *Arbiter) charge(passed time.Duration) {
	if passed == 0 {
		return
	}
	for g := range a.gpus {
		t := &a.gpus[g]
		if a.o.Minimum > 0 {
			a.owe(t, passed)
		}
		if j := t.holder; j != nil && j.held[0] == g {
			j.tag = j.first + a.now.Sub(j.start)/time.Duration(j.weight)
			j.usage.Held += passed
		}
	}
}

// enqueue lets a job wait. Its virtual time is at least that of its class, less what a sleeper keeps: time in which it
// asked for nothing is not owed to it. Of the GPUs of a gang the one counts where the class is behind most, as it holds the
// gang up; without peers, those that were there before count. A job is at most lead above any peer: it is not punished for
// what peers could not use that were held up elsewhere. O(jobs on its GPUs).
func (a *Arbiter) enqueue(j *job) {
	const none = time.Duration(math.MaxInt64)
	clock, peer, past := none, none-lead, time.Duration(0)
	for _, g := range j.gpus {
		t := &a.gpus[g]
		past = max(past, t.clock[j.class])
		for _, k := range t.on {
			if k != j && k.class == j.class && k.state != resting {
				clock, peer = min(clock, t.clock[j.class]), min(peer, k.tag)
			}
		}
	}
	if clock == none {
		clock = past
	}
	j.tag = min(max(j.tag, clock-sleeper/time.Duration(j.weight)), peer+lead)
	j.state = waiting
	i, _ := slices.BinarySearchFunc(a.waiting, j, before)
	a.waiting = slices.Insert(a.waiting, i, j)
}

// unqueue takes a job out of the queue, where it is there.
func (a *Arbiter) unqueue(j *job) {
	if j.state != waiting {
		return
	}
	i, found := slices.BinarySearchFunc(a.waiting, j, before)
	if !found {
		panic("arbiter: a waiting job is not in the queue")
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
}

// Figures of the minimum of the besteffort class.
const (
	slice  = 10 * time.Millisecond // that it is owed before it gets it: hand-overs of up to 1 ms add a tenth
	period = time.Second           // over which it is reckoned: what it gets beyond is forgotten later than that
)

// owe counts what the besteffort class is owed of a GPU: its minimum of the time in which it wants it, less what it
// gets.
func (a *Arbiter) owe(t *gpu, passed time.Duration) {
	if !slices.ContainsFunc(t.on, func(j *job) bool { return j.class == BestEffort && j.state != resting }) {
		return
	}
	t.owed += a.o.Minimum * float64(passed)
	if t.holder != nil && t.holder.class == BestEffort {
		t.owed -= float64(passed)
	}
	t.owed = min(float64(2*slice), max(-a.o.Minimum*float64(period), t.owed))
}

// behind says whether a job is of the besteffort class and that has less than its minimum.
func (a *Arbiter) behind(j *job) bool {
	return a.o.Minimum > 0 && j.class == BestEffort &&
		!slices.ContainsFunc(j.gpus, func(g int) bool { return a.gpus[g].owed <= 0 })
}

// due is when a besteffort job that waits gets a slice of the minimum; unit.Never for one that has none.
func (a *Arbiter) due(j *job) unit.Time {
	if a.o.Minimum == 0 || j.class != BestEffort {
		return unit.Never
	}
	at := a.now
	for _, g := range j.gpus {
		if missing := float64(slice) - a.gpus[g].owed; missing > 0 {
			at = max(at, a.now.Add(1+time.Duration(missing/a.o.Minimum)))
		}
	}
	return at
}
