package policy

// leastLeft takes the fullest GPUs that suffice: what all but two placements do once the node is chosen.
type leastLeft struct{}

func (leastLeft) gpus(n *nodeFree, s *podShape, pick []int32) { n.leastSufficient(s.share, pick) }

// firstFit takes the node with the smallest label.
type firstFit struct{ leastLeft }

func (firstFit) score(*nodeFree, *podShape) int { return 0 }
