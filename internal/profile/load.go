package profile

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// maxLevels bounds the distribution of a Load. A sum of four 12-level profiles has 20,736 levels; merged into 256
// with upper edges it overstates demand by at most 1/256 of the ephemeral range, and a check stays below 1 us.
const maxLevels = 256

// Load is the memory of the workers that share one GPU: the sum of their profiles with independent phases. The zero
// value is an idle GPU. A Load is immutable.
//
// Phases are independent when iteration periods are not rationally related, or jitter; jobs in lockstep need
// staggering or their joint peak.
type Load struct {
	sum Profile
}

// Persistent is the memory that is always held.
func (l Load) Persistent() unit.Bytes { return l.sum.Persistent }

// Peak is the memory held if all peaks coincide.
func (l Load) Peak() unit.Bytes { return l.sum.Peak() }

// Mean is the expected memory held.
func (l Load) Mean() float64 { return l.sum.Mean() }

// Add is the load with one more worker. It costs O(maxLevels x k log) for a worker of k levels.
func (l Load) Add(p Profile) Load {
	sum := Profile{Persistent: l.sum.Persistent.Add(p.Persistent)}
	switch {
	case len(p.Ephemeral) == 0:
		sum.Ephemeral = l.sum.Ephemeral
	case len(l.sum.Ephemeral) == 0:
		sum.Ephemeral = p.Ephemeral
	default:
		sum.Ephemeral = merge(convolve(l.sum.Ephemeral, p.Ephemeral))
	}
	return Load{sum}
}

// Overflow is the probability that the load plus one more worker wants more than capacity at a random instant. It is
// exactly 0 when all peaks together fit, and 1 when the persistent parts alone do not. O(levels) time, no
// allocation.
func (l Load) Overflow(p Profile, capacity unit.Bytes) float64 {
	held := l.sum.Persistent.Add(p.Persistent)
	if held > capacity {
		return 1
	}
	if l.sum.Peak().Add(p.Peak()) <= capacity {
		return 0
	}
	slack := capacity - held
	if len(p.Ephemeral) == 0 {
		return tail(l.sum.Ephemeral, slack)
	}
	if len(l.sum.Ephemeral) == 0 {
		return tail(p.Ephemeral, slack)
	}
	// Walk p upwards while the load's threshold slack-x falls: above is P[load > slack-x], built from the top.
	over, above, k := 0.0, 0.0, len(l.sum.Ephemeral)
	for _, level := range p.Ephemeral {
		for k > 0 && l.sum.Ephemeral[k-1].Bytes > slack-level.Bytes {
			k--
			above += l.sum.Ephemeral[k].Fraction
		}
		over += level.Fraction * above
	}
	return min(over, 1)
}

// tail is P[X > slack].
func tail(levels []Level, slack unit.Bytes) float64 {
	over := 0.0
	for i := len(levels) - 1; i >= 0 && levels[i].Bytes > slack; i-- {
		over += levels[i].Fraction
	}
	return over
}

// convolve is the distribution of the sum of two independent draws, ascending, equal sums joined.
func convolve(a, b []Level) []Level {
	sums := make([]Level, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			sums = append(sums, Level{x.Bytes.Add(y.Bytes), x.Fraction * y.Fraction})
		}
	}
	slices.SortFunc(sums, func(x, y Level) int {
		if c := compare(x.Bytes, y.Bytes); c != 0 {
			return c
		}
		return compare(x.Fraction, y.Fraction)
	})
	joined := sums[:1]
	for _, s := range sums[1:] {
		if last := &joined[len(joined)-1]; last.Bytes == s.Bytes {
			last.Fraction += s.Fraction
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// merge rounds levels up to the edges of maxLevels equal cells when there are more.
func merge(levels []Level) []Level {
	if len(levels) <= maxLevels {
		return levels
	}
	top := levels[len(levels)-1].Bytes
	merged := make([]Level, 0, maxLevels)
	cell := unit.Bytes(0)
	for _, l := range levels {
		if n := len(merged); n > 0 && l.Bytes <= cell {
			merged[n-1].Fraction += l.Fraction
			continue
		}
		// Index of the cell that holds l, and its upper edge; divisions first, so that nothing overflows.
		width := max(1, (top+maxLevels-1)/maxLevels)
		cell = min(top, (l.Bytes+width-1)/width*width)
		merged = append(merged, Level{cell, l.Fraction})
	}
	return merged
}
