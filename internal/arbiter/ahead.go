package arbiter

import (
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// A job that finds its tokens where it left them loses nothing by having lent them. So a higher job is granted them ahead,
// before it asks, as soon as what is left of its gap is likely to be of no use to those below.

// forget is the share by which a lower job's drain is believed to be shorter after each gap that it did not get for it: one
// that was slow once is tried again, in time.
const forget = 64

// handBack grants tokens ahead to a job in whose gap a lower one has no more room. Of several, the one that is predicted to
// return first has them.
func (a *Arbiter) handBack(lower *job) {
	var first *job
	back := unit.Never
	a.higher(lower, func(k *job) {
		if k.state != resting || !k.rest.open || a.proven(k, lower) > a.now || !a.returns(k, lower) || !a.free(k) {
			return
		}
		if end := k.rest.since.Add(k.rest.length(a.now.Sub(k.rest.since))); end < back {
			first, back = k, end
		}
	})
	if first == nil {
		return
	}
	first.rest.vain = first.rest.vain || first.rest.asked && !first.rest.lent
	a.giveAhead(first)
}

func (a *Arbiter) giveAhead(k *job) {
	k.rest.asked, k.rest.lent, k.rest.delayed = false, false, false
	k.ahead, k.returned = true, unit.Never
	a.give(k, unit.Never, false)
}

// sendHome grants tokens ahead that were lent, or asked for to be, and that nobody wants any more, shortly before the gap is
// predicted to end.
func (a *Arbiter) sendHome() {
	waits := func(k *job) bool { return k.state == waiting }
	for g := range a.gpus {
		t := &a.gpus[g]
		if t.holder != nil || slices.ContainsFunc(t.on, waits) {
			continue
		}
		for _, k := range t.on {
			elapsed := a.now.Sub(k.rest.since)
			if k.state != resting || !k.rest.open || !k.rest.lent && !k.rest.asked || k.rest.late || k.rest.gaps.beyond(elapsed) == 0 || !a.free(k) {
				continue
			}
			if at := k.rest.since.Add(k.rest.length(elapsed) - 2*a.o.Handover); at > a.now {
				a.look(at)
			} else if len(k.sessions) > 0 {
				a.giveAhead(k)
				break
			}
		}
	}
}

// lent says whether a gap of a job above was lent already.
func (a *Arbiter) lent(lower *job) bool {
	lent := false
	a.higher(lower, func(k *job) { lent = lent || k.state == resting && k.rest.lent })
	return lent
}

// returns says whether a job is likely to return from its gap before that is worth lending: of the gaps remembered that lasted
// as long, most did not last so much longer. Where none did, only its length can tell, and its tokens stay free.
func (a *Arbiter) returns(k, lower *job) bool {
	elapsed := a.now.Sub(k.rest.since)
	longer := k.rest.gaps.beyond(elapsed)
	return len(k.sessions) > 0 && !k.rest.late && longer > 0 && 2*k.rest.gaps.beyond(elapsed+a.worth(lower)) < longer
}

// worth is how long a gap must last from now on to be lent to a job.
func (a *Arbiter) worth(lower *job) time.Duration { return a.o.useful() + lower.late + 2*a.o.Handover }

// free says whether nobody holds or claims a GPU of a job.
func (a *Arbiter) free(k *job) bool {
	for _, g := range k.gpus {
		if a.gpus[g].holder != nil || a.gpus[g].claim < unit.Never {
			return false
		}
	}
	return true
}

// reclaim is when a job that was granted ahead is to be asked for its tokens: at once if it has not returned from the gap
// by then, and the gap is so much longer than was predicted that it is worth lending again.
func (a *Arbiter) reclaim(h, lower *job) unit.Time {
	elapsed := a.now.Sub(h.rest.since)
	length := h.rest.length(elapsed)
	if length-elapsed >= a.worth(lower) {
		return a.now
	}
	return h.rest.since.Add(max(length, a.worth(lower)) + 1)
}

// resumed ends the gap of a job that was granted ahead and returns its tokens. It says whether the job used them; otherwise
// the gap goes on.
func (a *Arbiter) resumed(j *job) bool {
	rested := min(j.returned, a.now).Sub(j.start)
	j.tag = max(j.first, j.tag-rested/time.Duration(j.weight))
	j.usage.Held -= rested
	j.ahead = false
	if j.returned == unit.Never {
		j.rest.open = true
		return false
	}
	gap := j.returned.Sub(j.rest.since)
	j.rest.gaps.add(gap)
	a.judge(j, gap, j.rest.vain)
	j.rest.vain = false
	return true
}

// crossed notes that a job asked for tokens that had been granted to it ahead at about that time: it waited for at most a
// hand-over.
func (a *Arbiter) crossed(j *job) {
	if j.ahead && j.returned == unit.Never {
		j.returned = a.now
		a.pay(j, min(a.o.Handover, a.now.Sub(j.start)))
	}
}
