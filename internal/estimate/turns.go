package estimate

import (
	"math"

	"weft.dev/weft/internal/cluster"
)

// use is what the model of turns needs of a job alone: the share u of its time that it keeps the GPU busy, and the length T
// of an iteration in seconds, u T of work and (1-u) T of gap.
type use struct{ busy, cycle float64 }

func (u use) burst() float64 { return u.busy * u.cycle }
func (u use) gap() float64   { return (1 - u.busy) * u.cycle }

// Figures of the arbiter, and of what jobs lose with it in virtual time (TestEstimates of internal/arbiter).
const (
	turnTime   = 13.2e-3 // s from a job's release until a peer that always has work gives the GPU back
	drainTime  = 2.2e-3  // s that a peer needs to give it back when its turn is over
	shortGap   = 1e-3    // s of a gap in which a peer keeps the GPU
	lightShare = 0.6     // of what processor sharing costs a job with little work: it is behind, so it is served first
	heavyShare = 0.2     // of the time that a job with little work finds a peer before it, at worst
	lendLoss   = 4e-3    // s of a gap of a higher job that lower ones do not get
	lendDoubt  = 12e-3   // s of gap of a higher job below which lower ones may get little: gaps vary, and too short ones are not lent
	overlap    = 0.4     // of the mean: how much of a lower job's slowdown is by its work alone
	leastLeft  = 1e-3    // share of a GPU that a busy higher job leaves: some, for a slowdown to be a number
	slack      = 0.03    // of a slowdown: what the model leaves out
	highDoubt  = 2       // times the loss budget: what a higher job may lose in one pair
)

// peers is the slowdown that l adds to i of the same class, as expected and at worst.
//
// Mean-value analysis of a closed queue with two customers and processor sharing (Reiser and Lavenberg, 1980): a customer
// that arrives sees the other as if that were alone, so i, which brings S = u_i T_i of work per cycle, finds l there with
// probability u_l and gets half of the GPU then: S (1 + u_l) instead of S, in a cycle of T_i, adds u_i u_l. Two that always
// have work: 1, a rate of one half each.
//
// The arbiter is fair queueing, not processor sharing: who is behind is served first. So a job that always has work gets what
// a light one leaves, at least half: it adds u_l / (1 - u_l), at most 1; and a light job loses less than u_i u_l. In between
// the mean takes both by u_i^2. And turns have a length: a job with short iterations waits out a turn in each.
func peers(i, l use) (mean, worst float64) {
	capped := 1.0
	if l.busy < 0.5 {
		capped = l.busy / (1 - l.busy)
	}
	heavy := i.busy * i.busy
	mean = i.busy * ((1-heavy)*lightShare*l.busy + heavy*capped)
	mean = max(mean, turnWait(i, l))
	worst = blocked(i, l) * capped * (heavyShare + (1-heavyShare)*i.busy)
	return mean, max(mean, worst) + slack*i.busy*l.busy
}

// turnWait is the slowdown by waiting for the rest of l's turn in each iteration, while l has work.
func turnWait(i, l use) float64 {
	wait := max(drainTime, turnTime-i.gap())
	if l.gap() > shortGap {
		wait = min(wait, l.burst())
	}
	wait *= min(1, i.busy/0.05) // who does nothing waits for nothing
	busy := min(1, l.busy*(1+l.busy*i.busy))
	return 1/(1-busy+busy/(1+wait/i.cycle)) - 1
}

// blocked is the share of l's bursts that i loses where l is served first: all of those that begin while i works, and what
// is left of those that begin in a gap of i when the gap is over. It is u_i where bursts are short against the gaps, and 1
// where they are long.
func blocked(i, l use) float64 {
	burst, gap := l.burst(), i.gap()
	if gap <= 0 {
		return 1
	}
	rest := 1 - gap/(2*burst)
	if burst < gap {
		rest = burst / (2 * gap)
	}
	return i.busy + (1-i.busy)*rest
}

// below is the slowdown that l of a higher class adds to i: i has the gaps of l, so its work takes 1 / (1 - u_l) times as
// long, which adds u_i u_l / (1 - u_l); more where bursts of l outlast the gaps of i; and less of each gap is lent than there
// is. minimum is what i gets at least of the GPU.
func below(i, l use, minimum float64) (mean, worst float64) {
	gap := l.gap()
	lent, doubtful := 0.0, 0.0
	if gap > 0 {
		lent, doubtful = gap/(gap+lendLoss), gap*gap/(gap*gap+lendDoubt*lendDoubt)
	}
	least := max(minimum, leastLeft)
	part := blocked(i, l)
	mean = (overlap*i.busy + (1-overlap)*part) * (1/max((1-l.busy)*lent, least) - 1)
	worst = part*(1/max((1-l.busy)*doubtful, least)-1) + slack*i.busy*l.busy
	return mean, max(mean, worst)
}

// above is the slowdown that l of a lower class adds to i: the arbiter's loss budget, and where the besteffort class has a
// minimum, what of that the gaps of i do not hold.
func above(i, l use, loss, minimum float64) (mean, worst float64) {
	taken := min(minimum, l.busy)
	excess := max(0, i.busy+taken-1)
	mean = loss + excess/(1-excess)
	return mean, max(mean, highDoubt*loss+taken/(1-taken))
}

// rank orders the classes by who comes first.
func rank(c cluster.Class) int {
	switch c {
	case cluster.Guaranteed:
		return 2
	case cluster.Burstable:
		return 1
	}
	return 0
}

// turns is the slowdown that a job of one class adds to another, as expected and at worst.
func (o Options) turns(i, l use, ci, cl cluster.Class) (mean, worst float64) {
	if i.busy <= 0 || l.busy <= 0 {
		return 0, 0
	}
	low := 0.0
	if ci == cluster.BestEffort || cl == cluster.BestEffort {
		low = o.Minimum
	}
	switch {
	case rank(ci) == rank(cl):
		mean, worst = peers(i, l)
	case rank(ci) < rank(cl):
		mean, worst = below(i, l, low)
	default:
		mean, worst = above(i, l, o.Loss, low)
	}
	return min(mean, mostAdded), min(worst, mostAdded)
}

// mostAdded is the slowdown of a job that hardly runs at all, at leastRate.
const mostAdded = 1/leastRate - 1

const leastRate = 0.01

// least is the least standard deviation of a slowdown that was predicted and not observed. It makes three windows of noise
// 0.05, the last two of which count as of half of that, outweigh a prediction that is 20 points off: (1 + a)^1.5 times 0.021 is
// enough for the mean to go more than half of the way.
func least(added float64, ci, cl cluster.Class) float64 {
	share := leastDoubt
	if rank(ci) > rank(cl) {
		share = leastAbove
	}
	return share * math.Pow(1+added, 1.5)
}

const (
	leastDoubt = 0.03
	leastAbove = 0.024 // the arbiter holds its budget
)
