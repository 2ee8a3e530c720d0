package model

import "sort"

// Bound turns a score into a lower bound of the rate: a step function that never falls. High is how far the rate may
// be above the score, at the same coverage.
type Bound struct {
	Knots []Knot  `json:"knots"`
	High  float64 `json:"high"`
}

// Knot is one step: from Score up, the bound is Low.
type Knot struct {
	Score float64 `json:"s"`
	Low   float64 `json:"l"`
}

// Lower is the bound for a score. Below the first knot nothing can be relied on: 0.
func (b *Bound) Lower(score float64) float64 {
	at := sort.Search(len(b.Knots), func(i int) bool { return b.Knots[i].Score > score }) - 1
	if at < 0 {
		return 0
	}
	return b.Knots[at].Low
}
