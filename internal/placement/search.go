package placement

import "weft.dev/weft/internal/cluster"

// Which GPU of a set still takes a worker hardly depends on more than the effective memory in use. So the fullest few are
// tried, then the emptiest few: where they refuse, so will those between. Else the border is sought by bisection, down to
// 1/2^bisections of the memory.
const (
	tries      = 4
	bisections = 6
)

// tightest is the fullest GPU found in a set that takes the worker, verified against C1, C2 and C5.
func (k *Packer) tightest(set int32, w cluster.Worker) (cluster.GPU, bool) {
	tree := k.trees[set]
	if tree.Len() == 0 {
		return cluster.NoGPU, false
	}
	s := search{k: k, w: w}
	from := fill{max(0, float64(k.p.options.GPUMemory)-k.p.kindOf(w).size), lastGPU}
	tree.DescendLessOrEqual(from, s.begin(tries))
	if s.ok || s.left > 0 {
		return s.found.gpu, s.ok
	}
	high := s.last.size
	tree.Ascend(s.begin(tries))
	if !s.ok {
		return cluster.NoGPU, false
	}
	best := s.found
	for low, step := best.size, 0; step < bisections && low < high; step++ {
		middle := (low + high) / 2
		if tree.DescendLessOrEqual(fill{middle, lastGPU}, s.begin(1)); s.ok && lessFill(best, s.found) {
			best, low = s.found, middle
		} else {
			high = min(middle, s.last.size)
		}
	}
	return best.gpu, true
}

// search tries GPUs of a tree for a worker.
type search struct {
	k *Packer
	w cluster.Worker

	left  int  // GPUs that may still be tried
	last  fill // the last one tried
	found fill // where ok
	ok    bool
}

// begin is a visitor that stops at the first GPU that takes the worker, or after some tries. Those that hold a worker of
// the same job do not count.
func (s *search) begin(tries int) func(fill) bool {
	s.left, s.ok = tries, false
	return func(f fill) bool {
		if s.k.p.sameJob(s.k.overlay.Residents(f.gpu), s.w) {
			return true
		}
		s.left--
		s.last = f
		if s.k.takes(f.gpu, s.w) {
			s.found, s.ok = f, true
		}
		return !s.ok && s.left > 0
	}
}

// lastGPU is above every index of a GPU.
const lastGPU cluster.GPU = 1<<31 - 1
