package policy

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
)

// ScoredOptions are the inputs of a scored placement beside cluster and jobs. The zero value suits every placement
// but "random".
type ScoredOptions struct {
	// Labels orders the nodes: the smallest label wins among equal scores. A permutation of 0..nodes-1; nil labels
	// the nodes by their index.
	Labels []int
	// Typical is the jobs whose mix the fragmentation measure expects; nil means the jobs to be placed.
	Typical []cluster.Job
	// Random is what "random" draws from.
	Random Random
}

// Scored places each job on the node that scores highest among those that can hold all of it: enough free CPU, host
// memory, and GPUs of an accepted model with enough left, one per worker. The smallest label wins ties. A job
// without GPUs may go to any node. The rules are those of the fragmentation study (Weng et al., USENIX ATC 2023).
//
// A job with more workers than any node it may run on has GPUs spans nodes: it first takes wholly free nodes, those
// with most GPUs first, the smallest label where equal, each that has no more GPUs than workers are left; what
// remains goes, as one gang, to the highest-scoring other node. CPU and memory are split by workers, rounded up. A
// job is placed as a whole or not at all.
//
// Virtual clusters are not looked at: make one Scored for each. Scores are kept per shape of job and worked out anew
// only for nodes that changed since: Place costs O(nodes) comparisons and O(changed nodes) scores, O(1) for a shape
// that did not fit and could not since. Release costs O(slots).
type Scored struct {
	rule   scoredRule
	picker nodePicker // nil: the smallest label
	nodes  []nodeFree
	empty  []nodeFree // as nodes were at first
	order  []int32    // nodes by GPUs descending, then label: in which spanning jobs take whole nodes
	labels []int
	table  *shapeTable
	shapes []*podShape // of each job
	mix    *fragmentation
	onNode map[int]int32 // where jobs without GPUs are, or ^node where they were: they have no slots to tell

	changes  uint64  // of nodes, ever
	recent   []int32 // ring of the last len(nodes) changed nodes
	stamps   []uint64
	stamp    uint64
	releases uint64
	cached   int // entries of all podShape.keys
	budget   int // most of them
	pick     []int32
	whole    []Slot // scratch: the nodes that a spanning job takes all of
	equal    []int
}

// NewScored makes the named placement for jobs on an empty cluster. It is an error when the name is unknown, the
// labels are no permutation, a job's numbers make no sense, or "random" has nothing to draw from.
func NewScored(name string, c cluster.Cluster, jobs []cluster.Job, o ScoredOptions) (*Scored, error) {
	if o.Typical == nil {
		o.Typical = jobs
	}
	p := &Scored{table: newShapeTable(c), nodes: make([]nodeFree, len(c.Nodes)),
		empty: make([]nodeFree, len(c.Nodes)), shapes: make([]*podShape, len(jobs)),
		onNode: map[int]int32{}, recent: make([]int32, len(c.Nodes)), stamps: make([]uint64, len(c.Nodes)),
		budget: maxCached}
	largest := largestNode(c)
	for i, n := range c.Nodes {
		p.nodes[i] = newNodeFree(n, p.table.kindOf[i], largest.gpus+1)
		p.empty[i] = newNodeFree(n, p.table.kindOf[i], largest.gpus+1)
	}
	for i := range jobs {
		key, err := p.table.key(&jobs[i])
		if err != nil {
			return nil, err
		}
		p.shapes[i] = p.table.intern(key)
	}
	if err := p.label(o.Labels); err != nil {
		return nil, err
	}
	var err error
	if p.mix, err = newFragmentation(p.table, o.Typical); err != nil {
		return nil, err
	}
	if p.rule, err = newScoredRule(name, largest, p.mix, o.Random); err != nil {
		return nil, err
	}
	p.picker, _ = p.rule.(nodePicker)
	return p, nil
}

// Place implements Placer. A job without GPUs gets no slots, and true.
func (p *Scored) Place(job int) ([]Slot, bool) {
	s := p.shapes[job]
	if s.refused == p.releases+1 {
		return nil, false // taking only ever leaves less
	}
	if s.spans() {
		return p.placeSpanning(s)
	}
	node := p.best(s, nil)
	if node < 0 {
		s.refused = p.releases + 1
		return nil, false
	}
	if s.workers == 0 {
		p.onNode[job] = int32(node)
	}
	return p.take(make([]Slot, 0, s.workers), s, node), true
}

// take takes a pod's GPUs on a node, chosen by the rule, and appends them to slots.
func (p *Scored) take(slots []Slot, s *podShape, node int) []Slot {
	n := &p.nodes[node]
	p.pick = append(p.pick[:0], make([]int32, s.workers)...)
	p.rule.gpus(n, s, p.pick)
	n.take(s, p.pick)
	p.changed(node)
	for _, g := range p.pick {
		slots = append(slots, Slot{Node: int32(node), GPU: g})
	}
	return slots
}

// Release implements Placer. The slots must be as Place returned them; giving back what is not taken panics.
func (p *Scored) Release(job int, slots []Slot) {
	if p.shapes[job].workers == 0 {
		if node, known := p.onNode[job]; !known || node < 0 {
			panic(fmt.Sprintf("policy: job %d released but not placed", job))
		}
	}
	p.releases++
	for part := range p.parts(job, slots) {
		p.nodes[part.node].giveBack(part.shape, part.gpus)
		p.changed(part.node)
	}
	if p.shapes[job].workers == 0 {
		p.onNode[job] = ^p.onNode[job]
	}
}

// Fragmentation is how much free GPU the typical jobs are expected not to be able to use, in thousandths of a GPU
// summed over the nodes in order. O(nodes), and a measure of each node that changed since the last call.
func (p *Scored) Fragmentation() float64 {
	sum := 0.0
	for i := range p.nodes {
		sum += p.mix.of(&p.nodes[i])
	}
	return sum
}
