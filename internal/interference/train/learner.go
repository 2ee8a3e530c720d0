package train

import (
	"math"
	"slices"
)

// Learner is one way to predict rates.
type Learner struct {
	Name string
	// fit learns from some samples and returns a predictor of any sample.
	fit func(d *Data, rows []int, seed uint64) predictor
	// probes says that probes of a new job correct it: they replace its score by the corrected mean.
	probes bool
}

// predictor gives the expected rate of a sample and a score to put a lower bound on: the higher the score, the higher
// the rate that can be relied on.
type predictor func(i int) (mean, score float64)

// Learners are all of them, the default first.
func Learners() []Learner {
	return []Learner{
		{"gbdt", fitBoosted, true}, {"quantile", fitQuantile, false}, {"ridge", fitRidge, true},
		{"nearest", fitNearest, true}, {"completion", fitCompletion, true},
	}
}

// meanOptions shape the default learner. Chosen on leave-one-model-out error of the Gavel pairs: a low rate, with part
// of the samples and features for each tree, averages many different trees.
func meanOptions(seed uint64) BoostOptions {
	return BoostOptions{Trees: 300, Depth: 5, Rate: 0.04, MinLeaf: 5, Ridge: 1, Rows: 0.6, Columns: 0.5, Seed: seed}
}

// lowOptions shape an ensemble of the quantile that one rate in ten is below.
func lowOptions(seed uint64) BoostOptions {
	return BoostOptions{Trees: 200, Depth: 5, Rate: 0.08, MinLeaf: 5, Rows: 0.6, Columns: 0.5, Quantile: 0.1, Seed: seed + 1}
}

func fitBoosted(d *Data, rows []int, seed uint64) predictor {
	x, y := d.pick(rows)
	mean := Boost(x, y, meanOptions(seed))
	return func(i int) (float64, float64) {
		m := unit(mean.Predict(d.x[i]))
		return m, m
	}
}

// fitQuantile predicts as fitBoosted does, and scores by an ensemble of the low quantile itself.
func fitQuantile(d *Data, rows []int, seed uint64) predictor {
	x, y := d.pick(rows)
	mean, low := Boost(x, y, meanOptions(seed)), Boost(x, y, lowOptions(seed))
	return func(i int) (float64, float64) {
		return unit(mean.Predict(d.x[i])), unit(low.Predict(d.x[i]))
	}
}

func fitRidge(d *Data, rows []int, _ uint64) predictor {
	x, y := d.pick(rows)
	s := newStandard(x)
	design := func(x []float64) []float64 {
		z := append(s.scale(x), 1)
		for f, missing := range s.missing {
			if missing {
				v := 0.0
				if math.IsNaN(x[f]) {
					v = 1
				}
				z = append(z, v)
			}
		}
		return z
	}
	z := make([][]float64, len(x))
	for i := range x {
		z[i] = design(x[i])
	}
	w := ridge(z, y, ridgePenalty)
	return func(i int) (float64, float64) {
		m := unit(dot(w, design(d.x[i])))
		return m, m
	}
}

// ridgePenalty is that of each standardised coefficient, in samples.
const ridgePenalty = 3

// nearestCount is how many neighbours vote.
const nearestCount = 8

func fitNearest(d *Data, rows []int, _ uint64) predictor {
	x, y := d.pick(rows)
	s := newStandard(x)
	z := make([][]float64, len(x))
	for i := range x {
		z[i] = s.scale(x[i])
	}
	return func(i int) (float64, float64) {
		at := s.scale(d.x[i])
		sum, weight := 0.0, 0.0
		for _, n := range nearest(at, z, nearestCount) {
			w := 1 / (nearestSpan + n.distance)
			sum += w * y[n.at]
			weight += w
		}
		return sum / weight, sum / weight
	}
}

// nearestSpan keeps the weight of a neighbour at no distance finite.
const nearestSpan = 1e-3

type neighbour struct {
	distance float64
	at       int
}

// nearest are the count vectors of z that are closest to a point, the first among equals.
func nearest(point []float64, z [][]float64, count int) []neighbour {
	var best []neighbour
	for k := range z {
		n := neighbour{distance(point, z[k]), k}
		if len(best) == count && n.distance >= best[count-1].distance {
			continue
		}
		at := len(best)
		for at > 0 && best[at-1].distance > n.distance {
			at--
		}
		best = slices.Insert(best, at, n)
		best = best[:min(len(best), count)]
	}
	return best
}

func distance(a, b []float64) float64 {
	sum := 0.0
	for f := range a {
		sum += (a[f] - b[f]) * (a[f] - b[f])
	}
	return math.Sqrt(sum)
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// ridge is the w that minimises |z w - y|^2 + penalty |w|^2, by the normal equations.
func ridge(z [][]float64, y []float64, penalty float64) []float64 {
	n := len(z[0])
	a := make([][]float64, n)
	b := make([]float64, n)
	for f := range a {
		a[f] = make([]float64, n)
		a[f][f] = penalty
	}
	for i, row := range z {
		for f, v := range row {
			if v == 0 {
				continue
			}
			b[f] += v * y[i]
			for g := range f + 1 {
				a[f][g] += v * row[g]
			}
		}
	}
	return solve(a, b)
}

// solve is the x with a x = b for a symmetric positive definite a, given by its lower triangle, which it overwrites
// with its Cholesky factor.
func solve(a [][]float64, b []float64) []float64 {
	factor(a)
	x := slices.Clone(b)
	for i := range x {
		x[i] = (x[i] - dot(a[i][:i], x)) / a[i][i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		x[i] /= a[i][i]
		for k := range i {
			x[k] -= a[i][k] * x[i]
		}
	}
	return x
}

// factor overwrites the lower triangle of a with its Cholesky factor.
func factor(a [][]float64) {
	for i := range a {
		for j := range i {
			a[i][j] = (a[i][j] - dot(a[i][:j], a[j])) / a[j][j]
		}
		a[i][i] = math.Sqrt(max(a[i][i]-dot(a[i][:i], a[i]), 1e-12)) // a rounding below 0 is 0
	}
}
