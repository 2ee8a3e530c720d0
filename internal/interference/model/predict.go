package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Prediction is the rate of one job beside another, as a share of its rate alone.
type Prediction struct {
	Mean  float64
	Low   float64 // holds with the model's coverage
	High  float64 // likewise
	Basis Basis
	Notes []string // what was unknown and what it costs
}

// Driver is a feature, or several of one name, that moved the prediction away from the average pair.
type Driver struct {
	Owner Owner
	Label string
	By    float64 // added to the rate
}

// Predict answers one query, in O(trees * depth).
func (p *Predictor) Predict(q Query) Prediction {
	asked := q.Source
	q = p.resolve(q)
	x := p.m.Layout.Vector(p.book, q)
	basis, notes := p.basis(q, asked, x)
	out := Prediction{Mean: clamp(p.m.Mean.Predict(x)), Basis: basis, Notes: notes}
	gpu := slices.Index(p.m.Layout.GPUs, q.GPU)
	switch basis {
	case Known:
		out.bound(&p.m.Known[gpu])
	case Probed:
		var count int
		out.Mean, count = p.shifted(q, out.Mean)
		out.bound(&p.m.Probed[min(count, len(p.m.Probed))-1][gpu])
	case New:
		out.bound(&p.m.New[gpu])
	case Prior:
		if p.blank(q) {
			out.Mean = p.m.Prior.Mean
		}
		out.Low, out.High = min(p.m.Prior.Least, out.Mean), max(p.m.Prior.Most, out.Mean)
	}
	if q.Doubted { // bounds are steps of their own: where a weaker one stands higher, doubt must not gain by it
		q.Doubted = false
		out.Low = min(out.Low, p.Predict(q).Low)
	}
	return out
}

func (out *Prediction) bound(b *Bound) {
	out.Low = min(b.Lower(out.Mean), out.Mean)
	out.High = min(1, out.Mean+b.High)
}

// resolve takes the figures of both jobs from one source where one has both: those of two do not compare.
func (p *Predictor) resolve(q Query) Query {
	if q.Source == "" {
		q.Source = p.book.common(q.GPU, q.Self, q.Partner)
	}
	return q
}

// mean is what the trees say.
func (p *Predictor) mean(q Query) float64 {
	return clamp(p.m.Mean.Predict(p.m.Layout.Vector(p.book, q)))
}

// clamp holds a predicted rate to what a rate can be.
func clamp(rate float64) float64 { return min(max(rate, leastRate), 1) }

// leastRate is below every rate that was measured.
const leastRate = 0.01

// basis says what the answer rests on, and names what is missing. asked is the source that the question named: where it
// named none, jobs of any campaign are new jobs.
func (p *Predictor) basis(q Query, asked string, x []float64) (Basis, []string) {
	if !slices.Contains(p.m.Layout.GPUs, q.GPU) {
		return Prior, []string{fmt.Sprintf("GPU %s never seen: prior used", strings.ToUpper(q.GPU))}
	}
	if p.hasShift(q) {
		return Probed, nil
	}
	if asked != "" && !slices.Contains(p.m.Sources, asked) {
		return Prior, []string{fmt.Sprintf("source %q never seen: prior used; train on its pairs", asked)}
	}
	self, partner := p.key(q, false), p.key(q, true)
	var notes []string
	for _, k := range []bookKey{self, partner} {
		if p.book.jobs[k] == (Job{}) {
			notes = append(notes, fmt.Sprintf("nothing is known of %s on %s: prior used", k.config, q.GPU))
		}
	}
	known := p.trained[self] && p.trained[partner] && self.source == partner.source
	if far := p.far(x); far != "" && notes == nil && !known {
		notes = append(notes, far+" is far outside what the model was trained on: prior used")
	}
	switch {
	case notes != nil, q.Doubted && !known:
		return Prior, notes
	case q.Doubted, !known:
		return New, nil
	}
	return Known, nil
}

func (p *Predictor) key(q Query, partner bool) bookKey {
	c := q.Self
	if partner {
		c = q.Partner
	}
	return bookKey{p.book.sourceOf(q.Source, q.GPU, c), q.GPU, c}
}

// blank says whether nothing is known of one of the two.
func (p *Predictor) blank(q Query) bool {
	self, partner := p.book.jobs[p.key(q, false)], p.book.jobs[p.key(q, true)]
	return self == (Job{}) || partner == (Job{})
}

// far names a feature of the two jobs that lies beyond the training range by more than its width: there a tree's
// answer is that of the edge, and no held-out error speaks for it.
func (p *Predictor) far(x []float64) string {
	for f, r := range p.m.Ranges {
		if f >= 2*len(sideFeatures) {
			break
		}
		width := r.Most - r.Least
		if width > 0 && (x[f] < r.Least-width || x[f] > r.Most+width) {
			return p.features[f].Name
		}
	}
	return ""
}

// Drivers are the features that moved a prediction, strongest first: the contributions of features gathered by what
// people call them. There are none where nothing is known.
func (p *Predictor) Drivers(q Query) []Driver {
	var list []Driver
	q = p.resolve(q)
	if p.blank(q) {
		return nil
	}
	x := p.m.Layout.Vector(p.book, q)
	for f, by := range p.m.Mean.Contributions(x) {
		if by == 0 {
			continue
		}
		feature := p.features[f]
		at := slices.IndexFunc(list, func(d Driver) bool { return d.Owner == feature.Owner && d.Label == feature.Label })
		if at < 0 {
			at = len(list)
			list = append(list, Driver{Owner: feature.Owner, Label: feature.Label})
		}
		list[at].By += by
	}
	slices.SortStableFunc(list, func(a, b Driver) int {
		switch x, y := math.Abs(a.By), math.Abs(b.By); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return list
}
