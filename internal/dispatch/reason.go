package dispatch

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
)

// wait is why a job waits. Equal jobs have equal reasons.
func (p *planner) wait(job int) Wait {
	if w, ok := p.waits[job]; ok {
		return w
	}
	f := &p.fits[p.fitOf[job]]
	if !f.asked {
		p.askAll(job, f)
	}
	if !f.enough || len(p.ahead) == 0 {
		w := f.why
		w.Job = p.jobs[job].ID
		return w
	}
	w := Wait{Job: p.jobs[job].ID, GPU: -1, After: cmp.Or(p.held[p.shapeOf(job)], p.jobs[p.ahead[0]].ID)}
	w.Reason = plan.Reason{Code: plan.Priority, Got: float64(p.levels[job]), Limit: float64(p.levels[p.number[w.After]])}
	return w
}

// askAll finds the reason of the GPU that comes nearest to taking a job, or of the whole gang. Where workers must be together
// the nearest is one of the node that takes most of them.
func (p *planner) askAll(job int, f *fit) {
	taken, together, n := p.tallies[0], p.together(job), p.workers(job)
	taken.Reset(together)
	gauge := p.gauge(job)
	var refused refusals
	for g := range cluster.GPU(len(p.s.GPUs)) {
		if far := gauge.distance(g); far == (distance{}) {
			taken.Add(p.node(g))
		} else {
			refused[far.rank]++
		}
	}
	most, node := taken.Most()
	nearest, near := cluster.NoGPU, distance{}
	for g := range cluster.GPU(len(p.s.GPUs)) {
		far := gauge.distance(g)
		if far == (distance{}) || node >= 0 && together > 1 && p.node(g) != node {
			continue
		}
		if nearest == cluster.NoGPU || far.compare(near) < 0 {
			nearest, near = g, far
		}
	}
	f.asked, f.enough, f.why = true, taken.Enough(n), Wait{GPU: int(nearest), Refused: refused.byCode()}
	if nearest != cluster.NoGPU {
		why, resident := p.packer.Why(job, nearest)
		f.why.Reason, f.why.Resident = why, p.idOf(resident)
	}
	switch {
	case most > 0 && most < together:
		f.why.Reason = plan.Reason{Code: plan.Gang, Got: float64(together), Limit: float64(most)}
	case most > 0:
		f.why.Reason = plan.Reason{Code: plan.Gang, Got: float64(n), Limit: float64(taken.Workers())}
	}
}

// distance is how far a GPU is from taking a job; the zero distance is that of one that takes it.
type distance struct {
	rank  int // of the code that refuses it, by firmness
	short float64
}

func distanceOf(r plan.Reason) distance { return distance{rank(r.Code), short(r)} }

func (d distance) compare(other distance) int {
	if d.rank != other.rank {
		return cmp.Compare(d.rank, other.rank)
	}
	return cmp.Compare(d.short, other.short)
}

// distances remembers what GPUs said to the jobs of the asks that came last, by spot.
type distances struct {
	slot []int32 // of each ask, and 1; 0 for none
	asks []int32 // of each slot
	rows [][]measured
	next int // slot that is given away next
}

// mostAsks are remembered: more than a cluster has shapes of jobs, mostly, and where hardly two jobs are alike it would not help.
const mostAsks = 128

// measured is a distance with 1 added to its rank; 0 where it was not asked for.
type measured struct {
	rank  int
	short float64
}

// row is what is remembered of an ask.
func (d *distances) row(ask int32) *[]measured {
	if int(ask) >= len(d.slot) {
		d.slot = append(d.slot, make([]int32, 1+int(ask)-len(d.slot))...)
	}
	switch {
	case d.slot[ask] > 0:
	case len(d.rows) < mostAsks:
		d.rows, d.asks = append(d.rows, nil), append(d.asks, ask)
		d.slot[ask] = int32(len(d.rows))
	default:
		d.slot[d.asks[d.next]] = 0
		d.asks[d.next] = ask
		clear(d.rows[d.next])
		d.slot[ask] = int32(d.next) + 1
		d.next = (d.next + 1) % mostAsks
	}
	return &d.rows[d.slot[ask]-1]
}

// gauge measures how far GPUs are from taking a job, which is the same for all jobs of an ask and all GPUs of a spot. It is for
// one pass over the GPUs.
type gauge struct {
	p   *planner
	job int
	row *[]measured
}

func (p *planner) gauge(job int) gauge { return gauge{p, job, p.far.row(p.packer.Ask(job))} }

func (m gauge) distance(g cluster.GPU) distance {
	at := int(m.p.packer.Spot(g))
	if at >= len(*m.row) {
		*m.row = append(*m.row, make([]measured, max(at+1, m.p.packer.Spots())-len(*m.row))...)
	}
	d := &(*m.row)[at]
	if d.rank == 0 {
		r, _ := m.p.packer.Why(m.job, g)
		*d = measured{rank(r.Code) + 1, short(r)}
	}
	return distance{d.rank - 1, d.short}
}

// idOf is the ID of a job by its number; 0 for none.
func (b *board) idOf(job int) box.ID {
	if job < 0 {
		return 0
	}
	return b.jobs[job].ID
}

// firmness orders what refuses a GPU by how far it is from giving way; codes that are not listed come last. Gang is a node with
// too few open GPUs.
var firmness = []plan.Code{"", plan.Priority, plan.MemoryOverflow, plan.FloorResident, plan.FloorSelf, plan.MemoryReserved, plan.MaxResidents,
	plan.ClassConflict, plan.PairBanned, plan.ProfileUnknown, plan.Gang, plan.Native, plan.Foreign, plan.Drained, plan.GPUUnhealthy,
	plan.TooLarge, plan.NodeMismatch}

// refusals counts GPUs by the rank of the code that refuses them.
type refusals [32]int

// byCode are the counts that are not 0.
func (r *refusals) byCode() map[plan.Code]int {
	counts := map[plan.Code]int{}
	for rank, n := range r {
		if n > 0 && rank < len(firmness) {
			counts[firmness[rank]] = n
		}
	}
	return counts
}

// nearer orders refusals: the one closer to giving way first, by its code, then by how far off it is.
func nearer(a, b plan.Reason) int {
	return distanceOf(a).compare(distanceOf(b))
}

func rank(c plan.Code) int {
	if i := slices.Index(firmness, c); i >= 0 {
		return i
	}
	return len(firmness)
}

// short is how far off a refusal is: the excess as a share of what is allowed, or the deficit of a floor.
func short(r plan.Reason) float64 {
	switch {
	case r.Code == plan.MemoryOverflow:
		return r.Got - r.Limit
	case r.Limit == 0:
		return 0
	case r.Code == plan.FloorResident || r.Code == plan.FloorSelf:
		return 1 - r.Got/r.Limit
	}
	return r.Got/r.Limit - 1
}
