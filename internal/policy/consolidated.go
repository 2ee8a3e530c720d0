package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Consolidated places a gang on as few nodes as it can, by the rule of the published Philly replays:
//
//   - a gang that one node can hold goes to the node with the least sufficient number of free GPUs, and waits when
//     there is none;
//   - a larger gang walks the nodes by free GPUs, most first: it takes wholly free nodes, until one node has what is
//     still missing. On equal nodes of n GPUs that means floor(g/n) wholly free nodes, and g mod n GPUs on the next.
//
// Ties go to the lowest node index, and to the lowest GPU indices on a node. Beyond the published rule: on nodes of
// unequal size "one node can hold it" means the largest node, and a partly used node with too little is passed over;
// a job keeps to the GPU models that it names and to GPUs of enough memory; and workers with a share of less than a
// whole GPU go first to partly used GPUs, the least sufficient share left first (lowest index on ties), each worker
// on another GPU, the rest to GPUs chosen as above. CPU and host memory do not bind.
//
// Place and Release take O(workers) and a few words of a bit set; Place allocates once in thousands of workers. The
// slots it returns are never written again.
type Consolidated struct {
	jobs  []consolidatedJob
	wants []consolidatedWant
	pools []consolidatedPool
	nodes []consolidatedNode
	left  []unit.MilliGPU // of each GPU of the cluster, nodes in order
	owner []int32         // the node of each GPU
	room  []Slot          // free room, from which Place cuts its answers
}

// roomSlots is how many slots are allocated at a time: 32 KiB, which the garbage collector takes back once all jobs
// in it have ended.
const roomSlots = 4096

type consolidatedJob struct {
	workers, want int32
	share         unit.MilliGPU
}

// consolidatedWant is what some jobs have in common: the pools they may use.
type consolidatedWant struct {
	pools   []int32
	sizes   []bool // sizes[n]: some node of these pools has n GPUs
	largest int    // GPUs of the largest node
	gpus    int
	reason  string // why no pool will do
}

// consolidatedPool is the nodes that no job can tell apart: one GPU model, one GPU memory.
type consolidatedPool struct {
	model  string
	memory unit.Bytes
	gpus   int
	sizes  []bool              // sizes[n]: some node has n GPUs; as long as the largest node asks for
	free   consolidatedBuckets // nodes by number of wholly free GPUs
	partly consolidatedBuckets // partly used GPUs by what is left
}

type consolidatedNode struct {
	pool, first, gpus, free int32 // first: its first GPU in left
}

// NewConsolidated makes the placer of one cluster and one job list.
func NewConsolidated(c cluster.Cluster, jobs []cluster.Job) *Consolidated {
	p := &Consolidated{nodes: make([]consolidatedNode, len(c.Nodes)), left: make([]unit.MilliGPU, c.GPUs()),
		owner: make([]int32, c.GPUs())}
	for i := range p.left {
		p.left[i] = unit.WholeGPU
	}
	p.addNodes(c)
	p.addJobs(jobs)
	return p
}

func (p *Consolidated) addNodes(c cluster.Cluster) {
	largest, first := 0, 0
	for _, n := range c.Nodes {
		largest = max(largest, n.GPUs)
	}
	for i, n := range c.Nodes {
		k := slices.IndexFunc(p.pools, func(q consolidatedPool) bool {
			return q.model == n.GPUModel && q.memory == n.GPUMemory
		})
		if k < 0 {
			k = len(p.pools)
			p.pools = append(p.pools, consolidatedPool{model: n.GPUModel, memory: n.GPUMemory,
				free:   newConsolidatedBuckets(len(c.Nodes), largest+1),
				partly: newConsolidatedBuckets(len(p.left), int(unit.WholeGPU))})
		}
		p.nodes[i] = consolidatedNode{pool: int32(k), first: int32(first), gpus: int32(n.GPUs), free: int32(n.GPUs)}
		q := &p.pools[k]
		q.gpus += n.GPUs
		q.sizes = append(q.sizes, make([]bool, max(0, n.GPUs+1-len(q.sizes)))...)
		q.sizes[n.GPUs] = true
		q.free.add(n.GPUs, i)
		for range n.GPUs {
			p.owner[first] = int32(i)
			first++
		}
	}
}

