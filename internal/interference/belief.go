package interference

import (
	"maps"
	"math"
	"slices"
)

// Belief is what is known of every pair of configurations while jobs run: a mean and a variance of the slowdown that one
// adds to the other, from a prediction and from every observation since. It is a diagonal Kalman filter: observing a
// job beside several others corrects each pair by its share of the uncertainty. For one partner the mean is the shrinkage
// (kappa prediction + n observation) / (kappa + n) with kappa = noise / prior variance.
//
// A Belief is for one goroutine.
type Belief struct {
	mean     *Table
	variance [][]float64
	prior    [][]moments // what each ordered pair was believed to be before it was observed
	seen     [][]int     // observations of each ordered pair
	banned   map[[2]int]bool
	pilots   map[[2]int]bool
	z        float64 // quantile of the standard normal that Safe rests on
	safe     *Table
}

// NewBelief starts from predictions. Both tables number configurations alike; mean predicts slowdowns, safe an upper
// limit of each that holds with probability coverage in (0.5, 1). A pair that safe does not hold is not shared.
func NewBelief(mean, safe *Table, coverage float64) *Belief {
	b := &Belief{mean: mean.clone(), safe: safe.clone(), z: math.Sqrt2 * math.Erfinv(2*coverage-1), banned: map[[2]int]bool{},
		pilots: map[[2]int]bool{}}
	b.variance = make([][]float64, mean.Len())
	b.seen = make([][]int, mean.Len())
	b.prior = make([][]moments, mean.Len())
	for i := range b.variance {
		b.variance[i], b.seen[i], b.prior[i] = make([]float64, mean.Len()), make([]int, mean.Len()), make([]moments, mean.Len())
		for l := range b.variance[i] {
			b.variance[i][l] = b.spread(mean.added[i][l], safe.Added(i, l))
			b.prior[i][l] = moments{mean.added[i][l], b.variance[i][l], b.variance[i][l]}
		}
	}
	return b
}

// widest is the largest standard deviation that a prediction starts with. A safe rate near 0 is a limit that says
// little, and read as a quantile it would make the first observation all there is.
const widest = 0.3

// ignorance is the standard deviation of a slowdown that is expected but has no limit that is safe.
const ignorance = 1.0

// spread is the variance that a prediction starts with.
func (b *Belief) spread(mean, safe float64) float64 {
	switch {
	case mean < 0 || math.IsInf(mean, 1):
		return 0 // not predicted at all
	case math.IsInf(safe, 1):
		return ignorance * ignorance
	}
	width := min(widest, max(0, safe-mean)/b.z)
	return width * width
}

// Safe is the table that placement rests on. It changes with every observation.
func (b *Belief) Safe() *Table { return b.safe }

// Mean is the expected slowdown that l adds to i.
func (b *Belief) Mean(i, l int) float64 { return b.mean.Added(i, l) }

// hope is how many standard deviations below its mean a slowdown may be hoped to be: it is at most that with a probability
// of about 0.3, so that a third of the pilots that just seem worth trying succeed.
const hope = 0.5

// Hoped is a slowdown that l may well add to i.
func (b *Belief) Hoped(i, l int) float64 {
	return max(0, b.mean.Added(i, l)-hope*math.Sqrt(b.variance[i][l]))
}

// Banned says whether two configurations are kept apart.
func (b *Belief) Banned(i, l int) bool { return b.banned[[2]int{i, l}] }

// Slowdown is the expected slowdown of i beside others.
func (b *Belief) Slowdown(i int, others []int) float64 {
	s := 1.0
	for _, l := range others {
		s += b.mean.Added(i, l)
	}
	return s
}

// Observe corrects the belief by one observed rate of i beside others, whose noise has the standard deviation noise as a
// share of the rate. It returns the largest change of a safe rate, so that a caller can tell news from noise.
func (b *Belief) Observe(i int, others []int, rate, noise float64) float64 {
	observed := 1 / max(rate, leastRate)
	surprise := observed - b.Slowdown(i, others)
	spread := noise * observed * noise * observed
	for _, l := range others {
		spread += b.variance[i][l]
	}
	if spread == 0 || math.IsInf(surprise, 0) {
		return 0
	}
	news := 0.0
	for _, l := range others {
		gain := b.variance[i][l] / spread
		b.mean.added[i][l] = max(0, b.mean.added[i][l]+gain*surprise)
		b.variance[i][l] = max(leastVariance, b.variance[i][l]*(1-gain))
		b.seen[i][l]++
		news = max(news, b.settle(i, l))
	}
	return news
}

// leastVariance is how well a pair can ever be known: a quarter of a per cent. It keeps the filter open to correction
// where pairs that were always observed together took each other's share.
const leastVariance = 0.0025 * 0.0025

// leastRate keeps an observation of a job that stood still from counting as an infinite slowdown.
const leastRate = 0.01

// settle recomputes a safe slowdown and returns how far the safe rate moved.
func (b *Belief) settle(i, l int) float64 {
	before := b.safe.Added(i, l)
	switch pair := [2]int{i, l}; {
	case b.banned[pair]:
		b.safe.added[i][l] = math.Inf(1)
	case b.mean.added[i][l] == unmeasured:
		b.safe.added[i][l] = unmeasured
	case b.pilots[pair]:
		b.safe.added[i][l] = b.Hoped(i, l)
	default:
		b.safe.added[i][l] = b.mean.added[i][l] + b.z*math.Sqrt(b.variance[i][l])
	}
	return math.Abs(1/(1+b.safe.added[i][l]) - 1/(1+before))
}

// Seen is how often i was observed beside l.
func (b *Belief) Seen(i, l int) int { return b.seen[i][l] }

// Ban keeps two configurations apart, whatever is believed of them, until Lift.
func (b *Belief) Ban(i, l int) { b.mark(b.banned, i, l, true) }

// Lift ends a ban.
func (b *Belief) Lift(i, l int) { b.mark(b.banned, i, l, false) }

// Pilot lets two configurations share by what can be hoped of them, not by what is safe, so that they are observed at
// all; End ends that.
func (b *Belief) Pilot(i, l int) { b.mark(b.pilots, i, l, true) }

// End ends a pilot.
func (b *Belief) End(i, l int) { b.mark(b.pilots, i, l, false) }

// mark puts both directions of a pair on a list, or takes them off.
func (b *Belief) mark(list map[[2]int]bool, i, l int, on bool) {
	for _, p := range [2][2]int{{i, l}, {l, i}} {
		if on {
			list[p] = true
		} else {
			delete(list, p)
		}
		b.settle(p[0], p[1])
	}
}

// clone is an independent copy.
func (t *Table) clone() *Table {
	c := &Table{configs: slices.Clone(t.configs), index: maps.Clone(t.index)}
	for _, row := range t.added {
		c.added = append(c.added, slices.Clone(row))
	}
	return c
}
