package policy

import "weft.dev/weft/internal/unit"

// uniformChoice takes any node that fits, and for a fraction any GPU that fits, each as likely. Whole GPUs are taken
// from the lowest.
type uniformChoice struct{ draw Random }

func (uniformChoice) score(*nodeFree, *podShape) int { return 0 }

// pick implements nodePicker.
func (u uniformChoice) pick(n int) int { return u.draw.IntN(n) }

func (u uniformChoice) gpus(n *nodeFree, s *podShape, pick []int32) {
	if s.share == unit.WholeGPU {
		n.leastSufficient(s.share, pick)
		return
	}
	// One pass of selection sampling keeps every set of GPUs as likely (Knuth, TAOCP 2, algorithm 3.4.2S).
	fitting := 0
	for _, left := range n.left {
		if left >= s.share {
			fitting++
		}
	}
	taken := 0
	for g, left := range n.left {
		if left < s.share || taken == len(pick) {
			continue
		}
		if u.draw.IntN(fitting) < len(pick)-taken {
			pick[taken] = int32(g)
			taken++
		}
		fitting--
	}
}
