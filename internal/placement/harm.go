package placement

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Ahead is waiting jobs that another may not be in the way of, by their kinds.
type Ahead struct {
	k       *Packer
	kinds   []harmed
	at      map[int32]int // by ask: jobs of one ask stand for each other
	version int
}

// harmed is some workers of one kind that could be in a set together.
type harmed struct {
	kind *kind
	job  int // the first
	left int // not in the set so far
}

// Ahead is an empty list of jobs ahead on the GPUs of a packer made by NewPackerOn.
func (k *Packer) Ahead() *Ahead { return &Ahead{k: k, at: map[int32]int{}} }

// Add puts a job at the end. No set holds more of one ask than a GPU may have residents.
func (a *Ahead) Add(job int) {
	ask := a.k.Ask(job)
	i, ok := a.at[ask]
	if !ok {
		i = len(a.kinds)
		a.at[ask] = i
		a.kinds = append(a.kinds, harmed{&a.k.p.kinds[a.k.p.kind[job]], job, 0})
	}
	if a.kinds[i].left < a.k.p.options.MaxResidents {
		a.kinds[i].left++
		a.version++
	}
}

// Version counts what changed the answers of InTheWayOf.
func (a *Ahead) Version() int { return a.version }

// First is the first of the jobs of an ask; -1 where there is none.
func (a *Ahead) First(ask int32) int {
	if i, ok := a.at[ask]; ok {
		return a.kinds[i].job
	}
	return -1
}

// InTheWayOf says whether a job on a GPU that takes it could keep one of the jobs ahead off it, now or after any of the
// residents have left. It could unless every set of residents and jobs ahead, with at least one of these, that may share
// the GPU may share it with the job too. It returns the first job ahead of such a set, or -1. The jobs ahead are those of
// both lists. To a job of the same ask, on a GPU of the same spot, the answer is the same.
//
// Sets are tried one by one; steps bounds and counts down how many. Where it runs out, the answer is the first job ahead.
func (k *Packer) InTheWayOf(job int, g cluster.GPU, ahead [2]*Ahead, steps *int) int {
	h := harm{k: k, gpu: g, joining: &k.p.kinds[k.p.kind[job]], lists: [3][]harmed{ahead[0].kinds, ahead[1].kinds}, steps: steps}
	h.ahead = len(h.lists[0]) + len(h.lists[1])
	if *steps < 0 && h.ahead > 0 {
		return h.item(0).job
	}
	var buffer [MaxMaxResidents]harmed
	h.lists[2] = buffer[:0]
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
	limit := h.k.ground.Memory[h.gpu]
	held := load.Persistent().Add(more.profile.Persistent)
	if held > limit || load.Overflow(more.profile, limit) > h.k.p.options.Epsilon {
		return false
	}
	return !h.k.ground.Handover || held.Add(max(most, ephemeral(more.profile))) <= limit
}
