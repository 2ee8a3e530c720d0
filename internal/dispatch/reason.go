package dispatch

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
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

// refused is what the GPUs say to a job.
type refused struct {
	taken *placement.Tally
	gpu   int // the nearest that refuses it, or -1
	why   plan.Reason
}

// nearestRefusal asks all GPUs. Where workers must be together it is the nearest of the node that takes most of them.
func (p *planner) nearestRefusal(job int) refused {
	key := p.fitOf(job)
	if r, ok := p.nearby[key]; ok {
		return r
	}
	r := refused{taken: p.tally(job), gpu: -1}
	reasons := make([]plan.Reason, len(p.s.GPUs))
	for g := range cluster.GPU(len(p.s.GPUs)) {
		if reasons[g] = p.why(job, g); !reasons[g].Refused() {
			r.taken.Add(p.node(g))
		}
	}
	_, node := r.taken.Most()
	for g, why := range reasons {
		if why.Refused() && (node < 0 || p.together(job) <= 1 || p.node(cluster.GPU(g)) == node) && (r.gpu < 0 || nearer(why, r.why) < 0) {
			r.gpu, r.why = g, why
		}
	}
	p.nearby[key] = r
	return r
}

// why is what a GPU says to a job, the same for all of its spot.
func (p *planner) why(job int, g cluster.GPU) plan.Reason {
	ask, spot := p.packer.Ask(job), p.packer.Spot(g)
	for int(ask) >= len(p.whys) {
		p.whys = append(p.whys, nil)
	}
	if p.whys[ask] == nil {
		p.whys[ask] = map[int32]plan.Reason{}
	}
	r, ok := p.whys[ask][spot]
	if !ok {
		r, _ = p.packer.Why(job, g)
		p.whys[ask][spot] = r
	}
	return r
}

// refusal is the reason of the GPU that comes nearest to taking a job, or of the whole gang.
func (p *planner) refusal(job int, s shape) Wait {
	r, n, together := p.nearestRefusal(job), p.workers(job), p.together(job)
	w := Wait{GPU: r.gpu, Reason: r.why}
	if r.gpu >= 0 {
		_, resident := p.packer.Why(job, cluster.GPU(r.gpu))
		w.Resident = p.idOf(resident)
	}
	most, _ := r.taken.Most()
	switch {
	case r.taken.Enough(n) && len(p.ahead) > 0:
		first := p.jobs[p.ahead[0]].ID
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.Priority}, After: cmp.Or(p.held[s], first)}
	case most > 0 && most < together:
		w.Reason = plan.Reason{Code: plan.Gang, Got: float64(together), Limit: float64(most)}
	case most > 0:
		w.Reason = plan.Reason{Code: plan.Gang, Got: float64(n), Limit: float64(r.taken.Workers())}
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

// firmness orders what refuses a GPU by how far it is from giving way; codes that are not listed come last. Gang is a node with
// too few open GPUs.
var firmness = []plan.Code{"", plan.Priority, plan.MemoryOverflow, plan.FloorResident, plan.FloorSelf, plan.MemoryReserved, plan.MaxResidents,
	plan.ClassConflict, plan.PairBanned, plan.ProfileUnknown, plan.Gang, plan.Native, plan.Foreign, plan.Drained, plan.GPUUnhealthy,
	plan.TooLarge, plan.NodeMismatch}

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
