package estimate

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
)

// TestTurns holds the cases that can be reckoned by hand, as rates.
func TestTurns(t *testing.T) {
	const g, m, l = cluster.Guaranteed, cluster.Burstable, cluster.BestEffort
	for _, c := range []struct {
		name    string
		i, j    use
		ci, cj  cluster.Class
		minimum float64
		want    float64
		within  float64
	}{
		{"two that always have work", use{1, 0.1}, use{1, 0.1}, m, m, 0, 0.5, 1e-9},
		{"one that always has work gets what a light one leaves", use{1, 1}, use{0.3, 1}, m, m, 0, 0.7, 0.01},
		{"a light one loses little", use{0.1, 1}, use{1, 1}, m, m, 0, 0.94, 0.01},
		{"short iterations wait out a turn each", use{0.3, 0.004}, use{1, 1}, m, m, 0, 0.004 / 0.0144, 0.01},
		{"a higher one that always has work leaves nothing", use{1, 1}, use{1, 1}, l, g, 0, leastRate, 1e-9},
		{"but the minimum", use{1, 1}, use{1, 1}, l, g, 0.2, 0.2, 1e-9},
		{"which it pays", use{1, 1}, use{1, 1}, g, l, 0.2, 0.8, 0.01},
		{"unless it has gaps that hold it", use{0.5, 1}, use{1, 1}, g, l, 0.2, 0.99, 1e-3},
		{"long gaps are all lent", use{1, 1}, use{0.5, 10}, l, m, 0, 0.5, 0.01},
		{"short ones are not", use{1, 1}, use{0.5, 0.002}, l, m, 0, 0.1, 0.01},
		{"a higher one loses its budget", use{0.5, 0.02}, use{1, 1}, m, l, 0, 0.99, 1e-3},
		{"the minimum is besteffort's only", use{1, 1}, use{1, 1}, m, g, 0.2, leastRate, 1e-9},
		{"who does nothing loses nothing", use{0, 1}, use{1, 1}, l, g, 0, 1, 0},
		{"and costs nothing", use{1, 1}, use{0, 1}, l, g, 0, 1, 0},
	} {
		mean, worst := Options{Loss: 0.01, Minimum: c.minimum}.turns(c.i, c.j, c.ci, c.cj)
		if got := 1 / (1 + mean); math.Abs(got-c.want) > c.within || worst < mean {
			t.Errorf("%s: rate %.4f, want %.4f; adds %g, at worst %g", c.name, got, c.want, mean, worst)
		}
	}
}

// TestTurnsAreNumbers: whatever the jobs, slowdowns are in bounds and the worst is no better than the mean.
func TestTurnsAreNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) use {
			return use{rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, leastBusy, 1})).Draw(t, label), rapid.Float64Range(1/largestRate, 1/leastSpeed).Draw(t, label+" cycle")}
		}
		o := Options{Loss: rapid.Float64Range(0.001, 0.99).Draw(t, "loss"), Minimum: rapid.Float64Range(0, 0.99).Draw(t, "minimum")}
		mean, worst := o.turns(draw("i"), draw("l"), drawClass(t, "ci"), drawClass(t, "cl"))
		if !(mean >= 0 && mean <= worst && worst <= mostAdded) {
			t.Fatalf("adds %g, at worst %g", mean, worst)
		}
	})
}
