package placement

import (
	"cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// GPUs is what is particular about the GPUs of one machine.
type GPUs struct {
	Memory []unit.Bytes // of each GPU: what its residents may use together; Options.GPUMemory is the most of any

	// Bar, when set, refuses a job a GPU whatever its residents; no reason lets it. It may not depend on who is placed.
	Bar func(job int, g cluster.GPU) plan.Reason

	// Handover asks, beyond C1 and C2, that the persistent parts and the greatest ephemeral one fit together: the agent
	// lends one job after the other what lies beyond the persistent parts, so it must hold what any of them may ask for.
	Handover bool

	// Spread takes an idle GPU before one that would be shared.
	Spread bool
}

// roomSample bounds the groups that tell a good place from a better one on the GPUs of a machine.
const roomSample = 64

// NewPackerOn makes a packer over idle GPUs that are not all alike. Each step looks at every GPU: it is for the GPUs of
// one machine, some dozens. It may not be used beside other packers of the problem.
func NewPackerOn(p *Problem, gpus GPUs) *Packer {
	p.sets.stride = 1 + len(p.sets.groups)/roomSample
	k := NewPacker(p, len(gpus.Memory))
	k.gpus = &gpus
	return k
}

// Reside puts the workers of a job on GPUs, in order, whatever the rules say: who runs, runs.
func (k *Packer) Reside(job int, gpus []cluster.GPU) {
	first, _ := k.p.WorkersOf(job)
	for i, g := range gpus {
		k.overlay.Add(first+cluster.Worker(i), g)
		k.reindex(g)
	}
	k.overlay.Commit()
}

// AddWhere is Add among the GPUs that allow accepts.
func (k *Packer) AddWhere(job int, allow func(cluster.GPU) bool) ([]cluster.GPU, plan.Reason) {
	k.allow = allow
	defer func() { k.allow = nil }()
	return k.Add(job)
}

// OpensAfter is how many of the leaving jobs, in order, must be gone until a job finds its GPUs, and these; -1 where it finds
// none even then. Nothing changes.
func (k *Packer) OpensAfter(job int, leaving []int) (int, []cluster.GPU) {
	mark := k.overlay.Checkpoint()
	defer k.overlay.Rollback(mark, k.reindex)
	for n := 0; ; n++ {
		here := k.overlay.Checkpoint()
		if gpus := k.place(job); len(gpus) == k.p.jobs[job].Workers {
			return n, gpus
		}
		k.overlay.Rollback(here, k.reindex)
		if n == len(leaving) {
			return -1, nil
		}
		first, end := k.p.WorkersOf(leaving[n])
		for w := first; w < end; w++ {
			k.reindex(k.overlay.Remove(w))
		}
	}
}

// barred is the reason that keeps a job off a GPU whatever its residents.
func (k *Packer) barred(job int, g cluster.GPU) plan.Reason {
	if k.gpus == nil || k.gpus.Bar == nil {
		return plan.Reason{}
	}
	return k.gpus.Bar(job, g)
}

// memory is what refuses a worker the memory of a GPU. Probabilities are those of Load: never too low.
func (k *Packer) memory(g cluster.GPU, need profile.Profile) plan.Reason {
	limit := k.gpus.Memory[g]
	held := k.load[g].Persistent().Add(need.Persistent)
	if held > limit {
		return plan.Reason{Code: plan.MemoryReserved, Got: float64(held), Limit: float64(limit)}
	}
	if over := k.load[g].Overflow(need, limit); over > k.p.options.Epsilon {
		return plan.Reason{Code: plan.MemoryOverflow, Got: over, Limit: k.p.options.Epsilon}
	}
	if !k.gpus.Handover {
		return plan.Reason{}
	}
	most := ephemeral(need)
	for _, r := range k.overlay.Residents(g) {
		most = max(most, ephemeral(k.p.kindOf(r).profile))
	}
	if held = held.Add(most); held > limit {
		return plan.Reason{Code: plan.MemoryReserved, Got: float64(held), Limit: float64(limit)}
	}
	return plan.Reason{}
}

// ephemeral is the greatest ephemeral part.
func ephemeral(p profile.Profile) unit.Bytes { return p.Peak().Sub(p.Persistent) }

// choose is the GPU for a worker: a shared one and else an idle one, or the other way round.
func (k *Packer) choose(w cluster.Worker, spread bool) (cluster.GPU, bool) {
	idle := cluster.NoGPU
	if spread {
		if idle = k.chooseIdle(w); idle != cluster.NoGPU {
			return idle, true
		}
	}
	if g, ok := k.chooseShared(w); ok {
		return g, true
	}
	if !spread {
		idle = k.chooseIdle(w)
	}
	return idle, idle != cluster.NoGPU
}

// chooseShared is the GPU in use that takes a worker: the best set by prefer, in it the least memory left, then the
// lowest index.
func (k *Packer) chooseShared(w cluster.Worker) (cluster.GPU, bool) {
	best, group := cluster.NoGPU, k.p.kindOf(w).group
	for g := range cluster.GPU(len(k.set)) {
		if k.set[g] == empty || !k.p.sets.mayJoin(k.set[g], group) || k.p.sameJob(k.overlay.Residents(g), w) || !k.takes(g, w) {
			continue
		}
		if best == cluster.NoGPU || k.better(g, best, group) {
			best = g
		}
	}
	return best, best != cluster.NoGPU
}

// better says whether GPU a is a better place for a group than b, which has a lower index.
func (k *Packer) better(a, b cluster.GPU, group int32) bool {
	if k.set[a] != k.set[b] {
		if c := k.prefer(k.set[a], k.set[b], group); c != 0 {
			return c < 0
		}
	}
	return k.left(a) < k.left(b)
}

// left is the effective memory that is not in use.
func (k *Packer) left(g cluster.GPU) float64 { return float64(k.gpus.Memory[g]) - k.size[g] }

// chooseIdle is the idle GPU with the least memory that takes a worker: large GPUs are kept for large jobs.
func (k *Packer) chooseIdle(w cluster.Worker) cluster.GPU {
	best := cluster.NoGPU
	k.tree(empty).Ascend(func(f fill) bool {
		if k.takes(f.gpu, w) && (best == cluster.NoGPU || cmp.Less(k.gpus.Memory[f.gpu], k.gpus.Memory[best])) {
			best = f.gpu
		}
		return true
	})
	return best
}
