package profile

import (
	"cmp"
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
	sum     Profile
	rounded unit.Bytes // at most how far merging raised any level
}

// Persistent is the memory that is always held.
func (l Load) Persistent() unit.Bytes { return l.sum.Persistent }

// Peak is the memory held if all peaks coincide.
func (l Load) Peak() unit.Bytes { return l.sum.Peak() }

// Mean is the expected memory held.
func (l Load) Mean() float64 { return l.sum.Mean() }

// Add is the load with one more worker. It costs O(maxLevels x k) for a worker of k levels.
func (l Load) Add(p Profile) Load {
	sum, rounded := Profile{Persistent: l.sum.Persistent.Add(p.Persistent)}, l.rounded
	switch {
	case len(p.Ephemeral) == 0:
		sum.Ephemeral = l.sum.Ephemeral
	case len(l.sum.Ephemeral) == 0:
		sum.Ephemeral = p.Ephemeral
	default:
		var raised unit.Bytes
		sum.Ephemeral, raised = convolve(l.sum.Ephemeral, p.Ephemeral)
		rounded = rounded.Add(raised)
	}
	return Load{sum, rounded}
}

// LeastOverflow is a lower bound of the same probability: what is certain whatever merging rounded. It is what a proof
// that workers do not fit may use; Overflow is what a decision to place them must use.
func (l Load) LeastOverflow(p Profile, capacity unit.Bytes) float64 {
	return l.Overflow(p, capacity.Add(l.rounded))
}

// Overflow is the probability that the load plus one more worker wants more than capacity at a random instant, never
// too low. It is exactly 0 when all peaks together fit, and 1 when the persistent parts alone do not. O(levels) time, no
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
	return min(over, 1)
}

// convolve is the distribution of the sum of two independent draws, ascending, and by how much at most it raised a level.
func convolve(a, b []Level) ([]Level, unit.Bytes) {
	if len(a)*len(b) > maxLevels {
		return merge(a, b)
	}
	sums := make([]Level, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			sums = append(sums, Level{x.Bytes.Add(y.Bytes), x.Fraction * y.Fraction})
		}
	}
	slices.SortFunc(sums, func(x, y Level) int { return cmp.Compare(x.Bytes, y.Bytes) })
	joined := sums[:1]
	for _, s := range sums[1:] {
		if last := &joined[len(joined)-1]; last.Bytes == s.Bytes {
			last.Fraction += s.Fraction
		} else {
			joined = append(joined, s)
		}
	}
	return joined, 0
}

// merge convolves into maxLevels equal cells, counted from the top; all sums in a cell are raised to the largest of them.
func merge(a, b []Level) ([]Level, unit.Bytes) {
	top := a[len(a)-1].Bytes.Add(b[len(b)-1].Bytes)
	width := top/maxLevels + 1
	var cells [maxLevels]Level
	for _, x := range a {
		for _, y := range b {
			sum := x.Bytes.Add(y.Bytes)
			cell := &cells[(top-sum)/width]
			cell.Bytes = max(cell.Bytes, sum)
			cell.Fraction += x.Fraction * y.Fraction
		}
	}
	merged := make([]Level, 0, maxLevels)
	for _, cell := range slices.Backward(cells[:]) {
		if cell.Fraction > 0 {
			merged = append(merged, cell)
		}
	}
	return merged, width - 1
}

// exactStates bounds the combinations of levels that Overflow looks at one by one.
const exactStates = 1 << 20

// Overflow is the probability that workers with these profiles want more than capacity together at a random instant,
// from the definition: every combination of levels is looked at, up to a million. Beyond that it is Load's.
func Overflow(profiles []Profile, capacity unit.Bytes) float64 {
	states := 1
	var held, peak unit.Bytes
	for _, p := range profiles {
		if states *= max(1, len(p.Ephemeral)); states > exactStates {
			return loadOverflow(profiles, capacity)
		}
		held, peak = held.Add(p.Persistent), peak.Add(p.Peak())
	}
	return overflow(profiles, held, peak, capacity)
}

// overflow has held bytes so far, and peak if the remaining profiles all peak.
func overflow(rest []Profile, held, peak, capacity unit.Bytes) float64 {
	switch {
	case held > capacity:
		return 1
	case peak <= capacity:
		return 0
	case len(rest[0].Ephemeral) == 0:
		return overflow(rest[1:], held, peak, capacity)
	}
	sum, top := 0.0, rest[0].Peak()-rest[0].Persistent
	for _, l := range rest[0].Ephemeral {
		sum += l.Fraction * overflow(rest[1:], held.Add(l.Bytes), peak.Sub(top-l.Bytes), capacity)
	}
	return sum
}

func loadOverflow(profiles []Profile, capacity unit.Bytes) float64 {
	var load Load
	last := len(profiles) - 1
	for _, p := range profiles[:last] {
		load = load.Add(p)
	}
	return load.Overflow(profiles[last], capacity)
}
