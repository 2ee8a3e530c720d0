package placement

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Violation is a constraint that a state breaks.
type Violation struct {
	GPU    cluster.GPU
	Job    int // a job concerned
	Reason plan.Reason
}

// Error names the GPU, the job and the numbers.
func (v Violation) Error() string { return fmt.Sprintf("GPU %d, job %d: %s", v.GPU, v.Job, v.Reason) }

// Validate checks C1..C5 and the class rules on every GPU of a snapshot, from the jobs alone and without anything
// that an algorithm remembered. It returns the first violation of each GPU that has one.
func (p *Problem) Validate(s *cluster.Snapshot) []Violation {
	var broken []Violation
	for g := range s.GPUs() {
		if v, ok := p.validateGPU(cluster.GPU(g), s.Residents(cluster.GPU(g))); !ok {
			broken = append(broken, v)
		}
	}
	return broken
}

func (p *Problem) validateGPU(g cluster.GPU, residents []cluster.Worker) (Violation, bool) {
	for i, w := range residents {
		if p.sameJob(residents[:i], w) {
			return Violation{g, int(p.job[w]), plan.Reason{Code: plan.SameJob}}, false
		}
	}
	if len(residents) == 0 {
		return Violation{}, true
	}
	last := residents[len(residents)-1]
	r := p.memoryReason(residents)
	if !r.Refused() && len(residents) > 1 {
		r, _ = p.sets.check(p.groupsAt(residents), p.kindOf(last).group)
	}
	return Violation{g, int(p.job[last]), r}, !r.Refused()
}

// memoryReason is C1 or C2 with its numbers, or no reason.
func (p *Problem) memoryReason(residents []cluster.Worker) plan.Reason {
	limit := p.options.GPUMemory
	if limit == 0 {
		return plan.Reason{}
	}
	profiles := make([]profile.Profile, len(residents))
	held := unit.Bytes(0)
	for i, w := range residents {
		profiles[i] = p.kindOf(w).profile
		held = held.Add(profiles[i].Persistent)
	}
	if held > limit {
		return plan.Reason{Code: plan.MemoryReserved, Got: float64(held), Limit: float64(limit)}
	}
	if over := profile.Overflow(profiles, limit); over > p.options.Epsilon+probabilityTolerance {
		return plan.Reason{Code: plan.MemoryOverflow, Got: over, Limit: p.options.Epsilon}
	}
	return plan.Reason{}
}

// probabilityTolerance is the rounding of a sum of a million products of fractions.
const probabilityTolerance = 1e-9

// Plan is the packing as operations on a snapshot of idle GPUs, in GPU order, with a Wait for each job left out.
func (p *Problem) Plan(q *Packing, on *cluster.Snapshot) *plan.Plan {
	out := &plan.Plan{BasedOn: on.Revision()}
	placed := make([]bool, len(p.jobs))
	for g, residents := range q.GPUs {
		for _, w := range residents {
			placed[p.job[w]] = true
			out.Operations = append(out.Operations, plan.Operation{
				Verb: plan.Placed, Worker: w, From: cluster.NoGPU, To: cluster.GPU(g)})
		}
	}
	for j, ok := range placed {
		if !ok {
			peak, limit := p.kinds[p.kind[j]].profile.Peak(), p.options.GPUMemory
			out.Waiting = append(out.Waiting, plan.Wait{
				Job: j, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(peak), Limit: float64(limit)}})
		}
	}
	return out
}
