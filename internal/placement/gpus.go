package placement

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// GPUs is what is particular about the GPUs of a machine or a cluster.
type GPUs struct {
	Memory []unit.Bytes // of each GPU: what its residents may use together; Options.GPUMemory is the most of any

	Node     []int // of each GPU, a small number from 0; nil: all are of one node
	Together []int // of each job: so many workers in a row are on GPUs of one node; nil and 0: each is anywhere

	// Bar, when set, refuses a job a GPU whatever its residents; no reason lets it. It may not depend on who is placed.
	Bar func(job int, g cluster.GPU) plan.Reason

	// Sort and Ask spare questions. Of GPUs of one sort the memory is the same, and Bar says the same of them; it says the
	// same to jobs of one kind and one ask. Both are small numbers from 0. nil: each is by itself.
	Sort []int32 // of each GPU
	Ask  []int32 // of each job

	// Handover asks, beyond C1 and C2, that the persistent parts and the greatest ephemeral one fit together: the agent
	// lends one job after the other what lies beyond the persistent parts, so it must hold what any of them may ask for.
	Handover bool

	// Spread takes an idle GPU before one that would be shared.
	Spread bool
}

// roomSample bounds the groups that tell a good place from a better one on the GPUs of a machine.
const roomSample = 64

// NewPackerOn makes a packer over idle GPUs that are not all alike. Each step passes over every GPU, a few nanoseconds each:
// what a GPU says to a job is worked out once for all GPUs of a sort with such residents. It may not be used beside other
// packers of the problem.
func NewPackerOn(p *Problem, gpus GPUs) *Packer {
	p.sets.stride = 1 + len(p.sets.groups)/roomSample
	k := NewPacker(p, len(gpus.Memory))
	k.ground = newGround(p, gpus)
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
// none even then. Nothing changes. O(GPUs + workers that leave).
func (k *Packer) OpensAfter(job int, leaving []int) (int, []cluster.GPU) {
	mark := k.overlay.Checkpoint()
	defer k.overlay.Rollback(mark, k.reindex)
	open := k.openFor(job, len(leaving) > 0)
	for n := 0; ; n++ {
		if open.Enough(k.p.jobs[job].Workers) {
			return n, k.place(job)
		}
		if n == len(leaving) {
			return -1, nil
		}
		open.without(leaving[n])
	}
}

// OpensWithout is the first of some jobs without which, and it alone, another finds its GPUs; -1 where there is none. Nothing
// changes. O(GPUs + workers of them).
func (k *Packer) OpensWithout(job int, leaving []int) int {
	open := k.openFor(job, true)
	for _, other := range leaving {
		mark := k.overlay.Checkpoint()
		opened := open.without(other)
		enough := open.Enough(k.p.jobs[job].Workers)
		k.overlay.Rollback(mark, k.reindex)
		for _, g := range opened {
			open.takes[g] = false
			open.Drop(k.ground.node(g))
		}
		if enough {
			return other
		}
	}
	return -1
}

// opening is which GPUs take a job, while others leave.
type opening struct {
	*Tally
	k     *Packer
	job   int
	takes []bool // nil where nobody leaves
}

func (k *Packer) openFor(job int, leaving bool) *opening {
	o := &opening{k: k, job: job}
	if leaving {
		o.takes = make([]bool, len(k.set))
	}
	o.Tally = k.tally(job, func(g cluster.GPU) bool {
		takes := k.Takes(job, g)
		if leaving {
			o.takes[g] = takes
		}
		return takes
	})
	return o
}

// without takes a job off its GPUs and says which of them take the other one now, and did not before.
func (o *opening) without(other int) []cluster.GPU {
	var opened []cluster.GPU
	first, end := o.k.p.WorkersOf(other)
	for w := first; w < end; w++ {
		g := o.k.overlay.Remove(w)
		o.k.reindex(g)
		if !o.takes[g] && o.k.Takes(o.job, g) {
			o.takes[g] = true
			opened = append(opened, g)
			o.Add(o.k.ground.node(g))
		}
	}
	return opened
}

// Finds says whether a job that is not placed finds its GPUs.
func (k *Packer) Finds(job int) bool {
	return k.tally(job, func(g cluster.GPU) bool { return k.Takes(job, g) }).Enough(k.p.jobs[job].Workers)
}

// OpensAt is how many of the leaving jobs, in order, must be gone from one GPU until it takes a job; -1 where it does not even
// then. Nothing changes.
func (k *Packer) OpensAt(job int, g cluster.GPU, leaving []int) int {
	if k.Takes(job, g) {
		return 0
	}
	mark := k.overlay.Checkpoint()
	defer k.overlay.Rollback(mark, k.reindex)
	for n, other := range leaving {
		first, end := k.p.WorkersOf(other)
		for w := first; w < end; w++ {
			if k.overlay.Place(w) == g {
				k.overlay.Remove(w)
				k.reindex(g)
			}
		}
		if k.Takes(job, g) {
			return n + 1
		}
	}
	return -1
}

// tally counts the GPUs that take a job, until the next tally.
func (k *Packer) tally(job int, takes func(cluster.GPU) bool) *Tally {
	open := k.ground.open
	open.Reset(k.ground.together(job))
	for g := range cluster.GPU(len(k.set)) {
		if takes(g) {
			open.Add(k.ground.node(g))
		}
	}
	return open
}

// barred is the reason that keeps a job off a GPU whatever its residents.
func (k *Packer) barred(job int, g cluster.GPU) plan.Reason {
	if k.ground == nil || k.ground.Bar == nil {
		return plan.Reason{}
	}
	return k.ground.Bar(job, g)
}

// memory is what refuses a worker the memory of a GPU. Probabilities are those of Load: never too low.
func (k *Packer) memory(g cluster.GPU, need profile.Profile) plan.Reason {
	limit := k.ground.Memory[g]
	held := k.load[g].Persistent().Add(need.Persistent)
	if held > limit {
		return plan.Reason{Code: plan.MemoryReserved, Got: float64(held), Limit: float64(limit)}
	}
	if over := k.load[g].Overflow(need, limit); over > k.p.options.Epsilon {
		return plan.Reason{Code: plan.MemoryOverflow, Got: over, Limit: k.p.options.Epsilon}
	}
	if !k.ground.Handover {
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
