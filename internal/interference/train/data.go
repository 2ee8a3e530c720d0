// Package train fits and judges predictors of how much jobs that share a GPU slow each other down. It is pure: pairs
// and a seed in, a model and its figures out.
package train

import (
	"math"
	"slices"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
)

// Pair is one measurement of two jobs that shared a GPU, with what was known of them before.
type Pair struct {
	Source, GPU  string
	A, B         interference.Config
	AloneA       model.Job
	AloneB       model.Job
	MemoryMiB    float64 // of both together, where that alone is known; 0 unknown
	Doubted      bool    // a figure of theirs was ignored because it cannot be
	RateA, RateB float64 // shares of the rate alone, above 0; above 1 counts as 1
}

// Data is pairs as samples: each pair is one sample for either side. The zero value is unusable; use NewData.
type Data struct {
	Pairs  []Pair
	Book   *model.Book
	Layout model.Layout
	x      [][]float64
	y      []float64
}

// NewData makes two samples of each pair, a's rate and then b's, with features over all the jobs of the pairs: what a
// job does alone is known before it shares, so it leaks nothing of how it shares.
func NewData(pairs []Pair) *Data {
	d := &Data{Pairs: pairs, Book: &model.Book{}}
	for _, p := range pairs {
		d.Book.Enter(model.Entry{Source: p.Source, GPU: p.GPU, Config: p.A, Job: p.AloneA})
		d.Book.Enter(model.Entry{Source: p.Source, GPU: p.GPU, Config: p.B, Job: p.AloneB})
	}
	d.Layout = model.Layout{References: d.Book.References(), GPUs: d.distinct(func(p *Pair) string { return p.GPU })}
	for i := range 2 * len(pairs) {
		q := d.query(i)
		d.x = append(d.x, d.Layout.Vector(d.Book, q))
		p := &pairs[i/2]
		rate := p.RateA
		if i%2 == 1 {
			rate = p.RateB
		}
		d.y = append(d.y, min(rate, 1))
	}
	return d
}

// query is what sample i asks: sample 2k is a of pair k, and 2k+1 its b.
func (d *Data) query(i int) model.Query {
	p := &d.Pairs[i/2]
	q := model.Query{Source: p.Source, GPU: p.GPU, Self: p.A, Partner: p.B, MemoryMiB: p.MemoryMiB, Doubted: p.Doubted}
	if i%2 == 1 {
		q.Self, q.Partner = q.Partner, q.Self
	}
	return q
}

// distinct are the values that a property of pairs takes, in ascending order.
func (d *Data) distinct(of func(*Pair) string) []string {
	var list []string
	for i := range d.Pairs {
		list = append(list, of(&d.Pairs[i]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// pick are features and targets of some samples.
func (d *Data) pick(rows []int) (x [][]float64, y []float64) {
	for _, i := range rows {
		x, y = append(x, d.x[i]), append(y, d.y[i])
	}
	return x, y
}

// unit holds a predicted rate to what a rate can be. No measured rate fell below leastRate.
func unit(rate float64) float64 { return min(max(rate, leastRate), 1) }

const leastRate = 0.01

// standard scales features to mean 0 and deviation 1 and puts 0 for what is missing.
type standard struct {
	mean, deviation []float64
	missing         []bool // some sample misses it
}

func newStandard(x [][]float64) *standard {
	s := &standard{}
	for f := range x[0] {
		n, sum, square := 0.0, 0.0, 0.0
		missing := false
		for i := range x {
			v := x[i][f]
			if math.IsNaN(v) {
				missing = true
				continue
			}
			n++
			sum += v
			square += v * v
		}
		mean := sum / max(n, 1)
		deviation := math.Sqrt(max(square/max(n, 1)-mean*mean, 0))
		if deviation < minDeviation {
			deviation = math.Inf(1) // a constant says nothing
		}
		s.mean, s.deviation, s.missing = append(s.mean, mean), append(s.deviation, deviation), append(s.missing, missing)
	}
	return s
}

// minDeviation tells a feature that varies from rounding.
const minDeviation = 1e-9

func (s *standard) scale(x []float64) []float64 {
	z := make([]float64, len(x))
	for f, v := range x {
		if !math.IsNaN(v) {
			z[f] = (v - s.mean[f]) / s.deviation[f]
		}
	}
	return z
}
