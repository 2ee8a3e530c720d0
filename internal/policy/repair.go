package policy

import (
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// ban keeps two configurations apart until a time.
type ban struct {
	until unit.Time
	pair  [2]int
}

// pairOf is two configurations in either order.
func pairOf(i, l int) [2]int { return [2]int{min(i, l), max(i, l)} }

// liftBans ends the bans whose time has come. A lifted ban is news.
func (a *Adjusting) liftBans() float64 {
	news := 0.0
	for len(a.bans) > 0 && a.bans[0].until <= a.now {
		a.o.Belief.Lift(a.bans[0].pair[0], a.bans[0].pair[1])
		a.bans = a.bans[1:]
		news = 1
	}
	return news
}

// ban keeps two configurations apart for the cool-down. Bans are of equal length, so they stay in order of their end.
func (a *Adjusting) ban(i, l int) {
	pair := pairOf(i, l)
	a.bans = slices.DeleteFunc(a.bans, func(b ban) bool { return b.pair == pair })
	a.bans = append(a.bans, ban{a.now.Add(coolDown), pair})
	a.o.Belief.Ban(i, l)
}

// repair relieves a GPU until every resident is expected to hold its floor, or no resident can go elsewhere.
func (a *Adjusting) repair(g cluster.GPU, moved func(job int, slots []Slot, pause time.Duration)) {
	for {
		residents := a.packer.Residents(g)
		below := a.below(residents, -1)
		if len(below) == 0 {
			return
		}
		out := a.cheapest(residents)
		job := a.problem.Job(out)
		a.ban(a.config[job], a.config[a.opponent(job, below, residents)])
		a.packer.Refresh()
		if !a.packer.Rehouse(out) {
			a.stats.Stuck++
			return
		}
		a.resettle(job, moved)
		a.stats.Repairs = append(a.stats.Repairs, a.now)
	}
}

// below are the jobs that are expected to run below their floor on a GPU once the job without is gone.
func (a *Adjusting) below(residents []cluster.Worker, without int) []int {
	var below []int
	for _, w := range residents {
		job := a.problem.Job(w)
		if job == without {
			continue
		}
		slowdown := 1.0
		for _, r := range residents {
			if other := a.problem.Job(r); other != job && other != without {
				slowdown += a.o.Belief.Mean(a.config[job], a.config[other])
			}
		}
		if 1/slowdown < a.problem.Jobs()[job].Floor {
			below = append(below, job)
		}
	}
	return below
}

// cheapest is the worker whose leaving leaves the fewest jobs below their floor, at the least GPU time lost to the move:
// all workers of its job pause. Ties go to the job that ran least, then to the lowest worker.
func (a *Adjusting) cheapest(residents []cluster.Worker) cluster.Worker {
	type cost struct {
		below, workers int
		ran            time.Duration
	}
	of := func(w cluster.Worker) cost {
		job := a.problem.Job(w)
		return cost{len(a.below(residents, job)), a.problem.Jobs()[job].Workers, a.now.Sub(a.started[job])}
	}
	best, least := residents[0], of(residents[0])
	for _, w := range residents[1:] {
		c := of(w)
		if c.below < least.below || c.below == least.below && (c.workers < least.workers ||
			c.workers == least.workers && c.ran < least.ran) {
			best, least = w, c
		}
	}
	return best
}

// opponent is the job that the leaving one is kept apart from: the first it brings below its floor, or, when it is below
// its own, the one that slows it most.
func (a *Adjusting) opponent(leaving int, below []int, residents []cluster.Worker) int {
	for _, job := range below {
		if job != leaving {
			return job
		}
	}
	worst, most := leaving, -1.0
	for _, w := range residents {
		if other := a.problem.Job(w); other != leaving {
			if added := a.o.Belief.Mean(a.config[leaving], a.config[other]); added > most {
				worst, most = other, added
			}
		}
	}
	return worst
}
