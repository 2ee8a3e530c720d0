package muri

import (
	"context"
	"errors"
	"math"
)

// endTolerance is the relative distance within which predicted ends are one event. Tiresias joins only equal ones.
const endTolerance = 1e-9

// errStalled means that jobs wait while nothing runs and none is to come: a policy's fault, not the input's.
var errStalled = errors.New("jobs wait on an idle cluster")

// scheduler is what a policy adds to the loop. All calls are in event order.
type scheduler interface {
	arrive(j *job)
	depart(j *job) // j ended; it was running or, where ends are attached to an arrival, may wait
	// schedule says who runs from now on. It sets job.running of every job whose state changes. The jobs that ran
	// until now are in previous, in the policy's list order; those that run from now are appended to next, likewise.
	schedule(now float64, previous, next []*job) decision
}

// decision is the outcome of one scheduling pass.
type decision struct {
	running []*job
	inUse   int     // GPUs with a running job
	wake    float64 // when the policy wants to decide again even if nothing happens; +Inf for never
}

// group is running jobs that end together.
type group struct {
	at      float64
	members []*job
}

// loop is the event loop of the published simulator. An event is an arrival (all jobs of one submit time), an end
// (all jobs of one group) or a wake of the policy. At each, running jobs advance, then the policy decides anew.
type loop struct {
	policy    scheduler
	tolerance float64
	arrivals  []*job // yet to come, by submit time, ties in file order
	live      int    // jobs that arrived and have not ended
	running   []*job
	spare     []*job // buffer of the previous running list
	wake      float64
	groups    []group // the first used ones; the rest keep their memory
	used      int
	// attached are jobs that will end with the next arrival: their end once coincided with it exactly. They stay so
	// even if a wake before it moves their predicted end, as in the published simulator.
	attached []*job
	now      float64
	observe  observer
}

// observer is told what the loop does.
type observer interface {
	started(j *job, now float64)
	ended(j *job, now float64)
	decided(now float64, inUse int, running []*job)
}

// run replays to the last end, or until ctx is done. Each event costs the policy's pass plus O(running^2).
func (l *loop) run(ctx context.Context) error {
	l.wake = math.Inf(1)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := l.step()
		if err != nil || !more {
			return err
		}
	}
}

// step handles the next event; more is false when there is none.
func (l *loop) step() (more bool, err error) {
	arrival, first := math.Inf(1), l.earliestGroup()
	end := math.Inf(1)
	if len(l.arrivals) > 0 {
		arrival = l.arrivals[0].submit
	}
	if first != nil {
		end = first.at
	}
	if math.IsInf(arrival, 1) && math.IsInf(end, 1) {
		if l.live > 0 {
			return false, errStalled
		}
		return false, nil
	}
	if arrival == end {
		l.attached = append(l.attached, first.members...)
	}
	at := min(arrival, end)
	if l.wake < at {
		l.advance(l.wake)
		return true, nil
	}
	if end == at {
		l.finish(first.members, at)
	}
	if arrival == at {
		l.finish(l.attached, at)
		l.attached = l.attached[:0]
		l.admit(at)
	}
	l.advance(at)
	return true, nil
}

// finish ends the jobs that have not ended yet.
func (l *loop) finish(jobs []*job, at float64) {
	for _, j := range jobs {
		if j.done {
			continue
		}
		j.done = true
		if j.running {
			j.execute(l.now, at)
		}
		l.policy.depart(j)
		l.live--
		l.observe.ended(j, at)
	}
}

func (l *loop) admit(at float64) {
	for len(l.arrivals) > 0 && l.arrivals[0].submit == at {
		l.policy.arrive(l.arrivals[0])
		l.arrivals = l.arrivals[1:]
		l.live++
	}
}

// advance moves the running jobs to the event's time and lets the policy decide.
func (l *loop) advance(at float64) {
	previous := l.running[:0]
	for _, j := range l.running {
		if j.done {
			continue
		}
		j.progress(l.now, at)
		j.wasRunning = true
		previous = append(previous, j)
	}
	l.now = at
	d := l.policy.schedule(at, previous, l.spare[:0])
	for _, j := range previous {
		if !j.running {
			j.preemptions++
			j.wasRunning = false
		}
	}
	for _, j := range d.running {
		if !j.wasRunning {
			l.observe.started(j, at)
		}
		j.wasRunning = false
	}
	l.running, l.spare, l.wake = d.running, previous, d.wake
	l.groupEnds()
	l.observe.decided(at, d.inUse, d.running)
}

// groupEnds predicts the end of every running job, without overhead, and joins those within tolerance of the first
// group that fits, in list order.
func (l *loop) groupEnds() {
	l.used = 0
next:
	for _, j := range l.running {
		at := l.now + float64(j.remaining*j.pace)
		for i := range l.groups[:l.used] {
			g := &l.groups[i]
			if math.Abs(at-g.at) <= l.tolerance*max(math.Abs(at), math.Abs(g.at)) {
				g.members = append(g.members, j)
				continue next
			}
		}
		if l.used == len(l.groups) {
			l.groups = append(l.groups, group{})
		}
		g := &l.groups[l.used]
		g.at, g.members = at, append(g.members[:0], j)
		l.used++
	}
}

// earliestGroup is the group that ends first, the first opened on ties; nil when nothing runs.
func (l *loop) earliestGroup() *group {
	var first *group
	for i := range l.groups[:l.used] {
		if g := &l.groups[i]; first == nil || g.at < first.at {
			first = g
		}
	}
	return first
}
