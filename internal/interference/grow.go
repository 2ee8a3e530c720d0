package interference

import "math"

// moments are the mean and the variance of a slowdown that was predicted, and the variance that it counts with: more than that
// where observations contradict it.
type moments struct{ mean, variance, counts float64 }

// Grow is the number of a configuration, which is added where it is new: nothing is predicted of its pairs, and it may
// share with none until Expect says what to expect of them. O(configurations).
func (b *Belief) Grow(c Config) int {
	if i, ok := b.mean.Lookup(c); ok {
		return i
	}
	i := b.mean.number(c)
	b.safe.number(c)
	for j := range b.variance {
		b.variance[j], b.seen[j] = append(b.variance[j], 0), append(b.seen[j], 0)
		b.prior[j] = append(b.prior[j], moments{mean: unmeasured})
	}
	b.variance, b.seen = append(b.variance, make([]float64, i+1)), append(b.seen, make([]int, i+1))
	row := make([]moments, i+1)
	for j := range row {
		row[j] = moments{mean: unmeasured}
	}
	b.prior = append(b.prior, row)
	return i
}

// Expect replaces the prediction of the slowdown that l adds to i: a mean, at least 0, and a standard deviation, above 0,
// both finite. What was observed of the pair is kept: it counts as it would have on top of this prediction. A prediction
// that observations contradict counts less. It returns how far the safe rate moved.
func (b *Belief) Expect(i, l int, mean, deviation float64) float64 {
	variance := deviation * deviation
	before := b.prior[i][l]
	if before.mean == mean && before.variance == variance {
		return 0
	}
	now, counts := moments{mean: mean, variance: variance}, variance
	if b.seen[i][l] > 0 && before.counts > 0 {
		// Precisions add up, and means weighted with them: what observations added to the old prediction is taken to the new.
		weight := max(0, 1/b.variance[i][l]-1/before.counts)
		value := b.mean.added[i][l]/b.variance[i][l] - before.mean/before.counts
		if weight > 0 {
			off := value/weight - mean
			counts = max(variance, off*off/(contradiction*contradiction)-1/weight)
		}
		now.variance = 1 / (1/counts + weight)
		now.mean = max(0, now.variance*(mean/counts+value))
		now.variance = max(leastVariance, now.variance)
	}
	b.prior[i][l] = moments{mean, variance, counts}
	b.mean.added[i][l], b.variance[i][l] = now.mean, now.variance
	return b.settle(i, l)
}

// contradiction is how many standard deviations a prediction may be off what was observed before it is weakened to be off no
// more.
const contradiction = 2

// Deviation is the standard deviation of the slowdown that l adds to i.
func (b *Belief) Deviation(i, l int) float64 { return math.Sqrt(b.variance[i][l]) }

// Quantile is how many standard deviations above its mean a slowdown is with the probability that Safe leaves.
func (b *Belief) Quantile() float64 { return b.z }

// Knowledge is all that is believed of a pair in one direction.
type Knowledge struct {
	PriorMean, PriorVariance float64
	PriorCounts              float64 // the variance that the prediction counts with: at least PriorVariance
	Mean, Variance           float64
	Seen                     int
}

// Know is what is believed of the slowdown that l adds to i.
func (b *Belief) Know(i, l int) Knowledge {
	p := b.prior[i][l]
	return Knowledge{p.mean, p.variance, p.counts, b.mean.added[i][l], b.variance[i][l], b.seen[i][l]}
}

// Recall puts back what Know said, of this belief or of another.
func (b *Belief) Recall(i, l int, k Knowledge) {
	b.prior[i][l] = moments{k.PriorMean, k.PriorVariance, k.PriorCounts}
	b.mean.added[i][l], b.variance[i][l], b.seen[i][l] = k.Mean, k.Variance, k.Seen
	b.settle(i, l)
}
