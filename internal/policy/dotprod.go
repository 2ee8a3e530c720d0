package policy

// dotProduct prefers the node whose free CPU and GPU are least aligned with, and least above, what the pod asks: 100
// less the dot product of both as shares of the largest node, halved and in percent, truncated.
type dotProduct struct {
	leastLeft
	largest nodeSize
}

func (d dotProduct) score(n *nodeFree, s *podShape) int {
	dot := 0.0
	if !n.anyCPU {
		most := float64(d.largest.cpu)
		dot += float64((float64(n.cpu) / most) * (float64(s.cpu) / most))
	}
	if len(n.left) > 0 {
		most := float64(d.largest.milli())
		dot += float64((float64(n.total) / most) * (float64(s.demand()) / most))
	}
	return int(100 * (1 - dot/2))
}
