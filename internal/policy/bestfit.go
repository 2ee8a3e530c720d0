package policy

// bestFit prefers the node with least left after placing: 100 less the mean of free CPU and free GPU, each as a
// percentage of the largest node's, truncated.
type bestFit struct {
	leastLeft
	largest nodeSize
}

func (b bestFit) score(n *nodeFree, s *podShape) int {
	free := 0.0
	if !n.anyCPU {
		free += float64(float64(n.cpu-s.cpu) / float64(b.largest.cpu) * 0.5)
	}
	if len(n.left) > 0 {
		free += float64(float64(n.total-s.demand()) / float64(b.largest.milli()) * 0.5)
	}
	return int((1 - free) * 100)
}
