package sim

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// occupancy is who resides on which GPU, and what that adds up to over time.
type occupancy struct {
	first  []int32 // first GPU of each node
	gpus   []gpu
	shared []bool // jobs that ever had a co-resident

	busy int   // GPUs with a resident
	held int64 // GPU thousandths given out, at most 1000 of each GPU

	now                unit.Time
	busyTime, heldTime float64 // GPU ns with a resident; GPU thousandths x ns
	usage              []Usage
}

type gpu struct {
	residents int32
	given     int32 // thousandths given to residents, above 1000 where they share
	only      int64 // sum of the residents' numbers: the resident itself where there is one only
}

func newOccupancy(c cluster.Cluster, jobs int) occupancy {
	return occupancy{first: firstGPUs(c), gpus: make([]gpu, c.GPUs()), shared: make([]bool, jobs)}
}

// firstGPUs is the index of each node's first GPU in the cluster.
func firstGPUs(c cluster.Cluster) []int32 {
	first, next := make([]int32, len(c.Nodes)), int32(0)
	for i, n := range c.Nodes {
		first[i] = next
		next += int32(n.GPUs)
	}
	return first
}

// pass lets virtual time run to t.
func (o *occupancy) pass(t unit.Time) {
	if t <= o.now {
		return
	}
	dt := float64(t - o.now)
	o.busyTime += float64(o.busy) * dt
	o.heldTime += float64(o.held) * dt
	o.note()
	o.now = t
}

// note records the present number of busy GPUs, if it is news.
func (o *occupancy) note() {
	last := 0
	if n := len(o.usage); n > 0 {
		last = o.usage[n-1].GPUs
	}
	if o.busy != last {
		o.usage = append(o.usage, Usage{o.now, o.busy})
	}
}

// enter makes a job resident and returns the most that any of its GPUs has given out now.
func (o *occupancy) enter(job int32, share unit.MilliGPU, slots []policy.Slot) int32 {
	most := int32(0)
	for _, s := range slots {
		g := &o.gpus[o.first[s.Node]+s.GPU]
		switch g.residents {
		case 0:
			o.busy++
		case 1:
			o.shared[g.only] = true
			fallthrough
		default:
			o.shared[job] = true
		}
		before := min(g.given, int32(unit.WholeGPU))
		g.residents++
		g.only += int64(job)
		g.given += int32(share)
		o.held += int64(min(g.given, int32(unit.WholeGPU)) - before)
		most = max(most, g.given)
	}
	return most
}

// leave ends a job's residence.
func (o *occupancy) leave(job int32, share unit.MilliGPU, slots []policy.Slot) {
	for _, s := range slots {
		g := &o.gpus[o.first[s.Node]+s.GPU]
		before := min(g.given, int32(unit.WholeGPU))
		g.residents--
		g.only -= int64(job)
		g.given -= int32(share)
		o.held -= int64(before - min(g.given, int32(unit.WholeGPU)))
		if g.residents == 0 {
			o.busy--
		}
	}
}
