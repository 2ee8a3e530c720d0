package placement

import (
	"cmp"
	"slices"

	"github.com/google/btree"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
)

// Packer places jobs one by one on GPUs and takes them off again. Nothing joins a GPU that would not satisfy C1..C5 with
// it; only Refresh, after the rates changed, can leave residents that would no longer be let together.
//
// GPUs with the same set of groups are kept in one tree, ordered by the effective memory in use: the fullest GPU that
// still takes a worker is found in O(log n) per set, and the number of sets is constant for a constant number of
// groups. So Add costs O(log n) per worker and Remove O(log n) per worker.
type Packer struct {
	p       *Problem
	overlay *cluster.Overlay
	limit   int     // GPUs there are; 0 means "as many as needed"
	inUse   int     // GPUs with a resident
	set     []int32 // of each GPU
	load    []profile.Load
	size    []float64              // effective memory in use
	trees   []*btree.BTreeG[fill]  // by set, nil where it never had a GPU; trees[empty] holds idle GPUs
	used    []int32                // the other sets that ever had a GPU
	ranked  []ranking              // by group
	swaps   int                    // that may still be tried for the worker being relocated
	ground  *ground                // what is particular about the GPUs, where anything is
	allow   func(cluster.GPU) bool // where the worker being placed may go; nil for everywhere
}

// ranking is the sets in use that a group may join, best first, of the first seen sets in use.
type ranking struct {
	sets []int32
	seen int
}

// fill is a GPU in the tree of its set. GPUs with equal memory are ordered by index.
type fill struct {
	size float64
	gpu  cluster.GPU
}

func lessFill(a, b fill) bool {
	if a.size != b.size {
		return a.size < b.size
	}
	return a.gpu < b.gpu
}

// treeDegree keeps a node of a tree of fills within a few cache lines.
const treeDegree = 16

// NewPacker makes a packer over idle GPUs; limit 0 opens as many as are needed.
func NewPacker(p *Problem, limit int) *Packer {
	k := &Packer{p: p, limit: limit, overlay: cluster.NewOverlay(cluster.Empty(0), p.Workers())}
	k.ranked = make([]ranking, len(p.sets.groups))
	k.grow(limit)
	return k
}

func (k *Packer) grow(gpus int) {
	first := k.overlay.GPUs()
	k.overlay.Grow(gpus)
	k.set = append(k.set, make([]int32, gpus)...)
	k.load = append(k.load, make([]profile.Load, gpus)...)
	k.size = append(k.size, make([]float64, gpus)...)
	for g := first; g < first+gpus; g++ {
		k.tree(empty).ReplaceOrInsert(fill{0, cluster.GPU(g)})
	}
}

func (k *Packer) tree(set int32) *btree.BTreeG[fill] {
	for int(set) >= len(k.trees) {
		k.trees = append(k.trees, nil)
	}
	if k.trees[set] == nil {
		k.trees[set] = btree.NewG(treeDegree, lessFill)
		if set != empty {
			k.used = append(k.used, set)
		}
	}
	return k.trees[set]
}

// rank is the sets that group g may join, in the order of prefer. Of all sets that may share, only those in use are
// looked at: with many floors there are millions.
func (k *Packer) rank(g int32) []int32 {
	r := &k.ranked[g]
	for ; r.seen < len(k.used); r.seen++ {
		set := k.used[r.seen]
		if len(k.p.sets.all[set].groups) >= k.p.options.MaxResidents || k.p.sets.join(set, g) == refused {
			continue
		}
		at, _ := slices.BinarySearchFunc(r.sets, set, func(a, b int32) int { return k.prefer(a, b, g) })
		r.sets = slices.Insert(r.sets, at, set)
	}
	return r.sets
}

// prefer orders two sets that group g may join: first the one that leaves less room for others afterwards (best
// fit: the fewest further groups could join), then the one where the slowdowns grow least.
func (k *Packer) prefer(a, b, g int32) int {
	s := k.p.sets
	after, before := s.join(a, g), s.join(b, g)
	return cmp.Or(
		cmp.Compare(s.room(after), s.room(before)),
		cmp.Compare(s.all[after].slowdown-s.all[a].slowdown, s.all[before].slowdown-s.all[b].slowdown),
		cmp.Compare(len(s.all[a].groups), len(s.all[b].groups)),
		slices.Compare(s.all[a].groups, s.all[b].groups))
}

// Add places all workers of a job or none. Where it places none, the reason is TooLarge, or Gang with how many of its
// workers found a GPU.
func (k *Packer) Add(job int) ([]cluster.GPU, plan.Reason) {
	if k.p.TooLarge(job) {
		peak, limit := k.p.kinds[k.p.kind[job]].profile.Peak(), k.p.options.GPUMemory
		return nil, plan.Reason{Code: plan.TooLarge, Got: float64(peak), Limit: float64(limit)}
	}
	first, end := k.p.WorkersOf(job)
	if k.ground != nil && end-first > 1 {
		found := k.tally(job, func(g cluster.GPU) bool { return k.admits(job, g) && k.free(first, g) })
		if !found.Enough(int(end - first)) {
			return nil, plan.Reason{Code: plan.Gang, Got: float64(end - first), Limit: float64(found.Workers())}
		}
	}
	mark := k.overlay.Checkpoint()
	gpus := k.place(job)
	if len(gpus) < int(end-first) {
		k.overlay.Rollback(mark, k.reindex)
		return nil, plan.Reason{Code: plan.Gang, Got: float64(end - first), Limit: float64(len(gpus))}
	}
	k.overlay.Commit()
	return gpus, plan.Reason{}
}

