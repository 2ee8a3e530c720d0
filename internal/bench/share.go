package bench

import (
	"context"
	"fmt"
	"math"
	"time"
)

// MeasureShares runs saturated burstable jobs of these weights beside each other and returns the share that each got of
// what all got, after a second in which what they did before is made up for.
func MeasureShares(ctx context.Context, b *Bed, weights []int, length time.Duration) ([]float64, error) {
	runs := make([]Run, len(weights))
	for i, w := range weights {
		runs[i] = Run{&Job{Name: fmt.Sprintf("share-%d", i), Weight: w}, []string{"stream", "--kernel-us", "200", "--batch", "16",
			"--warm-up", "1", "--seconds", seconds(length)}}
	}
	samples, err := b.Together(ctx, runs...)
	if err != nil {
		return nil, err
	}
	total := 0.0
	for _, s := range samples {
		total += s.KernelRate * s.Seconds
	}
	shares := make([]float64, len(samples))
	for i, s := range samples {
		shares[i] = s.KernelRate * s.Seconds / total
	}
	return shares, nil
}

// ShareError is the greatest distance of a share from what is due by the weights, as a share of the GPU.
func ShareError(weights []int, shares []float64) float64 {
	sum, worst := 0, 0.0
	for _, w := range weights {
		sum += w
	}
	for i, w := range weights {
		worst = max(worst, math.Abs(shares[i]-float64(w)/float64(sum)))
	}
	return worst
}
