package placement

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// InTheWayOf says whether a job on a GPU that takes it could keep one of the jobs ahead off it, now or after any of the
// residents have left. It could unless every set of residents and jobs ahead, with at least one of these, that may share
// the GPU may share it with the job too. It returns the first of ahead that is in such a set, or -1.
//
// Sets are tried one by one; steps bounds and counts down how many. Where it runs out, the answer is ahead[0].
func (k *Packer) InTheWayOf(job int, g cluster.GPU, ahead []int, steps *int) int {
	h := harm{k: k, gpu: g, joining: &k.p.kinds[k.p.kind[job]], steps: steps}
	h.list(ahead)
	for i := range h.ahead {
		if h.extend(i, nil, profile.Load{}, 0) && *h.steps >= 0 {
			return h.items[i].job
		}
		if *h.steps < 0 {
			return ahead[0]
		}
	}
	return -1
}

// harm is a search for a set that a joining worker would break.
type harm struct {
	k       *Packer
	gpu     cluster.GPU
	joining *kind
	items   []harmed // kinds of the jobs ahead, then of the residents
	ahead   int      // of items
	steps   *int
}

// harmed is some workers of one kind that could be in a set together.
type harmed struct {
	kind *kind
	job  int // the first
	left int // not in the set so far
}

// list gathers the kinds of the jobs ahead, in their order, and of the residents.
func (h *harm) list(ahead []int) {
	p, at := h.k.p, map[int32]int{}
	for _, job := range ahead {
		if i, ok := at[p.kind[job]]; ok {
			h.items[i].left++
		} else if !h.k.barred(job, h.gpu).Refused() {
			at[p.kind[job]] = len(h.items)
			h.items = append(h.items, harmed{&p.kinds[p.kind[job]], job, 1})
		}
	}
	h.ahead = len(h.items)
	for _, r := range h.k.overlay.Residents(h.gpu) {
		h.items = append(h.items, harmed{p.kindOf(r), p.Job(r), 1})
	}
}

// extend adds one of item i to a set that may share the GPU and says whether that, or a set that holds it, may share the
// GPU while it may not with the joining worker. Items are added in order, so that each set is seen once.
func (h *harm) extend(i int, groups []int32, load profile.Load, most unit.Bytes) bool {
	it := &h.items[i]
	if it.left == 0 || !h.fits(groups, load, most, it.kind) {
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
	for next := i; next < len(h.items); next++ {
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
