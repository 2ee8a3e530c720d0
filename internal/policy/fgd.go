package policy

import (
	"math"
	"slices"

	"weft.dev/weft/internal/unit"
)

// gradientDescent is fragmentation gradient descent (FGD): it takes the node, and for a single GPU or a fraction of
// one the GPU, where placing the pod adds least fragmentation. The score is 100 times the logistic function of the
// fragmentation saved in GPUs, truncated; the lowest GPU wins ties.
type gradientDescent struct {
	mix  *fragmentation
	left []unit.MilliGPU // scratch: the GPUs after a placement
}

func (d *gradientDescent) score(n *nodeFree, s *podShape) int {
	if s.workers == 1 {
		score, _ := d.bestGPU(n, s)
		return score
	}
	pick := make([]int32, s.workers)
	n.leastSufficient(s.share, pick)
	return d.saving(n, s, pick)
}

func (d *gradientDescent) gpus(n *nodeFree, s *podShape, pick []int32) {
	if s.workers == 1 {
		_, pick[0] = d.bestGPU(n, s)
		return
	}
	n.leastSufficient(s.share, pick)
}

// bestGPU is the lowest GPU among those that score highest for a pod of one worker, and its score.
func (d *gradientDescent) bestGPU(n *nodeFree, s *podShape) (score int, gpu int32) {
	score = math.MinInt
	for g, left := range n.left {
		if left < s.share || slices.Contains(n.left[:g], left) {
			continue // does not fit, or is no better than an equal one before it
		}
		if v := d.saving(n, s, []int32{int32(g)}); v > score {
			score, gpu = v, int32(g)
		}
	}
	return score, gpu
}

// saving is the score of one placement of the pod on the node.
func (d *gradientDescent) saving(n *nodeFree, s *podShape, gpus []int32) int {
	d.left = append(d.left[:0], n.left...)
	for _, g := range gpus {
		d.left[g] -= s.share
	}
	after := d.mix.measure(n, n.cpu-s.cpu, d.left, n.total-s.demand())
	return int(100 / (1 + math.Exp(-(d.mix.of(n)-after)/float64(unit.WholeGPU))))
}
