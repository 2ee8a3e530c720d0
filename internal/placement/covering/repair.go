package covering

import (
	"math/rand/v2"
)

const (
	// repairLeast and repairMost bound the configurations of one repair: from three that become two, to as many as are
	// solved in about a millisecond and hold most odd circles that rounding leaves half open.
	repairLeast, repairMost = 3, 24
	// repairTries is how many repairs in a row may gain nothing before the plan is taken as it is.
	repairTries = 500
	// lossless is the loss below which a configuration counts as fully used.
	lossless = 1e-6
)

// repair shortens a plan that misses the target by large-neighbourhood search (P. Shaw, CP 1998): take some
// configurations out, cover their items anew, keep the result if it is not longer. Each configuration S loses
// 1 - sum_{t in S} y_t, and the losses sum to the plan's length less the bound; so half of those taken out are lossy.
// The random choices come from a generator of fixed seed.
func (r *rounder) repair(s *Solution) {
	rng := rand.New(rand.NewPCG(1, 1))
	for try := 0; try < repairTries && len(r.best) > r.target && r.b.left >= 0; try++ {
		r.b.spend(len(r.best))
		chosen := r.choose(s, rng)
		part := newPlan(make([]int, len(r.l.p.Demand)))
		for i, c := range r.best {
			if chosen[i] {
				part.items += len(c)
				for _, t := range c {
					part.left[t]++
				}
			}
		}
		if anew := r.cover(part); len(anew) <= count(chosen) {
			if len(anew) < count(chosen) {
				try = -1
			}
			kept := make([]column, 0, len(r.best))
			for i, c := range r.best {
				if !chosen[i] {
					kept = append(kept, c)
				}
			}
			r.best = append(kept, anew...)
		}
	}
}

func count(chosen []bool) int {
	n := 0
	for _, is := range chosen {
		if is {
			n++
		}
	}
	return n
}

// choose marks the configurations of the best plan to take out.
func (r *rounder) choose(s *Solution, rng *rand.Rand) []bool {
	chosen := make([]bool, len(r.best))
	var lossy []int
	for i, c := range r.best {
		loss := 1.0
		for _, t := range c {
			loss -= s.Duals[t]
		}
		if loss > lossless {
			lossy = append(lossy, i)
		}
	}
	most := max(repairLeast, min(repairMost, 2*len(r.best)/3)) // the dives have tried the whole
	size := min(len(r.best), repairLeast+rng.IntN(most-repairLeast+1))
	rng.Shuffle(len(lossy), func(i, j int) { lossy[i], lossy[j] = lossy[j], lossy[i] })
	for _, i := range lossy[:min(len(lossy), (size+1)/2)] {
		chosen[i] = true
	}
	for left := size - count(chosen); left > 0; {
		if i := rng.IntN(len(chosen)); !chosen[i] {
			chosen[i] = true
			left--
		}
	}
	return chosen
}

// cover covers what is left of a plan.
func (r *rounder) cover(part *plan) []column {
	rest := r.relax(part, nil)
	sub := &rounder{l: r.l, b: r.b, target: wholeAbove(rest.Bound)}
	sub.search(part, rest, 1)
	return sub.best
}
