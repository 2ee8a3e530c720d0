package policy

import "weft.dev/weft/internal/unit"

// Bounds of packing's three bands of scores, of 100.
const (
	packInUse  = 50 // least, where all GPUs taken are in use already, and most, where some wholly free ones are taken
	packBroken = 33 // least, where wholly free GPUs of a node in use are taken, and most, where the node is wholly free
)

// packing fills GPUs in use before it breaks into free ones, and nodes in use before it breaks into wholly free
// ones; among wholly free nodes it prefers the small, among GPUs the full. Pods without GPUs score 0 everywhere.
type packing struct {
	leastLeft
	pick []int32
}

func (p *packing) score(n *nodeFree, s *podShape) int {
	if s.workers == 0 {
		return 0
	}
	if n.wholly() {
		return max(packBroken-len(n.left), len(n.left))
	}
	p.pick = append(p.pick[:0], make([]int32, s.workers)...)
	n.leastSufficient(s.share, p.pick)
	free, left := 0, unit.MilliGPU(0)
	for _, g := range p.pick {
		left += n.left[g]
		if n.left[g] == unit.WholeGPU {
			free++
		}
	}
	if free > 0 {
		return max(packInUse-free, packBroken)
	}
	// What is left in percent of a GPU, ten of which cost a point.
	return max(100-int(left*100/unit.WholeGPU/10), packInUse)
}
