package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// stump asks whether feature 0 is at most 1; missing goes right. Its left child asks feature 1.
func stump() Tree {
	return Tree{
		Feature: []int{0, 1, 0, 0, 0}, Threshold: []float64{1, 5, 0, 0, 0}, Left: []int{1, 2, 0, 0, 0}, Right: []int{4, 3, 0, 0, 0},
		Missing: []bool{false, true, false, false, false}, Value: []float64{0.5, 0.2, 0.1, 0.3, 0.9},
	}
}

func TestTreeFollowsThresholdsAndMissing(t *testing.T) {
	nan := math.NaN()
	tree := stump()
	for _, x := range []struct {
		at   []float64
		want float64
	}{
		{[]float64{1, 5}, 0.1}, {[]float64{1, 5.1}, 0.3}, {[]float64{1.1, 0}, 0.9}, {[]float64{nan, 0}, 0.9}, {[]float64{0, nan}, 0.1},
	} {
		if got := tree.Predict(x.at); got != x.want {
			t.Errorf("at %v: %v, want %v", x.at, got, x.want)
		}
	}
}

// Base, the roots' values and the contributions sum to the prediction, and only features on the path contribute.
func TestContributionsSumToThePrediction(t *testing.T) {
	e := Ensemble{Base: 0.25, Trees: []Tree{stump(), stump()}}
	rapid.Check(t, func(t *rapid.T) {
		x := []float64{rapid.Float64Range(-3, 3).Draw(t, "a"), rapid.Float64Range(-9, 9).Draw(t, "b"), 7}
		sum := e.Base
		for _, tree := range e.Trees {
			sum += tree.Value[0]
		}
		by := e.Contributions(x)
		for _, v := range by {
			sum += v
		}
		if math.Abs(sum-e.Predict(x)) > 1e-12 {
			t.Fatalf("contributions sum to %v, prediction %v", sum, e.Predict(x))
		}
		if by[2] != 0 {
			t.Fatalf("a feature that no tree asks for contributes %v", by[2])
		}
	})
}

func TestBoundIsAStepFunction(t *testing.T) {
	b := Bound{Knots: []Knot{{0.3, 0.1}, {0.6, 0.5}, {0.9, 0.8}}}
	for score, want := range map[float64]float64{0.29: 0, 0.3: 0.1, 0.59: 0.1, 0.6: 0.5, 0.9: 0.8, 1: 0.8} {
		if got := b.Lower(score); got != want {
			t.Errorf("score %v: %v, want %v", score, got, want)
		}
	}
}
