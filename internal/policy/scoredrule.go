package policy

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Random yields whole numbers in [0, n), each as likely: *rand.Rand of math/rand/v2 is one.
type Random interface {
	IntN(n int) int
}

// scoredRule is one placement of the literature: how good a node is for a pod, and which of its GPUs to take.
type scoredRule interface {
	// score rates a node that can hold the pod; higher is better.
	score(n *nodeFree, s *podShape) int
	// gpus fills pick, one per worker, for the node chosen.
	gpus(n *nodeFree, s *podShape, pick []int32)
}

// nodePicker is a scoredRule that takes any of the best nodes instead of the one with the smallest label.
type nodePicker interface {
	pick(n int) int
}

// ScoredNames lists the placements that NewScored knows.
func ScoredNames() []string {
	return []string{"firstfit", "bestfit", "dotprod", "clustering", "packing", "fgd", "random"}
}

func newScoredRule(name string, largest nodeSize, mix *fragmentation, draw Random) (scoredRule, error) {
	switch name {
	case "firstfit":
		return firstFit{}, nil
	case "bestfit":
		return bestFit{largest: largest}, nil
	case "dotprod":
		return dotProduct{largest: largest}, nil
	case "clustering":
		return clustering{capacity: largest.milli()}, nil
	case "packing":
		return &packing{}, nil
	case "fgd":
		return &gradientDescent{mix: mix}, nil
	case "random":
		if draw == nil {
			return nil, fmt.Errorf("placement %q needs a source of random numbers", name)
		}
		return uniformChoice{draw}, nil
	}
	return nil, fmt.Errorf("placement %q is none of %q", name, ScoredNames())
}

// nodeSize is a number of CPUs and GPUs of one node.
type nodeSize struct {
	cpu  unit.MilliCPU
	gpus int
}

func (s nodeSize) milli() unit.MilliGPU { return unit.MilliGPU(s.gpus) * unit.WholeGPU }

// largestNode is the most CPUs and the most GPUs of any node: what scores are relative to. On the openb cluster they
// are the constants of the study, 128 CPUs and 8 GPUs.
func largestNode(c cluster.Cluster) nodeSize {
	var most nodeSize
	for _, n := range c.Nodes {
		most.cpu = max(most.cpu, n.CPU)
		most.gpus = max(most.gpus, n.GPUs)
	}
	return most
}
