package placement

import (
	"cmp"
	"context"
	"slices"

	"weft.dev/weft/internal/cluster"
)

// Bounds of the elimination: passes over all GPUs, and GPUs of one set on which a swap is tried. Both keep it within
// O(n^2 log n); on measured mixes a second pass rarely empties a GPU.
const (
	eliminatePasses = 4
	swapTries       = 4
	swapBudget      = 128 // swaps tried for one worker
)

// eliminate tries to empty GPUs, the least filled first: each resident moves to another GPU in use, or takes the
// place of a resident there that can move on to a third. A GPU that does not empty is left as it was.
func eliminate(ctx context.Context, p *Problem, q *Packing) (*Packing, error) {
	k := NewPacker(p, 0)
	k.adopt(q)
	for range eliminatePasses {
		emptied, err := k.eliminatePass(ctx)
		if err != nil || !emptied {
			return k.packing(), err
		}
	}
	return k.packing(), nil
}

// adopt puts a packing on an idle packer.
func (k *Packer) adopt(q *Packing) {
	k.grow(len(q.GPUs))
	for g, residents := range q.GPUs {
		for _, w := range residents {
			k.put(w, cluster.GPU(g))
		}
	}
	k.overlay.Commit()
}

func (k *Packer) eliminatePass(ctx context.Context) (bool, error) {
	emptied := false
	hopeless := map[string]bool{} // kinds on a GPU that could not be emptied since the last success
	for _, g := range k.leastFilled() {
		if ctx.Err() != nil {
			return emptied, ctx.Err()
		}
		key := k.kindsAt(g)
		if hopeless[key] || len(k.overlay.Residents(g)) == 0 {
			continue
		}
		if k.emptyGPU(g) {
			emptied = true
			clear(hopeless)
		} else {
			hopeless[key] = true
		}
	}
	return emptied, nil
}

// leastFilled orders the GPUs in use by residents, then effective memory, then index.
func (k *Packer) leastFilled() []cluster.GPU {
	var gpus []cluster.GPU
	for g := range k.overlay.GPUs() {
		if k.set[g] != empty {
			gpus = append(gpus, cluster.GPU(g))
		}
	}
	slices.SortFunc(gpus, func(a, b cluster.GPU) int {
		return cmp.Or(
			cmp.Compare(len(k.overlay.Residents(a)), len(k.overlay.Residents(b))),
			cmp.Compare(k.size[a], k.size[b]),
			cmp.Compare(a, b))
	})
	return gpus
}

// kindsAt names the residents of a GPU but for their jobs: GPUs that agree are as hard to empty as each other,
// unless gangs differ.
func (k *Packer) kindsAt(g cluster.GPU) string {
	var key []byte
	for _, w := range k.overlay.Residents(g) {
		kind := k.p.kind[k.p.job[w]]
		key = append(key, byte(kind), byte(kind>>8), byte(kind>>16), byte(kind>>24))
	}
	return string(key)
}

// emptyGPU moves every resident elsewhere, or changes nothing.
func (k *Packer) emptyGPU(g cluster.GPU) bool {
	mark := k.overlay.Checkpoint()
	if !k.vacate(g) {
		k.overlay.Rollback(mark, k.reindex)
		return false
	}
	k.overlay.Commit()
	return true
}

// vacate moves every resident elsewhere. Where it fails, some have moved.
func (k *Packer) vacate(g cluster.GPU) bool {
	residents := slices.Clone(k.overlay.Residents(g))
	for _, w := range residents {
		k.overlay.Remove(w)
	}
	k.reindex(g)
	for _, w := range residents {
		if !k.relocate(w) {
			return false
		}
	}
	return true
}

// Drain tries to empty a GPU in use, moving its residents to other GPUs in use, some of whose residents may move on in
// turn. It changes nothing when the GPU does not empty, or when worth refuses the jobs that would move, each listed
// once in order of its first worker to move; else it returns them.
func (k *Packer) Drain(g cluster.GPU, worth func(moved []int) bool) (moved []int) {
	if len(k.overlay.Residents(g)) == 0 {
		return nil
	}
	mark := k.overlay.Checkpoint()
	if k.vacate(g) {
		k.overlay.Since(mark, func(w cluster.Worker, from cluster.GPU) {
			if job := k.p.Job(w); k.overlay.Place(w) != from && !slices.Contains(moved, job) {
				moved = append(moved, job)
			}
		})
		if worth(moved) {
			k.overlay.Commit()
			return moved
		}
	}
	k.overlay.Rollback(mark, k.reindex)
	return nil
}

// relocate puts a worker on a GPU in use, directly or by a swap.
func (k *Packer) relocate(w cluster.Worker) bool {
	if g, ok := k.findShared(w); ok {
		k.put(w, g)
		return true
	}
	s, group := k.p.sets, k.p.kindOf(w).group
	k.swaps = swapBudget
	for _, set := range k.used {
		if k.trees[set].Len() == 0 || k.swaps <= 0 {
			continue
		}
		for i, out := range s.all[set].groups {
			if i > 0 && out == s.all[set].groups[i-1] || out == group {
				continue
			}
			if s.join(s.leave(set, out), group) != refused && k.swapInto(set, out, w) {
				return true
			}
		}
	}
	return false
}

// swapInto puts w on some GPU of a set in place of a resident of group out, which moves to another GPU in use.
func (k *Packer) swapInto(set, out int32, w cluster.Worker) bool {
	var gpus [swapTries]cluster.GPU
	n := 0
	k.trees[set].Ascend(func(f fill) bool {
		gpus[n] = f.gpu
		n++
		return n < swapTries
	})
	for _, g := range gpus[:n] {
		if k.swaps--; k.swaps < 0 {
			return false
		}
		mark := k.overlay.Checkpoint()
		r := k.residentOf(g, out)
		k.reindex(k.overlay.Remove(r))
		if !k.p.sameJob(k.overlay.Residents(g), w) && k.takes(g, w) && k.near(w, g) {
			k.put(w, g)
			if to, ok := k.findShared(r); ok {
				k.put(r, to)
				return true
			}
		}
		k.overlay.Rollback(mark, k.reindex)
	}
	return false
}

// residentOf is the first resident of a group.
func (k *Packer) residentOf(g cluster.GPU, group int32) cluster.Worker {
	for _, r := range k.overlay.Residents(g) {
		if k.p.kindOf(r).group == group {
			return r
		}
	}
	return -1 // no GPU of a set lacks a member of one of its groups
}
