package muri

import (
	"cmp"
	"math"
	"slices"
)

// The utilisation that AntMan books on a GPU, as the published simulator has it. They are variables because
// constant arithmetic is exact in Go: guaranteedUtil - completionUtil must be the double-precision difference.
var (
	guaranteedUtil    = 0.1
	completionUtil    = 0.01 // held back until the gang is complete
	opportunisticUtil = 0.9
	sharableUtil      = 0.8 // an opportunistic job takes no GPU at or above it
)

// device is one GPU.
type device struct {
	util          float64
	guaranteed    *job // holds it, running or gathering its gang; nil when free
	opportunistic []*job
}

// antman runs guaranteed jobs at full speed on GPUs of their own and lets opportunistic jobs use what those leave
// (Xiao et al., OSDI 2020, as Muri's simulator has it). Nothing is preempted. Waiting jobs are tried by class, then
// submit time, then file order.
type antman struct {
	gpusPerNode   int
	devices       []device
	free          []int // GPUs without a guaranteed job, per node
	freeTotal     int
	guaranteed    []*job // waiting, some with part of their gang
	opportunistic []*job // waiting
	candidates    []int  // buffer: devices an opportunistic job may use
}

func newAntMan(nodes, gpusPerNode int) *antman {
	a := &antman{gpusPerNode: gpusPerNode, devices: make([]device, nodes*gpusPerNode), free: make([]int, nodes),
		freeTotal: nodes * gpusPerNode}
	for i := range a.free {
		a.free[i] = gpusPerNode
	}
	return a
}

func (a *antman) arrive(j *job) {
	if j.opportunistic {
		a.opportunistic = append(a.opportunistic, j)
	} else {
		a.guaranteed = append(a.guaranteed, j)
	}
}

func (a *antman) depart(j *job) {
	for _, g := range j.held {
		d := &a.devices[g]
		if j.opportunistic {
			d.util -= opportunisticUtil
			i := slices.Index(d.opportunistic, j)
			d.opportunistic = slices.Delete(d.opportunistic, i, i+1)
		} else {
			d.util -= guaranteedUtil
			d.guaranteed = nil
			a.free[g/a.gpusPerNode]++
			a.freeTotal++
		}
	}
	j.held = j.held[:0]
}

// schedule starts what can start, then sets the pace of the opportunistic jobs. O(waiting + GPUs).
func (a *antman) schedule(_ float64, previous, next []*job) decision {
	next = append(next, previous...)
	a.guaranteed, next = start(a.guaranteed, next, a.tryGuaranteed)
	a.gatherCandidates()
	a.opportunistic, next = start(a.opportunistic, next, a.tryOpportunistic)
	slices.SortFunc(next, inClassOrder)
	for _, j := range next {
		if j.opportunistic {
			j.pace = a.pace(j)
		}
	}
	return decision{running: next, inUse: a.inUse(), wake: math.Inf(1)}
}

