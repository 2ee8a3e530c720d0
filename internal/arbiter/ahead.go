package arbiter

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// A job that finds its tokens where it left them loses nothing by having lent them. So a higher job is granted them ahead,
// before it asks, as soon as what is left of its gap, as predicted, is of no use to those below.

// handBack grants tokens ahead to a job in whose gap a lower one has no more room. Of several, the one that is predicted to
// return first has them. Where nothing is known of the gap, they stay free: only its length can tell. It says whether any was.
func (a *Arbiter) handBack(lower *job) bool {
	var first *job
	back := unit.Never
	a.higher(lower, func(k *job) {
		if k.state != resting || !k.rest.open || a.proven(k, lower) > a.now || !a.foresees(k) || !a.free(k) {
			return
		}
		if end := k.rest.since.Add(k.rest.length(a.now.Sub(k.rest.since))); end < back {
			first, back = k, end
		}
	})
	if first == nil {
		return false
	}
	r := &first.rest
	if r.asked && !r.lent { // it was asked for nothing
		a.pay(first, a.o.Handover)
		r.probe = a.now.Add(probe)
	}
	r.asked, r.lent, r.delayed = false, false, false
	first.ahead, first.returned = true, unit.Never
	a.give(first, unit.Never, false)
	return true
}

// foresees says whether the end of a job's gap is predicted by others that were as long.
func (a *Arbiter) foresees(k *job) bool {
	longer, _ := k.rest.gaps.longer(a.now.Sub(k.rest.since))
	return longer > 0 && !k.rest.late && len(k.sessions) > 0
}

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
	if length-elapsed >= a.o.useful()+lower.late+2*a.o.Handover {
		return a.now
	}
	return h.rest.since.Add(max(length, a.o.useful()+lower.late+2*a.o.Handover) + 1)
}

// resumed ends the gap of a job that was granted ahead and returns its tokens. It says whether the job used them; otherwise
// the gap goes on.
func (a *Arbiter) resumed(j *job) bool {
	rested := min(j.returned, a.now).Sub(j.start)
	j.tag = max(j.first, j.tag-rested/time.Duration(j.weight))
	j.usage.Held -= rested
	used := j.returned < unit.Never
	if used {
		j.rest.gaps.add(j.returned.Sub(j.rest.since))
	} else {
		j.rest.open = true
	}
	j.ahead = false
	return used
}

// crossed notes that a job asked for tokens that had been granted to it ahead at about that time: it waited for at most a
// hand-over.
func (a *Arbiter) crossed(j *job) {
	if j.ahead && j.returned == unit.Never {
		j.returned = a.now
		a.pay(j, min(a.o.Handover, a.now.Sub(j.start)))
	}
}
