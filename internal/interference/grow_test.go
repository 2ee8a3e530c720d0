package interference

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// grown is a belief of n configurations that came one by one, of which the same is expected.
func grown(n int, mean, deviation float64) *Belief {
	b := NewBelief(NewTable(), NewTable(), 0.9)
	for i := range n {
		b.Grow(Config{Model: string(rune('a' + i))})
		for l := range i + 1 {
			b.Expect(i, l, mean, deviation)
			b.Expect(l, i, mean, deviation)
		}
	}
	return b
}

// TestGrownIsMade: a belief that grew is the one that was made of the same predictions, whatever is observed.
func TestGrownIsMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n, mean, width = 3, 0.2, 0.3
		m, s := predicted(n, mean, width)
		made := NewBelief(m, s, 0.9)
		g := grown(n, mean, width/made.Quantile())
		for range rapid.IntRange(0, 20).Draw(t, "observations") {
			i, others := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.SliceOfN(rapid.IntRange(0, n-1), 1, 3).Draw(t, "others")
			rate := rapid.Float64Range(0, 1).Draw(t, "rate")
			made.Observe(i, others, rate, 0.05)
			g.Observe(i, others, rate, 0.05)
		}
		for i := range n {
			for l := range n {
				if math.Abs(made.Mean(i, l)-g.Mean(i, l)) > 1e-9 || math.Abs(made.Safe().Added(i, l)-g.Safe().Added(i, l)) > 1e-9 || made.Seen(i, l) != g.Seen(i, l) {
					t.Fatalf("%d beside %d: mean %g and %g, safe %g and %g", i, l, made.Mean(i, l), g.Mean(i, l), made.Safe().Added(i, l), g.Safe().Added(i, l))
				}
			}
		}
	})
}

// TestExpectKeepsObservations: with one partner it does not matter whether the prediction or the observations came first.
func TestExpectKeepsObservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slowdown := func(label string) float64 { return rapid.Float64Range(0.1, 1).Draw(t, label) }
		deviation := func(label string) float64 { return rapid.Float64Range(0.05, 0.5).Draw(t, label) }
		was, sd, is, now := slowdown("was"), deviation("was sd"), slowdown("is"), deviation("is sd")
		late, early := grown(2, was, sd), grown(2, is, now)
		for range rapid.IntRange(0, 10).Draw(t, "observations") {
			rate := rapid.Float64Range(0.5, 0.9).Draw(t, "rate")
			late.Observe(0, []int{1}, rate, 0.05)
			early.Observe(0, []int{1}, rate, 0.05)
		}
		late.Expect(0, 1, is, now)
		if k := late.Know(0, 1); k.PriorCounts > k.PriorVariance {
			t.Skip("the observations contradict the prediction")
		}
		if math.Abs(late.Mean(0, 1)-early.Mean(0, 1)) > 1e-6 || math.Abs(late.Deviation(0, 1)-early.Deviation(0, 1)) > 1e-6 {
			t.Fatalf("mean %g, deviation %g; the other way round %g, %g", late.Mean(0, 1), late.Deviation(0, 1), early.Mean(0, 1), early.Deviation(0, 1))
		}
		if before := late.Know(0, 1); late.Expect(0, 1, is, now) != 0 || late.Know(0, 1) != before {
			t.Fatal("the same prediction once more changes something")
		}
	})
}

// TestRecall: what is known of a pair goes from one belief to another; bans and pilots stay.
func TestRecall(t *testing.T) {
	b, c := grown(2, 0.3, 0.2), grown(2, 0.5, 0.1)
	for range 3 {
		b.Observe(0, []int{1}, 0.6, 0.05)
	}
	c.Ban(1, 0)
	c.Recall(0, 1, b.Know(0, 1))
	if c.Know(0, 1) != b.Know(0, 1) || !math.IsInf(c.Safe().Added(0, 1), 1) {
		t.Fatalf("%+v, was %+v, safe %g", c.Know(0, 1), b.Know(0, 1), c.Safe().Added(0, 1))
	}
	c.Lift(0, 1)
	if c.Safe().Added(0, 1) != b.Safe().Added(0, 1) {
		t.Fatalf("safe %g, was %g", c.Safe().Added(0, 1), b.Safe().Added(0, 1))
	}
}

// TestGrownAlone: of what is not expected nothing may share, also not by a pilot, and observations change nothing.
func TestGrownAlone(t *testing.T) {
	b := grown(1, 0.3, 0.1)
	i := b.Grow(Config{Model: "new"})
	if again := b.Grow(Config{Model: "new"}); again != i || b.Safe().Len() != 2 {
		t.Fatalf("%d, then %d", i, again)
	}
	b.Observe(i, []int{0}, 0.9, 0.05)
	b.Pilot(i, 0)
	if !math.IsInf(b.Safe().Added(i, 0), 1) || !math.IsInf(b.Mean(0, i), 1) {
		t.Fatalf("safe %g, mean %g", b.Safe().Added(i, 0), b.Mean(0, i))
	}
	b.End(i, 0)
	b.Expect(i, 0, 0.1, 0.05)
	if got := b.Mean(i, 0); got != 0.1 {
		t.Fatalf("mean %g", got)
	}
}

// TestContradictedPrediction: ten observations outweigh a prediction that is sure of something else, and the safe slowdown stays
// above what was observed.
func TestContradictedPrediction(t *testing.T) {
	b := grown(2, 0.5, 0.3)
	for range 10 {
		b.Observe(0, []int{1}, 0.7, 0.03)
	}
	before := b.Mean(0, 1)
	b.Expect(0, 1, 0.001, 0.03)
	if math.Abs(b.Mean(0, 1)-before) > 0.03 || b.Safe().Added(0, 1) < 1/0.7-1-0.01 {
		t.Errorf("mean %g, before %g, safe %g", b.Mean(0, 1), before, b.Safe().Added(0, 1))
	}
	b.Expect(0, 1, 0.5, 0.3)
	if math.Abs(b.Mean(0, 1)-before) > 1e-9 {
		t.Errorf("back at the first prediction the mean is %g, was %g", b.Mean(0, 1), before)
	}
}
