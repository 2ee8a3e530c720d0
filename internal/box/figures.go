package box

import (
	"cmp"
	"slices"
)

// Figures counts what happened since the daemon's state began, for monitoring. Counters only rise.
type Figures struct {
	Plan       Histogram           // of the time to decide who starts and moves, in seconds
	QueueWait  map[Class]Histogram // from submission to the first start, in seconds
	Outcomes   map[Outcome]uint64  // jobs done
	Operations map[OperationKey]uint64
}

// OperationKey is an operation and whether it was done ("ok"), or what kept it from being done.
type OperationKey struct {
	Verb    Verb
	Outcome string
}

// Histogram counts values in buckets. The zero value is not ready: NewHistogram.
type Histogram struct {
	Bounds []float64 // upper ends of the buckets, included, ascending
	Counts []uint64  // of each bucket alone; one more for all beyond the last bound
	Sum    float64
}

// NewHistogram is an empty histogram with upper bounds in ascending order.
func NewHistogram(bounds ...float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// PlanBounds suit the time of a decision: 100 us to 10 s.
func PlanBounds() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// WaitBounds suit the wait of a job for its start: a tenth of a second to a week.
func WaitBounds() []float64 {
	return []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}
}

// Observe counts a value.
func (h *Histogram) Observe(value float64) {
	i, _ := slices.BinarySearch(h.Bounds, value)
	h.Counts[i]++
	h.Sum += value
}

// Count is the number of values.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Clone is a copy that does not change with the histogram.
func (h *Histogram) Clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

// Compare orders keys by verb, then by outcome.
func (k OperationKey) Compare(o OperationKey) int {
	return cmp.Or(cmp.Compare(k.Verb, o.Verb), cmp.Compare(k.Outcome, o.Outcome))
}
