package model

import "math"

// Tree is one regression tree over feature vectors. Node 0 is the root; a node whose Left is 0 is a leaf. Every node
// carries the value that the tree would give if it ended there, so that a prediction splits into the steps of its
// path.
type Tree struct {
	Feature   []int     `json:"f"`
	Threshold []float64 `json:"t"` // values up to and including it go left
	Left      []int     `json:"l"`
	Right     []int     `json:"r"`
	Missing   []bool    `json:"m"` // a missing value goes left
	Value     []float64 `json:"v"`
}

// next is the child of node n that x belongs to, or 0 at a leaf.
func (t *Tree) next(n int, x []float64) int {
	if t.Left[n] == 0 {
		return 0
	}
	v := x[t.Feature[n]]
	if v <= t.Threshold[n] || math.IsNaN(v) && t.Missing[n] {
		return t.Left[n]
	}
	return t.Right[n]
}

// Predict is the value of the leaf that x falls into, in O(depth).
func (t *Tree) Predict(x []float64) float64 {
	n := 0
	for {
		next := t.next(n, x)
		if next == 0 {
			return t.Value[n]
		}
		n = next
	}
}

// Ensemble is a sum of trees over a constant.
type Ensemble struct {
	Base  float64 `json:"base"`
	Trees []Tree  `json:"trees"`
}

// Predict is the base and the sum of the trees, in O(trees * depth).
func (e *Ensemble) Predict(x []float64) float64 {
	sum := e.Base
	for i := range e.Trees {
		sum += e.Trees[i].Predict(x)
	}
	return sum
}

// Contributions is what each feature adds to the prediction: over all trees, the change of the expected value at each
// step of the path is credited to the feature that the step asked about (Saabas 2014). They and the expectation at
// the roots sum to the prediction.
func (e *Ensemble) Contributions(x []float64) []float64 {
	by := make([]float64, len(x))
	for i := range e.Trees {
		t := &e.Trees[i]
		for n, next := 0, t.next(0, x); next != 0; n, next = next, t.next(next, x) {
			by[t.Feature[n]] += t.Value[next] - t.Value[n]
		}
	}
	return by
}
