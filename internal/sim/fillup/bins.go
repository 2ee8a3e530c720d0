package fillup

import (
	"math"

	"weft.dev/weft/internal/unit"
)

// bins averages the states after each arrival by percent of arrived demand. Demand only grows, so one bin is open at
// a time.
type bins struct {
	gpus   float64 // of the cluster
	points []Point

	percent                   int
	allocation, fragmentation []float64 // of each arrival of the open bin
}

// add records the state after an arrival, in thousandths of a GPU. The divisions and roundings are the study's, to
// its last digit: allocation is rounded to two decimals before it is averaged.
func (b *bins) add(arrived, used unit.MilliGPU, fragmentation float64) {
	percent := int(math.RoundToEven(float64(arrived) / b.gpus / 10))
	if percent != b.percent {
		b.close()
		b.percent = percent
	}
	b.allocation = append(b.allocation, math.RoundToEven(float64(used)/b.gpus/10*100)/100)
	b.fragmentation = append(b.fragmentation, fragmentation)
}

// close ends the open bin and makes a Point of it, unless nothing fell into it.
func (b *bins) close() {
	if len(b.allocation) == 0 {
		return
	}
	n := float64(len(b.allocation))
	b.points = append(b.points, Point{Arrived: b.percent, Arrivals: len(b.allocation),
		Allocation:    pairwise(b.allocation) / n,
		Fragmentation: 100 * (pairwise(b.fragmentation) / n) / float64(unit.WholeGPU) / b.gpus})
	b.allocation, b.fragmentation = b.allocation[:0], b.fragmentation[:0]
}

// Sizes of pairwise summation: NumPy's, which the study's means were taken with.
const (
	lanes    = 8   // sums kept side by side
	unhalved = 128 // values added without halving
)

// pairwise is the sum of the values by halves, each added in eight interleaved lanes: its rounding error grows with
// log n (Higham, SIAM J. Sci. Comput. 14(4), 1993). The order of additions is NumPy's, for two published means lie
// within an ulp of half a hundredth.
func pairwise(v []float64) float64 {
	if len(v) > unhalved {
		half := len(v) / 2
		half -= half % lanes
		return pairwise(v[:half]) + pairwise(v[half:])
	}
	sum := 0.0
	if len(v) >= lanes {
		var lane [lanes]float64
		for ; len(v) >= lanes; v = v[lanes:] {
			for i := range lane {
				lane[i] += v[i]
			}
		}
		sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))
	}
	for _, x := range v {
		sum += x
	}
	return sum
}
