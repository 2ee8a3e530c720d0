package policy

import (
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// shapeKey is all that a scored placement looks at of a job: jobs of one shape are interchangeable.
type shapeKey struct {
	cpu     unit.MilliCPU // of all workers
	memory  unit.Bytes    // of all workers
	share   unit.MilliGPU // of each worker's GPU; 0 for a job without GPUs
	workers int
	runsOn  *nodeKinds
}

// podShape is a shape with the scores of every node for it.
type podShape struct {
	shapeKey
	affinity int // 0 for a fraction of a GPU, else the number of GPUs on one node: what clustering keeps together

	keys    []int64 // score and label of each node, see Scored.key; nil until first asked for
	seen    uint64  // changes of nodes that keys reflect
	refused uint64  // 1 + the releases before the last failure: until the next release it fails again
}

// spans says whether the job has more workers than any node it may run on has GPUs.
func (s *podShape) spans() bool { return s.workers > s.runsOn.most }

// part is the shape of k of the workers on one node, CPU and memory in proportion, rounded up.
func (s shapeKey) part(k int) shapeKey {
	if k == s.workers {
		return s
	}
	s.cpu = unit.MilliCPU(proportion(int64(s.cpu), k, s.workers))
	s.memory = unit.Bytes(proportion(int64(s.memory), k, s.workers))
	s.workers = k
	return s
}

// proportion is amount*k/n rounded up, without forming the product amount*k.
func proportion(amount int64, k, n int) int64 {
	each, rest := amount/int64(n), amount%int64(n)
	return each*int64(k) + (rest*int64(k)+int64(n)-1)/int64(n)
}

// nodeKinds is which kinds of node a job may run on. A kind is one GPU model with one memory size.
type nodeKinds struct {
	models string // the models as the job names them, joined by |
	kinds  []bool // by nodeFree.kind
	most   int    // GPUs of the largest such node
}

type nodeKind struct {
	model  string
	memory unit.Bytes
}

// shapeTable interns the shapes of jobs, so that what is worked out for one job serves all alike.
type shapeTable struct {
	nodes  []cluster.Node
	kinds  []nodeKind
	kindOf []int        // of each node
	sizes  []unit.Bytes // the GPU memory sizes of the cluster, ascending
	runsOn map[nodeKind]*nodeKinds
	shapes map[shapeKey]*podShape
}

func newShapeTable(c cluster.Cluster) *shapeTable {
	t := &shapeTable{nodes: c.Nodes, kindOf: make([]int, len(c.Nodes)), runsOn: map[nodeKind]*nodeKinds{},
		shapes: map[shapeKey]*podShape{}}
	for i, n := range c.Nodes {
		kind := nodeKind{n.GPUModel, n.GPUMemory}
		at := slices.Index(t.kinds, kind)
		if at < 0 {
			at = len(t.kinds)
			t.kinds = append(t.kinds, kind)
			if n.GPUMemory > 0 {
				t.sizes = append(t.sizes, n.GPUMemory)
			}
		}
		t.kindOf[i] = at
	}
	slices.Sort(t.sizes)
	t.sizes = slices.Compact(t.sizes)
	return t
}

// key is the shape of a job. It is an error when the job's numbers make no sense.
func (t *shapeTable) key(j *cluster.Job) (shapeKey, error) {
	switch {
	case j.Workers < 0 || j.CPU < 0 || j.HostMemory < 0:
		return shapeKey{}, fmt.Errorf("job %q: negative workers, CPU or memory (%d, %d, %d)", j.ID, j.Workers, j.CPU,
			j.HostMemory)
	case j.Workers > 0 && (j.Share <= 0 || j.Share > unit.WholeGPU):
		return shapeKey{}, fmt.Errorf("job %q: share %d of a GPU is not in [1, %d] thousandths", j.ID, j.Share, unit.WholeGPU)
	}
	s := shapeKey{cpu: j.CPU, memory: j.HostMemory, share: j.Share, workers: j.Workers, runsOn: t.kindsFor(j)}
	if s.workers == 0 {
		s.share = 0
	}
	return s, nil
}

// kindsFor is the kinds of node whose model the job accepts and whose GPUs hold its peak memory.
func (t *shapeTable) kindsFor(j *cluster.Job) *nodeKinds {
	// Rounding the peak up to the next size of the cluster makes few kinds of many peaks.
	size := j.Memory.Peak
	if at, _ := slices.BinarySearch(t.sizes, size); at < len(t.sizes) {
		size = t.sizes[at]
	} else if len(t.sizes) > 0 {
		size = t.sizes[at-1] + 1
	} else {
		size = 0
	}
	want := nodeKind{strings.Join(j.Models, "|"), size}
	if known, ok := t.runsOn[want]; ok {
		return known
	}
	set := &nodeKinds{models: want.model, kinds: make([]bool, len(t.kinds))}
	for i, k := range t.kinds {
		set.kinds[i] = j.Accepts(k.model) && (k.memory == 0 || k.memory >= size)
	}
	for i, n := range t.nodes {
		if set.kinds[t.kindOf[i]] {
			set.most = max(set.most, n.GPUs)
		}
	}
	t.runsOn[want] = set
	return set
}

// intern is the one podShape of a key.
func (t *shapeTable) intern(key shapeKey) *podShape {
	s, ok := t.shapes[key]
	if !ok {
		s = &podShape{shapeKey: key}
		if key.share == unit.WholeGPU {
			s.affinity = key.workers
		}
		t.shapes[key] = s
	}
	return s
}

// demand is what the job takes of all GPUs together.
func (s *shapeKey) demand() unit.MilliGPU { return s.share * unit.MilliGPU(s.workers) }
