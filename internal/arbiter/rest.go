package arbiter

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// rest is what lower classes may know and do about a job between its release of the tokens and its next request.
type rest struct {
	gaps  gaps
	since unit.Time // of the gap it is in
	open  bool      // it is in a gap, or waits after one
	late  bool      // the gap had begun before the release, nobody knows when

	asked   bool // to yield to a lower class
	lent    bool // a lower class was granted in this gap
	vain    bool // it yielded in this gap, and no lower class was granted before the tokens were handed back
	delayed bool // when it came back, a lower class held its GPUs
	back    unit.Time

	solvent unit.Time     // from when lower classes may cost it something: what they cost divided by the budget, after that
	spare   time.Duration // its gaps are left to it until they have lasted so long
	shrinks unit.Time     // when that is halved
	probe   unit.Time     // not asked to yield before
}

// Figures of the loss budget.
const (
	burst = 2 * time.Millisecond // of loss that may come at once: a few hand-overs
	probe = time.Second          // between tries whether gaps have become long enough: 0.014 % of the job's time

	mostSpare = 4 * time.Millisecond // gaps that are longer than that are seldom among those within an iteration
)

// begin starts a gap, if the job released by itself. One that did as soon as it was told to yield was in a gap already.
func (r *rest) begin(now unit.Time, itself, atOnce bool) {
	r.since, r.open, r.late, r.lent = now, itself, atOnce, false
}

// length predicts how long the gap will be that has lasted for elapsed.
func (r *rest) length(elapsed time.Duration) time.Duration {
	if r.late {
		return 2 * elapsed
	}
	return r.gaps.length(elapsed)
}

// resume ends the gap of a job that asks again. A gap that was made for a lower class and was too short for it shows
// that the next ones will hardly do.
func (a *Arbiter) resume(j *job) {
	r := &j.rest
	r.back, r.delayed = a.now, false
	if !r.open || r.late {
		return
	}
	gap := a.now.Sub(r.since)
	r.gaps.add(gap)
	a.judge(j, gap, r.asked && !r.lent)
}

// judge learns of a gap in which a job yielded in vain, since it was too short for anybody. Twice as long ones are left to the
// job from now on, as it may have long ones, too, and half of that after a while; where none is long, all are.
func (a *Arbiter) judge(j *job, gap time.Duration, vain bool) {
	r := &j.rest
	if !vain || gap >= a.o.Grace+a.o.useful() {
		return
	}
	r.spare = max(a.o.Grace, 2*j.spared)
	r.probe = a.now
	if r.spare > mostSpare {
		r.spare, r.probe = 0, a.now.Add(probe)
	}
	r.shrinks = a.now.Add(probe)
}

// spare is how long gaps of a job must have lasted to be asked for.
func (a *Arbiter) spare(j *job) time.Duration {
	if r := &j.rest; a.now >= r.shrinks && r.spare > 0 {
		r.spare /= 2
		if r.spare < a.o.Grace {
			r.spare = 0
		}
		r.shrinks = a.now.Add(probe)
	}
	return j.rest.spare
}

// lend notes in the gaps of higher jobs that a job was granted in them.
func (a *Arbiter) lend(j *job) {
	a.higher(j, func(k *job) {
		if k.state == resting {
			k.rest.lent = true
		}
	})
}

// higher calls f for each job of a higher class that uses a GPU of j, in a fixed order; some more than once.
func (a *Arbiter) higher(j *job, f func(*job)) {
	if !a.above(j) {
		return
	}
	for _, g := range j.gpus {
		for _, k := range a.gpus[g].on {
			if k.class < j.class {
				f(k)
			}
		}
	}
}

// debit charges the credit of a job that is being granted for what lower classes cost it: the hand-over back to it, and
// the wait where one of them held its GPUs.
func (a *Arbiter) debit(j *job) {
	r := &j.rest
	var loss time.Duration
	if r.open && (r.asked || r.lent) || r.delayed {
		loss = a.o.Handover
	}
	if r.delayed {
		loss += a.now.Sub(r.back)
	}
	a.pay(j, loss)
	r.open, r.asked, r.lent, r.delayed = false, false, false, false
}

// pay books a loss against a job's credit.
func (a *Arbiter) pay(j *job, loss time.Duration) {
	start := max(j.rest.solvent, a.now.Add(-a.spread(burst)))
	j.rest.solvent = start.Add(a.spread(loss))
	j.usage.Lost += loss
}

// spread is the time over which a loss is within the budget.
func (a *Arbiter) spread(loss time.Duration) time.Duration {
	return time.Duration(float64(loss) / a.o.Loss)
}

// solvent is from when a job can afford another hand-over to a lower one. One that is behind its minimum needs none:
// it would otherwise get it in a worse moment.
func (a *Arbiter) solvent(j, lower *job) unit.Time {
	if a.behind(lower) {
		return a.now
	}
	return j.rest.solvent
}

// room is until when the jobs above a waiting one are predicted to leave its GPUs alone, with time for the hand-over back:
// a.now or before if it may not have them now. Where a later look may say otherwise, it asks for one.
func (a *Arbiter) room(j *job) unit.Time {
	until := unit.Never
	a.higher(j, func(k *job) {
		if k.state != resting || !k.rest.open {
			return
		}
		if at := a.proven(k, j); at > a.now {
			a.look(at)
			until = a.now
			return
		}
		end := k.rest.since.Add(k.rest.length(a.now.Sub(k.rest.since)))
		if end.Sub(a.now) < a.o.useful()+j.late+a.o.Handover {
			a.look(max(end, k.rest.since.Add(a.o.useful()+j.late+a.o.Handover)) + 1)
		}
		until = min(until, end.Add(-a.o.Handover))
	})
	return until
}

// proven is from when on the gap that a job is in may be lent: when it can afford that, and after the grace where gaps too
// short to lend are known of it, or too few gaps.
func (a *Arbiter) proven(k, lower *job) unit.Time {
	at := a.solvent(k, lower)
	if settled := k.rest.gaps.full() && k.rest.gaps.shortest() > a.o.Grace+a.o.useful(); !settled {
		at = max(at, k.rest.since.Add(a.o.Grace))
	}
	return at
}

// adapt sets the window of a job after a slice that made a higher one wait, or did not.
func (j *job) adapt() {
	if j.hurt {
		j.window = max(leastWindow, j.window/2)
	} else {
		j.window = min(firstWindow, j.window+j.window/32)
	}
	j.hurt = false
}
