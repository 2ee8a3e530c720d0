package policy

import "weft.dev/weft/internal/unit"

// Points of clustering, of 100: for company of the same affinity, and for a node that is full already.
const (
	affinityOnlySame    = 75 // all residents have the pod's affinity
	affinityAmongOthers = 50 // some have
	affinityNoResidents = 25
	affinityFullest     = 25 // for a largest node with nothing left
)

// clustering keeps pods that ask alike together: fractions of a GPU on some nodes, one-GPU pods on others, and so on
// for each number of GPUs; then it prefers the fuller node. Pods without GPUs score 0 everywhere.
type clustering struct {
	leastLeft
	capacity unit.MilliGPU // of the largest node
}

func (c clustering) score(n *nodeFree, s *podShape) int {
	if s.workers == 0 {
		return 0
	}
	score := int(affinityFullest * (c.capacity - n.total) / c.capacity)
	same := n.held[s.affinity] > 0
	switch {
	case same && n.affinity == 1:
		score += affinityOnlySame
	case same:
		score += affinityAmongOthers
	case n.affinity == 0:
		score += affinityNoResidents
	}
	return score
}
