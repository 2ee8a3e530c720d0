package dispatch

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
)

// wait is why a job waits. Equal jobs have equal reasons.
func (p *planner) wait(job int, known map[shape]Wait) Wait {
	if w, ok := p.waits[job]; ok {
		return w
	}
	shape := p.shapeOf(job)
	w, ok := known[shape]
	if !ok {
		w = p.refusal(job, shape)
		known[shape] = w
	}
	w.Job = p.jobs[job].ID
	if w.Reason.Code == plan.Priority {
		w.Reason.Got, w.Reason.Limit = float64(p.levels[job]), float64(p.levels[p.number[w.After]])
	}
	return w
}

// refusal is the reason of the GPU that comes nearest to taking a job, or of the whole gang.
func (p *planner) refusal(job int, s shape) Wait {
	w, taken := Wait{GPU: -1}, 0
	for g := range cluster.GPU(len(p.s.GPUs)) {
		r, resident := p.packer.Why(job, g)
		if !r.Refused() {
			taken++
		} else if w.GPU < 0 || nearer(r, w.Reason) < 0 {
			w.GPU, w.Reason, w.Resident = int(g), r, p.idOf(resident)
		}
	}
	switch n := p.workers(job); {
	case taken >= n && len(p.ahead) > 0:
		first := p.jobs[p.ahead[0]].ID
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.Priority}, After: cmp.Or(p.held[s], first)}
	case taken > 0:
		w.Reason = plan.Reason{Code: plan.Gang, Got: float64(n), Limit: float64(taken)}
	}
	return w
}

// idOf is the ID of a job by its number; 0 for none.
func (b *board) idOf(job int) box.ID {
	if job < 0 {
		return 0
	}
	return b.jobs[job].ID
}

// firmness orders what refuses a GPU by how far it is from giving way; codes that are not listed come last.
var firmness = []plan.Code{"", plan.Priority, plan.MemoryOverflow, plan.FloorResident, plan.FloorSelf, plan.MemoryReserved, plan.MaxResidents,
	plan.ClassConflict, plan.PairBanned, plan.ProfileUnknown, plan.Foreign, plan.Drained, plan.GPUUnhealthy}

// nearer orders refusals: the one closer to giving way first, by its code, then by how far off it is.
func nearer(a, b plan.Reason) int {
	return cmp.Or(cmp.Compare(rank(a.Code), rank(b.Code)), cmp.Compare(short(a), short(b)))
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
