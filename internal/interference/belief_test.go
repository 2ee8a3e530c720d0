package interference

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// predicted are tables of n configurations whose slowdowns are believed to be mean, and at most mean + width.
func predicted(n int, mean, width float64) (*Table, *Table) {
	m, s := NewTable(), NewTable()
	for i := range n {
		for l := range i + 1 {
			m.Add(Config{Model: string(rune('a' + i))}, Config{Model: string(rune('a' + l))}, 1/(1+mean), 1/(1+mean))
			s.Add(Config{Model: string(rune('a' + i))}, Config{Model: string(rune('a' + l))}, 1/(1+mean+width), 1/(1+mean+width))
		}
	}
	return m, s
}

// TestOnePartnerShrinks: with one partner the mean is (kappa prior + sum of observations) / (kappa + n).
func TestOnePartnerShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mean, width, coverage, noise = 0.2, 0.3, 0.9, 0.05
		m, s := predicted(2, mean, width)
		b := NewBelief(m, s, coverage)
		prior := width / (math.Sqrt2 * math.Erfinv(2*coverage-1))
		observed := rapid.Float64Range(1, 2).Draw(t, "slowdown")
		n := rapid.IntRange(1, 30).Draw(t, "n")
		for range n {
			b.Observe(0, []int{1}, 1/observed, noise)
		}
		kappa := noise * observed * noise * observed / (prior * prior)
		want := (kappa*mean + float64(n)*(observed-1)) / (kappa + float64(n))
		if got := b.Mean(0, 1); math.Abs(got-want) > 1e-9 {
			t.Fatalf("mean %g after %d observations of %g, want %g", got, n, observed-1, want)
		}
		if got := b.Mean(1, 0); math.Abs(got-mean) > 1e-12 {
			t.Fatalf("the other direction moved to %g", got)
		}
	})
}

// TestBeliefConverges: whatever the prediction, the safe slowdown comes down to the truth from above, from observations
// of sets of up to three.
func TestBeliefConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n, noise = 4, 0.05
		m, s := predicted(n, rapid.Float64Range(0, 0.5).Draw(t, "mean"), rapid.Float64Range(0.2, 0.6).Draw(t, "width"))
		truth := make([]float64, n)
		for l := range truth {
			truth[l] = rapid.Float64Range(0, 0.6).Draw(t, "truth")
		}
		b, random := NewBelief(m, s, 0.9), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for k := range 600 {
			others := []int{1 + k%3}
			if k%2 == 0 {
				others = append(others, 1+(k+1)%3)
			}
			slowdown := 1.0
			for _, l := range others {
				slowdown += truth[l]
			}
			b.Observe(0, others, (1+noise*random.NormFloat64())/slowdown, noise)
		}
		for l := 1; l < n; l++ {
			if got := b.Mean(0, l); math.Abs(got-truth[l]) > 0.06 {
				t.Fatalf("pair %d: mean %g, truth %g", l, got, truth[l])
			}
			if got := b.Safe().Added(0, l); got < b.Mean(0, l) || got > truth[l]+0.15 {
				t.Fatalf("pair %d: safe %g, mean %g, truth %g", l, got, b.Mean(0, l), truth[l])
			}
		}
	})
}

func TestBanKeepsApartUntilLifted(t *testing.T) {
	m, s := predicted(3, 0.1, 0.1)
	b := NewBelief(m, s, 0.9)
	before := b.Safe().Added(0, 1)
	b.Ban(1, 0)
	b.Observe(0, []int{1}, 0.9, 0.05)
	if !math.IsInf(b.Safe().Added(0, 1), 1) || !math.IsInf(b.Safe().Added(1, 0), 1) || math.IsInf(b.Safe().Added(0, 2), 1) {
		t.Fatal("the ban does not hold, or holds others")
	}
	b.Lift(0, 1)
	if after := b.Safe().Added(0, 1); after >= before || math.IsInf(b.Safe().Added(1, 0), 1) {
		t.Fatalf("safe %g before, %g after a good observation and the ban", before, after)
	}
}
