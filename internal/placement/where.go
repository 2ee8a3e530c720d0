package placement

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// choose is the GPU for a worker: a shared one and else an idle one, or the other way round.
func (k *Packer) choose(w cluster.Worker) (cluster.GPU, bool) {
	first, second := k.chooseShared, k.chooseIdle
	if k.ground.Spread {
		first, second = second, first
	}
	within := k.reach(w)
	g := first(w, within)
	if g == cluster.NoGPU {
		g = second(w, within)
	}
	return g, g != cluster.NoGPU
}

// reach is the GPUs that a worker may be on for those that it must be together with: where they are, and for the first of
// them the best node; nil for none.
func (k *Packer) reach(w cluster.Worker) []cluster.GPU {
	f := k.ground
	if f.together(k.p.Job(w)) <= 1 {
		return f.all
	}
	first, end := k.run(w)
	for mate := first; mate < end; mate++ {
		if g := k.overlay.Place(mate); mate != w && g != cluster.NoGPU {
			return f.nodes[f.node(g)]
		}
	}
	if node := k.bestNode(w, int(end-first)); node >= 0 {
		return f.nodes[node]
	}
	return nil
}

// run is the workers that one must be together with, itself included.
func (k *Packer) run(w cluster.Worker) (first, end cluster.Worker) {
	from, end := k.p.WorkersOf(k.p.Job(w))
	n := cluster.Worker(k.ground.together(k.p.Job(w)))
	first = from + (w-from)/n*n
	return first, min(first+n, end)
}

// free says whether a worker may go to a GPU as far as C5 and allow are concerned.
func (k *Packer) free(w cluster.Worker, g cluster.GPU) bool {
	if k.p.jobs[k.p.job[w]].Workers > 1 && k.p.sameJob(k.overlay.Residents(g), w) {
		return false
	}
	return k.allow == nil || k.allow(g)
}

// chooseShared is the GPU in use that takes a worker: the best set by prefer, in it the least memory left, then a node by what
// is on it, then the first. Once one of a spot has been found worse, its others need no look.
func (k *Packer) chooseShared(w cluster.Worker, within []cluster.GPU) cluster.GPU {
	f, job := k.ground, k.p.Job(w)
	best, group := cluster.NoGPU, k.p.kindOf(w).group
	f.seen.pass++
	for _, g := range within {
		at := f.at[g]
		if f.spots[at].state == 0 || f.seen.lost[at] == f.seen.pass || !k.admits(job, g) {
			continue
		}
		if best != cluster.NoGPU {
			c := 0
			if at != f.at[best] {
				c = k.compareShared(g, best, group)
			}
			if c > 0 {
				f.seen.lost[at] = f.seen.pass
			}
			if c > 0 || c == 0 && f.compareNodes(f.node(g), f.node(best)) >= 0 {
				continue
			}
		}
		if k.free(w, g) {
			best = g
		}
	}
	return best
}

// compareShared orders two GPUs in use by what they are to a group, the better first.
func (k *Packer) compareShared(a, b cluster.GPU, group int32) int {
	if k.set[a] != k.set[b] {
		if c := k.prefer(k.set[a], k.set[b], group); c != 0 {
			return c
		}
	}
	return cmp.Compare(k.left(a), k.left(b))
}

// left is the effective memory that is not in use.
func (k *Packer) left(g cluster.GPU) float64 { return float64(k.ground.Memory[g]) - k.size[g] }

// chooseIdle is the idle GPU that takes a worker: large GPUs are kept for large jobs, and nodes with many idle GPUs for jobs
// that need many on one. So the least memory comes first, then the node with the fewest idle GPUs that would take it, then a
// node by what is on it, then the first.
func (k *Packer) chooseIdle(w cluster.Worker, within []cluster.GPU) cluster.GPU {
	f, job := k.ground, k.p.Job(w)
	idle := f.seen.idle[:0]
	clear(f.seen.rooms)
	for _, g := range within {
		if f.spots[f.at[g]].state == 0 && k.admits(job, g) {
			idle = append(idle, g)
			f.seen.rooms[f.node(g)].idle++
		}
	}
	f.seen.idle = idle
	best := cluster.NoGPU
	for _, g := range idle {
		if (best == cluster.NoGPU || k.compareIdle(g, best) < 0) && k.free(w, g) {
			best = g
		}
	}
	return best
}

func (k *Packer) compareIdle(a, b cluster.GPU) int {
	f := k.ground
	if c := cmp.Compare(f.Memory[a], f.Memory[b]); c != 0 {
		return c
	}
	x, y := f.node(a), f.node(b)
	if c := cmp.Compare(f.seen.rooms[x].idle, f.seen.rooms[y].idle); c != 0 {
		return c
	}
	return f.compareNodes(x, y)
}

// room is the GPUs of a node that take a worker.
type room struct {
	shared, idle int
	memory       unit.Bytes // least of the idle ones
}

// opens is how many idle GPUs a run of workers takes into use.
func (r room) opens(size int, spread bool) int {
	if spread {
		return min(size, r.idle)
	}
	return max(0, size-r.shared)
}

// bestNode is the node for a run of workers, or -1: of those that take it the one where the fewest idle GPUs come into use
// (the most, to spread), of the least memory, then the one left with the fewest idle GPUs for such a run, then with the fewest
// others, then a node by what is on it, then the first.
func (k *Packer) bestNode(w cluster.Worker, size int) int {
	f, job := k.ground, k.p.Job(w)
	rooms := f.seen.rooms
	clear(rooms)
	for _, g := range f.all {
		if !k.admits(job, g) || !k.free(w, g) {
			continue
		}
		r := &rooms[f.node(g)]
		if f.spots[f.at[g]].state != 0 {
			r.shared++
			continue
		}
		if r.idle++; r.idle == 1 || f.Memory[g] < r.memory {
			r.memory = f.Memory[g]
		}
	}
	best := -1
	for n, r := range rooms {
		if r.shared+r.idle >= size && (best < 0 || k.compareRooms(n, best, size) < 0) {
			best = n
		}
	}
	return best
}

func (k *Packer) compareRooms(a, b, size int) int {
	f := k.ground
	x, y := f.seen.rooms[a], f.seen.rooms[b]
	opensX, opensY := x.opens(size, f.Spread), y.opens(size, f.Spread)
	opens := cmp.Compare(opensX, opensY)
	if f.Spread {
		opens = -opens
	}
	if opensX == 0 {
		x.memory = 0
	}
	if opensY == 0 {
		y.memory = 0
	}
	if c := cmp.Or(opens, cmp.Compare(x.memory, y.memory), cmp.Compare(x.idle-opensX, y.idle-opensY), cmp.Compare(x.shared, y.shared)); c != 0 {
		return c
	}
	return f.compareNodes(a, b)
}

// rehouseRun takes all workers of a run off their GPUs and puts them on one node, or changes nothing and reports false.
func (k *Packer) rehouseRun(w cluster.Worker) bool {
	first, end := k.run(w)
	mark := k.overlay.Checkpoint()
	for mate := first; mate < end; mate++ {
		if k.overlay.Place(mate) != cluster.NoGPU {
			k.reindex(k.overlay.Remove(mate))
		}
	}
	for mate := first; mate < end; mate++ {
		g, ok := k.choose(mate)
		if !ok {
			k.overlay.Rollback(mark, k.reindex)
			return false
		}
		k.put(mate, g)
	}
	k.overlay.Commit()
	return true
}

// near says whether a worker may be on a GPU for those that it must be together with.
func (k *Packer) near(w cluster.Worker, g cluster.GPU) bool {
	return k.ground == nil || slices.Contains(k.reach(w), g)
}
