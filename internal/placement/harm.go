package placement

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Ahead is waiting jobs that another may not be in the way of, by their kinds.
type Ahead struct {
	p     *Problem
	jobs  int
	kinds []harmed
	at    map[waiter]int
}

// Len is the number of jobs.
func (a *Ahead) Len() int { return a.jobs }

// waiter is what jobs ahead have in common that stand for each other. Kinds that share with nobody do not tell classes apart;
// what bars a GPU may.
type waiter struct {
	kind  int32
	class cluster.Class
}

// harmed is some workers of one kind that could be in a set together.
type harmed struct {
	kind *kind
	job  int // the first
	left int // not in the set so far
}

// Ahead is an empty list of jobs ahead.
func (p *Problem) Ahead() *Ahead { return &Ahead{p: p, at: map[waiter]int{}} }

// Add puts a job at the end.
func (a *Ahead) Add(job int) {
	a.jobs++
	w := waiter{a.p.kind[job], a.p.jobs[job].Class}
	if i, ok := a.at[w]; ok {
		a.kinds[i].left++
		return
	}
	a.at[w] = len(a.kinds)
	a.kinds = append(a.kinds, harmed{&a.p.kinds[w.kind], job, 1})
}

// InTheWayOf says whether a job on a GPU that takes it could keep one of the jobs ahead off it, now or after any of the
// residents have left. It could unless every set of residents and jobs ahead, with at least one of these, that may share
// the GPU may share it with the job too. It returns the first job ahead of such a set, or -1. The jobs ahead are those of
// both lists.
//
// Sets are tried one by one; steps bounds and counts down how many. Where it runs out, the answer is the first job ahead.
func (k *Packer) InTheWayOf(job int, g cluster.GPU, ahead [2]*Ahead, steps *int) int {
	h := harm{k: k, gpu: g, joining: &k.p.kinds[k.p.kind[job]], lists: [3][]harmed{ahead[0].kinds, ahead[1].kinds}, steps: steps}
	h.ahead = len(h.lists[0]) + len(h.lists[1])
	for _, r := range k.overlay.Residents(g) {
		h.lists[2] = append(h.lists[2], harmed{k.p.kindOf(r), k.p.Job(r), 1})
	}
	for i := range h.ahead {
		if h.extend(i, nil, profile.Load{}, 0) && *h.steps >= 0 {
			return h.item(i).job
		}
		if *h.steps < 0 {
			return h.item(0).job
		}
	}
	return -1
}

// harm is a search for a set that a joining worker would break.
type harm struct {
	k       *Packer
	gpu     cluster.GPU
	joining *kind
	lists   [3][]harmed // what sets are made of: jobs ahead, more of them, residents
	ahead   int         // jobs ahead
	steps   *int
}

// item is the i-th thing that a set may hold.
func (h *harm) item(i int) *harmed {
	list := 0
	for ; i >= len(h.lists[list]); list++ {
		i -= len(h.lists[list])
	}
	return &h.lists[list][i]
}

// extend adds one of item i to a set that may share the GPU and says whether that, or a set that holds it, may share the
// GPU while it may not with the joining worker. Items are added in order, so that each set is seen once.
func (h *harm) extend(i int, groups []int32, load profile.Load, most unit.Bytes) bool {
	it := h.item(i)
	if it.left == 0 || i < h.ahead && h.k.barred(it.job, h.gpu).Refused() || !h.fits(groups, load, most, it.kind) {
		return false
	}
	var buffer [MaxMaxResidents + 1]int32
	groups = append(append(buffer[:0], groups...), it.kind.group)
	load, most = load.Add(it.kind.profile), max(most, ephemeral(it.kind.profile))
	if !h.fits(groups, load, most, h.joining) {
		return true
	}
	it.left--
	defer func() { it.left++ }()
	for next := i; next < h.ahead+len(h.lists[2]) && *h.steps >= 0; next++ {
		if h.extend(next, groups, load, most) {
			return true
		}
	}
	return false
}

// fits says whether one more worker may join a set on the GPU. A search that ran out of steps ends by refusing all.
func (h *harm) fits(groups []int32, load profile.Load, most unit.Bytes, more *kind) bool {
	if *h.steps--; *h.steps < 0 {
		return false
	}
	var buffer [MaxMaxResidents + 2]int32
	if r, _ := h.k.p.sets.check(append(append(buffer[:0], groups...), more.group), more.group); r.Refused() {
		return false
	}
	limit := h.k.gpus.Memory[h.gpu]
	held := load.Persistent().Add(more.profile.Persistent)
	if held > limit || load.Overflow(more.profile, limit) > h.k.p.options.Epsilon {
		return false
	}
	return !h.k.gpus.Handover || held.Add(max(most, ephemeral(more.profile))) <= limit
}