// inClassOrder is the order of the published simulator's list.
func inClassOrder(a, b *job) int {
	if a.opportunistic != b.opportunistic {
		if b.opportunistic {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.rank, b.rank)
}

// start tries every waiting job in order. It returns those still waiting, and running with the others appended.
func start(waiting, running []*job, try func(*job) bool) (stillWaiting, nowRunning []*job) {
	stillWaiting = waiting[:0]
	for _, j := range waiting {
		if try(j) {
			j.running = true
			running = append(running, j)
		} else {
			stillWaiting = append(stillWaiting, j)
		}
	}
	clear(waiting[len(stillWaiting):])
	return stillWaiting, running
}

// tryGuaranteed gives a job more of the GPUs it waits for and says whether it has all of them.
func (a *antman) tryGuaranteed(j *job) bool {
	if a.freeTotal == 0 {
		return false
	}
	if j.gpus <= a.gpusPerNode {
		a.gather(j)
	} else {
		a.gatherNodes(j)
	}
	if len(j.held) < j.gpus {
		return false
	}
	for _, g := range j.held {
		a.devices[g].util += completionUtil
	}
	return true
}

// gather takes GPUs of one node: the first that can serve the whole gang, else the one that has most, to which the
// job then stays bound.
func (a *antman) gather(j *job) {
	if len(j.held) == 0 {
		n := slices.IndexFunc(a.free, func(free int) bool { return free >= j.gpus })
		if n < 0 {
			n = slices.Index(a.free, slices.Max(a.free))
		}
		j.nodes = append(j.nodes[:0], n)
	}
	a.take(j, j.nodes[0])
}

// gatherNodes takes wholly free nodes and keeps them.
func (a *antman) gatherNodes(j *job) {
	for n := 0; n < len(a.free) && len(j.held) < j.gpus; n++ {
		if a.free[n] == a.gpusPerNode {
			a.take(j, n)
		}
	}
}

// take gives a job the node's free GPUs, lowest first, as many as it lacks.
func (a *antman) take(j *job, node int) {
	for g := node * a.gpusPerNode; a.free[node] > 0 && len(j.held) < j.gpus; g++ {
		if d := &a.devices[g]; d.guaranteed == nil {
			d.guaranteed = j
			d.util += guaranteedUtil - completionUtil
			a.free[node]--
			a.freeTotal--
			j.held = append(j.held, g)
		}
	}
}

// gatherCandidates lists the GPUs that opportunistic jobs may use by utilisation, ties by node and GPU.
func (a *antman) gatherCandidates() {
	a.candidates = a.candidates[:0]
	for g := range a.devices {
		if a.devices[g].util < sharableUtil {
			a.candidates = append(a.candidates, g)
		}
	}
	slices.SortStableFunc(a.candidates, func(x, y int) int { return cmp.Compare(a.devices[x].util, a.devices[y].util) })
}

// tryOpportunistic puts a job on the least used candidates when there are enough.
func (a *antman) tryOpportunistic(j *job) bool {
	if len(a.candidates) < j.gpus {
		return false
	}
	for _, g := range a.candidates[:j.gpus] {
		d := &a.devices[g]
		d.util += opportunisticUtil
		d.opportunistic = append(d.opportunistic, j)
		j.held = append(j.held, g)
	}
	a.gatherCandidates()
	return true
}

// inUse counts the GPUs with a running job.
func (a *antman) inUse() int {
	n := 0
	for i := range a.devices {
		d := &a.devices[i]
		if len(d.opportunistic) > 0 || d.guaranteed != nil && d.guaranteed.running {
			n++
		}
	}
	return n
}

// pace is the time of one iteration of an opportunistic job: as many iterations of each guaranteed job running on
// its GPUs pass as its stages need gaps, and the slowest counts.
func (a *antman) pace(j *job) float64 {
	pace := j.iteration
	for _, g := range j.held {
		if c := a.devices[g].guaranteed; c != nil && c.running {
			j.shared, c.shared = true, true
			pace = max(pace, float64(iterationsToFit(j.stage, c.stage)*c.iteration))
		}
	}
	return pace
}

// iterationsToFit is the number of iterations of a guaranteed job with stage times c in whose idle gaps one
// iteration of an opportunistic job with stage times j fits. While c is in one stage the other two resources are
// idle, so stage 0 of j fits in c1+c2, and so on; what a gap has left over serves j's next stage. Each sum of two
// stages of c must be positive.
func iterationsToFit(j, c [3]float64) float64 {
	n := math.Floor(j[0] / (c[1] + c[2]))
	if x := math.Mod(j[0], c[1]+c[2]); x > 0 {
		n++
		j[1] -= min(j[1], c[2], c[1]+c[2]-x)
	}
	n += math.Floor(j[1] / (c[0] + c[2]))
	if x := math.Mod(j[1], c[0]+c[2]); x > 0 {
		n++
		if x < c[0] {
			j[2] -= min(j[2], c[0]+c[1]-x)
		}
	}
	n += math.Floor(j[2] / (c[0] + c[1]))
	if math.Mod(j[2], c[0]+c[1]) > c[0] {
		n++
	}
	return n
}
