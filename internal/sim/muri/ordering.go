package muri

import (
	"math"
	"slices"
	"sort"
)

// ordering runs the jobs with the smallest key, re-deciding everything at each event: shortest remaining time first
// (SRTF) or shortest remaining service first (SRSF), where service is time times GPUs. Ties keep their previous
// order; new jobs come last.
type ordering struct {
	key         func(*job) float64
	live        []*job // by key
	free        []int  // GPUs free in each node
	gpusPerNode int
	found       []int // buffer: nodes for one gang
}

// remainingTime is SRTF's key.
func remainingTime(j *job) float64 { return j.remaining * j.iteration }

// remainingService is SRSF's key.
func remainingService(j *job) float64 { return j.remaining * j.iteration * float64(j.gpus) }

func newOrdering(key func(*job) float64, nodes, gpusPerNode int) *ordering {
	return &ordering{key: key, free: make([]int, nodes), gpusPerNode: gpusPerNode}
}

func (o *ordering) arrive(j *job) {
	j.key = o.key(j)
	o.live = append(o.live, j)
}

func (o *ordering) depart(j *job) {
	i := slices.Index(o.live, j) // near the front, as all running jobs are
	o.live = slices.Delete(o.live, i, i+1)
}

// schedule empties the cluster and places the jobs in order; what does not fit is skipped. O(live).
func (o *ordering) schedule(_ float64, previous, next []*job) decision {
	for _, j := range previous {
		j.running = false
		j.key = o.key(j) // only running jobs' keys change
	}
	o.sort()
	for i := range o.free {
		o.free[i] = o.gpusPerNode
	}
	total := len(o.free) * o.gpusPerNode
	left := total
	for _, j := range o.live {
		if left == 0 {
			break
		}
		if j.gpus <= left && o.place(j) {
			j.running = true
			left -= j.gpus
			next = append(next, j)
		}
	}
	return decision{running: next, inUse: total - left, wake: math.Inf(1)}
}

// sort is a stable sort of an almost sorted list: a job that is smaller than its predecessor moves to behind the
// last one that is not larger. O(live) plus O(log live) comparisons for each job that moves.
func (o *ordering) sort() {
	for i := 1; i < len(o.live); i++ {
		j := o.live[i]
		if j.key >= o.live[i-1].key {
			continue
		}
		to := sort.Search(i, func(k int) bool { return o.live[k].key > j.key })
		copy(o.live[to+1:i+1], o.live[to:i])
		o.live[to] = j
	}
}

// place puts a gang on the lowest-numbered node that has room or, where it is larger than a node, on the lowest
// wholly free nodes. It says whether there was room.
func (o *ordering) place(j *job) bool {
	each, count := j.gpus, 1
	if j.gpus > o.gpusPerNode {
		each, count = o.gpusPerNode, j.gpus/o.gpusPerNode
	}
	o.found = o.found[:0]
	for i, free := range o.free {
		if free >= each {
			if o.found = append(o.found, i); len(o.found) == count {
				o.settle(j, each)
				return true
			}
		}
	}
	return false
}

// settle takes GPUs of each node found.
func (o *ordering) settle(j *job, each int) {
	for _, n := range o.found {
		o.free[n] -= each
	}
	if j.wasRunning && !slices.Equal(j.nodes, o.found) {
		j.migrations++
	}
	j.nodes = append(j.nodes[:0], o.found...)
}
