package recording

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// Figures are what one iteration holds.
type Figures struct {
	Iteration
	Min, Max unit.Bytes
	Mean     float64 // bytes, weighted by time
	NearPeak float64 // share of time at 90 % of Max or above
	OverHalf float64 // share of time at 50 % of Max or above
}

// Shares of an iteration's own peak that Figures counts, in tenths.
const (
	nearPeak = 9
	overHalf = 5
)

// Measure computes the figures of an iteration in O(points within it).
func Measure(c Curve, it Iteration) Figures {
	f := Figures{Iteration: it}
	f.Min, f.Max = c.Range(it.Start, it.End)
	var total, near, half int64
	sum := 0.0
	c.Each(it.Start, it.End, func(held unit.Bytes, ns int64) {
		total += ns
		sum += float64(held) * float64(ns)
		if held >= share(f.Max, nearPeak) {
			near += ns
		}
		if held >= share(f.Max, overHalf) {
			half += ns
		}
	})
	if total > 0 {
		f.Mean = sum / float64(total)
		f.NearPeak = float64(near) / float64(total)
		f.OverHalf = float64(half) / float64(total)
	}
	return f
}

// share is the least whole number of bytes that is at least so many tenths of b.
func share(b unit.Bytes, tenths int64) unit.Bytes {
	whole, rest := b/10, b%10
	return whole*unit.Bytes(tenths) + (rest*unit.Bytes(tenths)+9)/10
}

// period is the median duration of iterations.
func period(iterations []Figures) time.Duration {
	durations := make([]time.Duration, len(iterations))
	for i, f := range iterations {
		durations[i] = f.Duration()
	}
	return middle(durations)
}
