package agent

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets of 1/8 of a power of two: a quantile is at most 12.5 % too high.
type histogram struct {
	buckets [64 * steps]uint32
	count   uint64
	sum     time.Duration
}

const steps = 8

// bucket is the number of a duration's bucket.
func bucket(d time.Duration) int {
	n := uint64(max(0, d))
	if n < steps {
		return int(n)
	}
	shift := bits.Len64(n) - 4 // leaves four bits: the leading one and the step
	return (shift+1)*steps + int(n>>shift) - steps
}

// edge is the lowest duration beyond a bucket.
func edge(b int) time.Duration {
	b++
	if b < 2*steps {
		return time.Duration(b)
	}
	return time.Duration(steps+b%steps) << (b/steps - 1)
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucket(d)]++
	h.count++
	h.sum += d
}

// quantile is a duration that a share of those counted do not exceed; 0 of none.
func (h *histogram) quantile(share float64) time.Duration {
	rank := share * float64(h.count)
	var below uint64
	for b, n := range &h.buckets {
		below += uint64(n)
		if n > 0 && float64(below) >= rank {
			return edge(b)
		}
	}
	return 0
}

// upTo is how many of those counted are in buckets that end at a duration or before.
func (h *histogram) upTo(d time.Duration) uint64 {
	var below uint64
	for b, n := range &h.buckets {
		if n > 0 && edge(b) <= d {
			below += uint64(n)
		}
	}
	return below
}
