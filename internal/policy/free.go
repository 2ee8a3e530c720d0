package policy

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// nodeFree is what is left of one node: CPU, host memory and a share of each GPU. All of it are integers, so that
// giveBack is the exact inverse of take.
type nodeFree struct {
	cpu       unit.MilliCPU
	memory    unit.Bytes
	anyCPU    bool // CPU is not a limit here
	anyMemory bool // host memory is not a limit here
	left      []unit.MilliGPU
	total     unit.MilliGPU // sum of left
	kind      int           // index of the node's GPU model and memory, see nodeKinds
	held      []int         // residents per affinity, see podShape.affinity
	affinity  int           // how many affinities have residents
	fragment  float64       // the fragmentation of this state
	measured  bool          // fragment is up to date
}

func newNodeFree(n cluster.Node, kind, affinities int) nodeFree {
	free := nodeFree{cpu: n.CPU, memory: n.Memory, anyCPU: n.CPU == 0, anyMemory: n.Memory == 0, kind: kind,
		left: make([]unit.MilliGPU, n.GPUs), total: unit.MilliGPU(n.GPUs) * unit.WholeGPU, held: make([]int, affinities)}
	for g := range free.left {
		free.left[g] = unit.WholeGPU
	}
	return free
}

// fits says whether one node can hold all of a pod now.
func (n *nodeFree) fits(s *podShape) bool {
	if s.cpu > n.cpu && !n.anyCPU || s.memory > n.memory && !n.anyMemory {
		return false
	}
	if s.workers == 0 {
		return true
	}
	if s.workers > len(n.left) || !s.runsOn.kinds[n.kind] {
		return false
	}
	need := s.workers
	for _, left := range n.left {
		if left >= s.share {
			need--
			if need == 0 {
				return true
			}
		}
	}
	return false
}

// hasRoom says whether each of the GPUs has the share left.
func (n *nodeFree) hasRoom(share unit.MilliGPU, gpus []int32) bool {
	for _, g := range gpus {
		if n.left[g] < share {
			return false
		}
	}
	return true
}

// wholly says whether no GPU of the node is in use.
func (n *nodeFree) wholly() bool { return n.total == unit.MilliGPU(len(n.left))*unit.WholeGPU }

// take gives a pod that fits its CPU, its memory and its share of each of the GPUs.
func (n *nodeFree) take(s *podShape, gpus []int32) {
	n.book(s, gpus, 1)
	if s.workers == 0 {
		return
	}
	if n.held[s.affinity]++; n.held[s.affinity] == 1 {
		n.affinity++
	}
}

// giveBack undoes take. It panics when more comes back than was taken: then the caller's books are wrong.
func (n *nodeFree) giveBack(s *podShape, gpus []int32) {
	n.book(s, gpus, -1)
	for _, g := range gpus {
		if n.left[g] > unit.WholeGPU {
			panic(fmt.Sprintf("policy: GPU %d of a node given back twice", g))
		}
	}
	if s.workers == 0 {
		return
	}
	if n.held[s.affinity]--; n.held[s.affinity] == 0 {
		n.affinity--
	}
}

func (n *nodeFree) book(s *podShape, gpus []int32, sign int) {
	if !n.anyCPU {
		n.cpu -= unit.MilliCPU(sign) * s.cpu
	}
	if !n.anyMemory {
		n.memory -= unit.Bytes(sign) * s.memory
	}
	share := unit.MilliGPU(sign) * s.share
	for _, g := range gpus {
		n.left[g] -= share
		n.total -= share
	}
	n.measured = false
}

// leastSufficient fills pick with the GPUs that have the least left among those with at least share, the lowest
// index first where equal; for whole GPUs these are the lowest free ones. It needs a node with len(pick) such GPUs.
// O(GPUs x len(pick)).
func (n *nodeFree) leastSufficient(share unit.MilliGPU, pick []int32) {
	chosen := pick[:0]
	for g, left := range n.left {
		if left < share {
			continue
		}
		at := len(chosen)
		for at > 0 && n.left[chosen[at-1]] > left {
			at--
		}
		if at == len(pick) {
			continue
		}
		if len(chosen) < len(pick) {
			chosen = chosen[:len(chosen)+1]
		}
		copy(chosen[at+1:], chosen[at:])
		chosen[at] = int32(g)
	}
}