func (p *Consolidated) addJobs(jobs []cluster.Job) {
	type want struct {
		models string
		memory unit.Bytes
	}
	known := map[want]int32{}
	p.jobs = make([]consolidatedJob, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		key := want{memory: j.Memory.Peak}
		if len(j.Models) > 0 {
			key.models = strings.Join(j.Models, "|")
		}
		w, ok := known[key]
		if !ok {
			w = int32(len(p.wants))
			known[key] = w
			p.wants = append(p.wants, p.newWant(j))
		}
		p.jobs[i] = consolidatedJob{workers: int32(min(j.Workers, math.MaxInt32)), want: w, share: j.Share}
	}
}

func (p *Consolidated) newWant(j *cluster.Job) consolidatedWant {
	var w consolidatedWant
	var most unit.Bytes
	for k := range p.pools {
		q := &p.pools[k]
		if !j.Accepts(q.model) {
			continue
		}
		if q.memory > 0 && j.Memory.Peak > q.memory {
			most = max(most, q.memory)
			continue
		}
		w.pools = append(w.pools, int32(k))
	}
	for _, k := range w.pools {
		w.gpus += p.pools[k].gpus
		w.largest = max(w.largest, len(p.pools[k].sizes)-1)
	}
	w.sizes = make([]bool, w.largest+1)
	for _, k := range w.pools {
		for n, has := range p.pools[k].sizes {
			w.sizes[n] = w.sizes[n] || has
		}
	}
	switch {
	case w.gpus > 0:
	case most > 0:
		w.reason = "TooLarge: fits no GPU"
	default:
		w.reason = "no GPU of model " + strings.Join(j.Models, ", ")
	}
	return w
}

// Fits implements Fitter. A gang fits the empty cluster exactly when the nodes it may use have GPUs enough.
func (p *Consolidated) Fits(job int) (reason string, ok bool) {
	j := &p.jobs[job]
	w := &p.wants[j.want]
	if w.reason != "" {
		return w.reason, false
	}
	if int(j.workers) > w.gpus {
		return fmt.Sprintf("gang of %d, cluster has %d", j.workers, w.gpus), false
	}
	return "", true
}

// Place implements Placer.
func (p *Consolidated) Place(job int) ([]Slot, bool) {
	j := &p.jobs[job]
	w := &p.wants[j.want]
	if int(j.workers) > w.gpus {
		return nil, false
	}
	if len(p.room) < int(j.workers) {
		p.room = make([]Slot, max(roomSlots, j.workers))
	}
	slots, ok := p.room[:0:j.workers], true
	if j.share < unit.WholeGPU {
		slots = p.choosePartly(w, j, slots)
	}
	if rest := int(j.workers) - len(slots); rest > 0 {
		slots, ok = p.chooseFree(w, rest, slots)
	}
	if !ok {
		return nil, false
	}
	p.room = p.room[j.workers:]
	p.change(slots, -j.share)
	return slots, true
}

// Release implements Placer.
func (p *Consolidated) Release(job int, slots []Slot) { p.change(slots, p.jobs[job].share) }

// Retake implements Retaker.
func (p *Consolidated) Retake(job int, slots []Slot) bool {
	share := p.jobs[job].share
	for _, s := range slots {
		if p.left[p.nodes[s.Node].first+s.GPU] < share {
			return false
		}
	}
	p.change(slots, -share)
	return true
}

// change adds share to what is left of each slot's GPU and keeps the buckets in step.
func (p *Consolidated) change(slots []Slot, share unit.MilliGPU) {
	for i := 0; i < len(slots); {
		node := slots[i].Node
		n := &p.nodes[node]
		pool, free := &p.pools[n.pool], n.free
		for ; i < len(slots) && slots[i].Node == node; i++ {
			gpu := n.first + slots[i].GPU
			before := p.left[gpu]
			after := before + share
			p.left[gpu] = after
			if before > 0 && before < unit.WholeGPU {
				pool.partly.remove(int(before), int(gpu))
			}
			if after > 0 && after < unit.WholeGPU {
				pool.partly.add(int(after), int(gpu))
			}
			if before == unit.WholeGPU {
				n.free--
			}
			if after == unit.WholeGPU {
				n.free++
			}
		}
		if n.free != free {
			pool.free.remove(int(free), int(node))
			pool.free.add(int(n.free), int(node))
		}
	}
}