// place puts the workers of a job until one finds no GPU, without committing.
func (k *Packer) place(job int) []cluster.GPU {
	first, end := k.p.WorkersOf(job)
	gpus := make([]cluster.GPU, 0, end-first)
	for w := first; w < end; w++ {
		g, ok := k.find(w)
		if !ok {
			break
		}
		k.put(w, g)
		gpus = append(gpus, g)
	}
	return gpus
}

// AddAt places the workers of a job on given GPUs, in order, or changes nothing when one of them refuses.
func (k *Packer) AddAt(job int, gpus []cluster.GPU) bool {
	mark := k.overlay.Checkpoint()
	first, _ := k.p.WorkersOf(job)
	for i, g := range gpus {
		if !k.Takes(job, g) {
			k.overlay.Rollback(mark, k.reindex)
			return false
		}
		k.put(first+cluster.Worker(i), g)
	}
	k.overlay.Commit()
	return true
}

// Remove takes all workers of a job off their GPUs.
func (k *Packer) Remove(job int) {
	first, end := k.p.WorkersOf(job)
	for w := first; w < end; w++ {
		k.reindex(k.overlay.Remove(w))
	}
	k.overlay.Commit()
}

// find is the GPU for a worker: the tightest fit in the most preferred set, else an idle GPU.
func (k *Packer) find(w cluster.Worker) (cluster.GPU, bool) {
	if k.ground != nil {
		return k.choose(w)
	}
	if g, ok := k.findShared(w); ok {
		return g, true
	}
	if idle, ok := k.tree(empty).Min(); ok {
		return idle.gpu, true
	}
	if k.limit > 0 {
		return cluster.NoGPU, false
	}
	k.grow(1)
	return cluster.GPU(k.overlay.GPUs() - 1), true
}

// findShared is find without idle GPUs.
func (k *Packer) findShared(w cluster.Worker) (cluster.GPU, bool) {
	if k.ground != nil {
		g := k.chooseShared(w, k.reach(w))
		return g, g != cluster.NoGPU
	}
	kind := k.p.kindOf(w)
	for _, set := range k.rank(kind.group) {
		if g, ok := k.tightest(set, w); ok {
			return g, true
		}
	}
	return cluster.NoGPU, false
}

// takes verifies C1 and C2 for one more worker on a GPU, and what is particular about that GPU.
func (k *Packer) takes(g cluster.GPU, w cluster.Worker) bool {
	need := k.p.kindOf(w).profile
	if k.ground == nil {
		return k.p.fits(k.load[g], need)
	}
	return !k.barred(k.p.Job(w), g).Refused() && !k.memory(g, need).Refused() && (k.allow == nil || k.allow(g))
}

func (k *Packer) put(w cluster.Worker, g cluster.GPU) {
	if k.ground != nil {
		k.overlay.Add(w, g)
		k.file(g, k.ground.with(k, g, k.p.kind[k.p.job[w]]))
		return
	}
	kind := k.p.kindOf(w)
	next := k.p.sets.join(k.set[g], kind.group)
	k.move(g, next, k.load[g].Add(kind.profile), k.size[g]+kind.size)
	k.overlay.Add(w, g)
}

// move files a GPU under another set and load.
func (k *Packer) move(g cluster.GPU, set int32, load profile.Load, size float64) {
	k.tree(k.set[g]).Delete(fill{k.size[g], g})
	switch {
	case k.set[g] == empty && set != empty:
		k.inUse++
	case k.set[g] != empty && set == empty:
		k.inUse--
	}
	k.set[g], k.load[g], k.size[g] = set, load, size
	k.tree(set).ReplaceOrInsert(fill{size, g})
}

// reindex files a GPU by its present residents, whether or not they may still share.
func (k *Packer) reindex(g cluster.GPU) {
	residents := k.overlay.Residents(g)
	if k.ground != nil {
		k.file(g, k.ground.stateOf(k, residents))
		return
	}
	groups, load, size := k.p.groupsAt(residents), profile.Load{}, 0.0
	for _, r := range residents {
		kind := k.p.kindOf(r)
		load = load.Add(kind.profile)
		size += kind.size
	}
	slices.Sort(groups)
	k.move(g, k.p.sets.of(groups), load, size)
}

// InUse is the number of GPUs with a resident.
func (k *Packer) InUse() int { return k.inUse }

// Residents of a GPU in ascending order; valid until the next change, and not to be changed.
func (k *Packer) Residents(g cluster.GPU) []cluster.Worker { return k.overlay.Residents(g) }

// GPUsOf is the GPU of each worker of a placed job, in order.
func (k *Packer) GPUsOf(job int) []cluster.GPU {
	first, end := k.p.WorkersOf(job)
	gpus := make([]cluster.GPU, 0, end-first)
	for w := first; w < end; w++ {
		gpus = append(gpus, k.overlay.Place(w))
	}
	return gpus
}

// Rate of a placed job: that of its slowest worker, as a share of standalone speed.
func (k *Packer) Rate(job int) float64 {
	rate := 1.0
	first, end := k.p.WorkersOf(job)
	for w := first; w < end; w++ {
		set := k.set[k.overlay.Place(w)]
		if len(k.p.sets.all[set].groups) > 1 {
			rate = min(rate, k.p.sets.rate(set, k.p.kindOf(w).group))
		}
	}
	return rate
}
