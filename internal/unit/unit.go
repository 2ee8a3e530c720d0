// Package unit holds the quantities weft computes with: bytes, thousandths of a GPU, and virtual time. Each is
// an integer type of its own, so that a byte count cannot be added to a share of a GPU, and their arithmetic
// saturates: an absurd input gives the largest value, never a negative one.
package unit

import (
	"math"
	"time"
)

// MilliGPU is a share of one GPU in thousandths: 1000 is a whole device, 0 none.
type MilliGPU int64

// WholeGPU is one whole device.
const WholeGPU MilliGPU = 1000

// MilliCPU is a number of CPU cores in thousandths.
type MilliCPU int64

// Time is a point of virtual time: nanoseconds since the origin of a trace. It never comes from a wall clock.
// Its range is 292 years.
type Time int64

// Never is later than every event.
const Never Time = math.MaxInt64

// Seconds converts seconds since the origin to a Time, rounding to the nearest nanosecond and saturating. What is not
// a number is Never.
func Seconds(s float64) Time {
	ns := math.Round(s * 1e9)
	switch {
	case ns <= math.MinInt64:
		return math.MinInt64
	case ns < math.MaxInt64:
		return Time(ns)
	}
	return Never
}

// Seconds is t in seconds since the origin.
func (t Time) Seconds() float64 { return float64(t) / 1e9 }

// Add is t + d, saturating at Never.
func (t Time) Add(d time.Duration) Time { return Time(addSaturating(int64(t), int64(d))) }

// Sub is the duration from u to t, saturating.
func (t Time) Sub(u Time) time.Duration { return time.Duration(subSaturating(int64(t), int64(u))) }

// Duration converts seconds to a time.Duration, rounding to the nearest nanosecond and saturating.
func Duration(s float64) time.Duration { return time.Duration(Seconds(s)) }

func addSaturating(a, b int64) int64 {
	s := a + b
	if a > 0 && b > 0 && s < 0 {
		return math.MaxInt64
	}
	if a < 0 && b < 0 && s >= 0 {
		return math.MinInt64
	}
	return s
}

func subSaturating(a, b int64) int64 {
	d := a - b
	if a >= 0 && b < 0 && d < 0 {
		return math.MaxInt64
	}
	if a < 0 && b > 0 && d >= 0 {
		return math.MinInt64
	}
	return d
}
