package train

import (
	"math"

	"weft.dev/weft/internal/interference/model"
)

// Floors are those that false admits are told at.
var Floors = []float64{0.8, 0.85, 0.9, 0.95}

// Figures say how good predictions are. NaN is undefined: no samples, no spread, nothing admitted.
type Figures struct {
	N        int
	MAE      float64
	R2       float64
	Coverage float64   // share of rates at or above their lower bound
	False    []float64 // per floor: of the samples whose bound is at or above it, the share whose rate is below
	Admitted []int     // per floor: samples whose bound is at or above it
	Possible []int     // per floor: samples whose rate is
}

// Exceeds says whether so many misses of n speak against a nominal share of misses: whether chance alone would give as
// many in fewer than one of 40 such samples (the exact binomial tail). O(n).
func Exceeds(misses, n int, nominal float64) bool {
	term := math.Pow(1-nominal, float64(n)) // of no miss
	below := 0.0
	for k := range misses {
		below += term
		term *= float64(n-k) / float64(k+1) * nominal / (1 - nominal)
	}
	return misses > 0 && 1-below < 0.025
}

// Outcome is one prediction beside the truth.
type Outcome struct {
	Pair               int // of the data
	Truth, Mean, Lower float64
}

// Summarise computes the figures of outcomes.
func Summarise(outcomes []Outcome) Figures {
	n := float64(len(outcomes))
	f := Figures{N: len(outcomes), False: make([]float64, len(Floors)), Admitted: make([]int, len(Floors)),
		Possible: make([]int, len(Floors))}
	var sum, absolute, square, covered float64
	for _, o := range outcomes {
		sum += o.Truth
		absolute += math.Abs(o.Truth - o.Mean)
		square += (o.Truth - o.Mean) * (o.Truth - o.Mean)
		if o.Truth >= o.Lower {
			covered++
		}
	}
	spread := 0.0
	for _, o := range outcomes {
		spread += (o.Truth - sum/n) * (o.Truth - sum/n)
	}
	f.MAE, f.R2, f.Coverage = absolute/n, math.NaN(), covered/n
	if spread > 0 {
		f.R2 = 1 - square/spread
	}
	for k, floor := range Floors {
		missed := 0
		for _, o := range outcomes {
			if o.Truth >= floor {
				f.Possible[k]++
			}
			if o.Lower < floor {
				continue
			}
			if f.Admitted[k]++; o.Truth < floor {
				missed++
			}
		}
		f.False[k] = float64(missed) / float64(f.Admitted[k])
	}
	return f
}

// Evaluate holds a model against pairs: an outcome for either side of each, and what the model did not know. What the
// pairs say of their jobs alone is at hand, their rates are not.
func Evaluate(m *model.Model, pairs []Pair) (outcomes []Outcome, notes []string) {
	d := NewData(pairs)
	p := m.Predictor(d.Book.Entries(), nil)
	said := map[string]bool{}
	for i, truth := range d.y {
		q := p.Predict(d.query(i))
		outcomes = append(outcomes, Outcome{i, truth, q.Mean, q.Low})
		for _, note := range q.Notes {
			if !said[note] {
				said[note] = true
				notes = append(notes, note)
			}
		}
	}
	return outcomes, notes
}
