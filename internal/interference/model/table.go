package model

import (
	"weft.dev/weft/internal/interference"
)

// Tables are pair tables for a planner, of the same configurations in the same order: the expected rates, and rates
// that hold with the model's coverage. Admission rests on Safe.
type Tables struct {
	Mean *interference.Table
	Safe *interference.Table
	// Basis counts the pairs by what they rest on; measured ones are not counted.
	Basis map[Basis]int
	Notes []string // each once
}

// Tables predicts every pair of some configurations on a GPU model, their twins too. Pairs in measured keep their
// measured rates in both tables; measured may be nil. Source says whose campaign the figures are from, or "". A pair
// predicted to keep next to nothing is left out of Safe, where it may not share. O(n^2) predictions.
func (p *Predictor) Tables(configs []interference.Config, source, gpu string, measured *interference.Table) *Tables {
	t := &Tables{Mean: interference.NewTable(), Safe: interference.NewTable(), Basis: map[Basis]int{}}
	said := map[string]bool{}
	for i, a := range configs {
		for _, b := range configs[i:] {
			if addMeasured(t, measured, a, b) {
				continue
			}
			one := p.Predict(Query{Source: source, GPU: gpu, Self: a, Partner: b})
			two := p.Predict(Query{Source: source, GPU: gpu, Self: b, Partner: a})
			t.Mean.Add(a, b, one.Mean, two.Mean)
			t.Safe.Add(a, b, one.Low, two.Low)
			t.Basis[weaker(one.Basis, two.Basis)]++
			for _, note := range one.Notes {
				if !said[note] {
					said[note] = true
					t.Notes = append(t.Notes, note)
				}
			}
		}
	}
	return t
}

// addMeasured copies a measured pair into both tables.
func addMeasured(t *Tables, measured *interference.Table, a, b interference.Config) bool {
	if measured == nil {
		return false
	}
	i, okA := measured.Lookup(a)
	l, okB := measured.Lookup(b)
	if !okA || !okB || !(measured.Added(i, l) < unmeasured) || !(measured.Added(l, i) < unmeasured) {
		return false
	}
	rateA, rateB := 1/(1+measured.Added(i, l)), 1/(1+measured.Added(l, i))
	t.Mean.Add(a, b, rateA, rateB)
	t.Safe.Add(a, b, rateA, rateB)
	return true
}

// unmeasured is above every slowdown of a measured pair.
const unmeasured = 1e6

// weaker is the weaker of two bases.
func weaker(a, b Basis) Basis {
	for _, basis := range [...]Basis{Prior, New, Probed} {
		if a == basis || b == basis {
			return basis
		}
	}
	return Known
}
