package bench

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// LaunchOverhead is what libweft.so adds to one launch while the token is held, in ns: the least of several runs with it
// less the least without, taken in turn so that a change of the machine's speed meets both.
func LaunchOverhead(ctx context.Context, b *Bed, threads, runs int) (float64, error) {
	arguments := []string{"launch-cost", "--threads", strconv.Itoa(threads)}
	var least [2]float64
	for i := range runs {
		for j, job := range []*Job{nil, {Name: "launch-cost"}} {
			s, err := b.Probe(ctx, job, arguments...)
			if err != nil {
				return 0, err
			}
			if i == 0 || s.LaunchMin < least[j] {
				least[j] = s.LaunchMin
			}
		}
	}
	return least[1] - least[0], nil
}

// StreamOverhead is the share of its rate that a saturated stream of 10 us kernels loses under libweft.so, the median of
// several pairs of runs; and how many messages the job and the agent exchanged per 1,000 launches meanwhile, without
// those about memory.
func StreamOverhead(ctx context.Context, b *Bed, length time.Duration, runs int) (fraction, messages float64, err error) {
	arguments := []string{"stream", "--kernel-us", "10", "--seconds", seconds(length)}
	var losses, rates []float64
	for range runs {
		alone, err := b.Probe(ctx, nil, arguments...)
		if err != nil {
			return 0, 0, err
		}
		before, err := b.Stats(ctx)
		if err != nil {
			return 0, 0, err
		}
		under, err := b.Probe(ctx, &Job{Name: "stream"}, arguments...)
		if err != nil {
			return 0, 0, err
		}
		after, err := b.Stats(ctx)
		if err != nil {
			return 0, 0, err
		}
		losses = append(losses, 1-under.KernelRate/alone.KernelRate)
		rates = append(rates, 1000*float64(after.TokenMessages-before.TokenMessages)/float64(max(1, after.Launches-before.Launches)))
	}
	return median(losses), median(rates), nil
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
