package placement

import (
	"cmp"
	"context"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
)

// candidate is a group whose hardest fitting worker could join the GPU being filled.
type candidate struct {
	group    int32
	place    int     // index in waiting
	rank     int     // of the worker, in hardest-first order
	room     int     // workers that could still join afterwards
	slowdown float64 // added in sum
}

// scores order candidates: lower is better. No one of them wins on every mix.
var scores = []func(a, b candidate) int{
	func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) },
	func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.slowdown, b.slowdown), cmp.Compare(a.rank, b.rank))
	},
	func(a, b candidate) int { return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(a.rank, b.rank)) },
}

// filler fills GPUs one after the other.
type filler struct {
	p       *Problem
	score   func(a, b candidate) int
	rank    []int              // of each job, in hardest-first order
	waiting [][]cluster.Worker // of each group, hardest first
}

func fillGPUs(ctx context.Context, p *Problem, score func(a, b candidate) int) (*Packing, error) {
	f := &filler{p: p, score: score, rank: make([]int, len(p.jobs)), waiting: make([][]cluster.Worker, len(p.sets.groups))}
	jobs := p.hardestFirst()
	for i, j := range jobs {
		f.rank[j] = i
		if p.TooLarge(j) {
			continue
		}
		group := p.kinds[p.kind[j]].group
		first, end := p.WorkersOf(j)
		for w := first; w < end; w++ {
			f.waiting[group] = append(f.waiting[group], w)
		}
	}
	q := &Packing{}
	for i, j := range jobs {
		for group := p.kinds[p.kind[j]].group; f.has(group, j); {
			if ctx.Err() != nil {
				return q, ctx.Err()
			}
			q.GPUs = append(q.GPUs, f.fill(group))
			if len(q.GPUs)%checkEvery == 0 {
				p.progress(i, len(p.jobs))
			}
		}
	}
	return q, nil
}

// has says whether the hardest waiting worker of a group is of a job.
func (f *filler) has(group int32, job int) bool {
	return len(f.waiting[group]) > 0 && f.p.Job(f.waiting[group][0]) == job
}

// fill seeds a GPU with the hardest worker of a group and adds the best partner until none fits.
func (f *filler) fill(group int32) []cluster.Worker {
	seed := f.take(group, 0)
	residents := []cluster.Worker{seed}
	set := f.p.sets.join(empty, group)
	load := profile.Load{}.Add(f.p.kindOf(seed).profile)
	for len(residents) < f.p.options.MaxResidents {
		best, ok := f.best(set, load, residents)
		if !ok {
			break
		}
		w := f.take(best.group, best.place)
		residents = append(residents, w)
		set = f.p.sets.join(set, best.group)
		load = load.Add(f.p.kindOf(w).profile)
	}
	slices.Sort(residents)
	return residents
}

// best is the best scored candidate.
func (f *filler) best(set int32, load profile.Load, residents []cluster.Worker) (best candidate, found bool) {
	s := f.p.sets
	for group := range int32(len(f.waiting)) {
		if len(f.waiting[group]) == 0 {
			continue
		}
		joined := s.join(set, group)
		if joined == refused {
			continue
		}
		place := f.hardest(group, load, residents)
		if place < 0 {
			continue
		}
		c := candidate{group, place, f.rank[f.p.Job(f.waiting[group][place])], s.room(joined), s.all[joined].slowdown - s.all[set].slowdown}
		if !found || f.score(c, best) < 0 {
			best, found = c, true
		}
	}
	return best, found
}

// hardest is the place of the hardest waiting worker of a group that fits beside the residents, or -1. Harder workers of
// one group mostly take more memory, so the first few are tried, then the easiest, and between them by bisection: one
// that fits may be missed.
func (f *filler) hardest(group int32, load profile.Load, residents []cluster.Worker) int {
	waiting := f.waiting[group]
	fits := func(i int) bool {
		return !f.p.sameJob(residents, waiting[i]) && f.p.fits(load, f.p.kindOf(waiting[i]).profile)
	}
	first := 0
	for ; first < len(waiting) && first < tries; first++ {
		if fits(first) {
			return first
		}
	}
	for first < len(waiting) && f.p.sameJob(residents, waiting[first]) {
		first++ // a gang's workers stand together
	}
	if first >= len(waiting) || !fits(len(waiting)-1) {
		return -1
	}
	low, high := first, len(waiting)-1 // high fits
	for low < high {
		if middle := (low + high) / 2; fits(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

func (f *filler) take(group int32, place int) cluster.Worker {
	w := f.waiting[group][place]
	f.waiting[group] = slices.Delete(f.waiting[group], place, place+1)
	return w
}
