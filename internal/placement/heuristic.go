package placement

import (
	"cmp"
	"context"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
)

// Heuristic fills one GPU after the other with the best partners for its first worker, by several scores, keeps the
// best of these packings, of Greedy's and of Peak's, and then tries to empty its least filled GPUs. It costs
// O(n^2 log n) at most; workers of one kind are scored once. It never needs more GPUs than Greedy, whose guarantee it
// therefore has, nor than Peak, which may do better than Greedy where memory binds.
func Heuristic(ctx context.Context, p *Problem) (*Packing, error) {
	best, err := Greedy(ctx, p)
	if err != nil {
		return best, err
	}
	for _, pack := range p.fillings() {
		q, err := pack(ctx, p)
		if err != nil {
			return best, err
		}
		if p.better(q, best) {
			best = q
		}
	}
	return eliminate(ctx, p, best)
}

// fillings are the ways to pack that Heuristic tries besides Greedy.
func (p *Problem) fillings() (ways []func(context.Context, *Problem) (*Packing, error)) {
	for _, score := range scores {
		ways = append(ways, func(ctx context.Context, p *Problem) (*Packing, error) { return fillGPUs(ctx, p, score) })
	}
	if p.options.GPUMemory > 0 && p.options.Epsilon > 0 {
		ways = append(ways, Peak)
	}
	return ways
}

// better says whether a packing needs fewer GPUs than another, or as many at less total slowdown.
func (p *Problem) better(a, b *Packing) bool {
	if len(a.GPUs) != len(b.GPUs) {
		return len(a.GPUs) < len(b.GPUs)
	}
	return p.Figures(a).MeanPerformance > p.Figures(b).MeanPerformance+floorTolerance
}

// candidate is a kind that could join the GPU being filled.
type candidate struct {
	kind     int32
	rank     int     // place of the kind in hardest-first order
	room     int     // workers that could still join afterwards
	slowdown float64 // added in sum
}

// scores order candidates: lower is better. No one of them wins on every mix.
var scores = []func(a, b candidate) int{
	func(a, b candidate) int { return cmp.Or(cmp.Compare(a.rank, b.rank)) },
	func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.slowdown, b.slowdown), cmp.Compare(a.rank, b.rank))
	},
	func(a, b candidate) int { return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(a.rank, b.rank)) },
}

// filler fills GPUs one after the other.
type filler struct {
	p       *Problem
	score   func(a, b candidate) int
	order   []int32            // kinds, hardest first
	waiting [][]cluster.Worker // of each kind, last one next
}

func fillGPUs(ctx context.Context, p *Problem, score func(a, b candidate) int) (*Packing, error) {
	f := &filler{p: p, score: score, waiting: make([][]cluster.Worker, len(p.kinds))}
	jobs := p.hardestFirst()
	for _, j := range jobs {
		if !slices.Contains(f.order[max(0, len(f.order)-1):], p.kind[j]) {
			f.order = append(f.order, p.kind[j])
		}
	}
	for _, j := range slices.Backward(jobs) {
		if p.TooLarge(j) {
			continue
		}
		first, end := p.WorkersOf(j)
		for w := end - 1; w >= first; w-- {
			f.waiting[p.kind[j]] = append(f.waiting[p.kind[j]], w)
		}
	}
	q := &Packing{}
	for _, kind := range f.order {
		for len(f.waiting[kind]) > 0 {
			if ctx.Err() != nil {
				return q, ctx.Err()
			}
			q.GPUs = append(q.GPUs, f.fill(kind))
			if len(q.GPUs)%checkEvery == 0 {
				p.progress(len(q.GPUs), len(p.jobs))
			}
		}
	}
	return q, nil
}

// fill seeds a GPU with a worker of a kind and adds the best partner until none fits.
func (f *filler) fill(seed int32) []cluster.Worker {
	residents := []cluster.Worker{f.take(seed, nil)}
	set := f.p.sets.join(empty, f.p.kinds[seed].group)
	load := profile.Load{}.Add(f.p.kinds[seed].profile)
	for len(residents) < f.p.options.MaxResidents {
		kind, ok := f.best(set, load, residents)
		if !ok {
			break
		}
		residents = append(residents, f.take(kind, residents))
		set = f.p.sets.join(set, f.p.kinds[kind].group)
		load = load.Add(f.p.kinds[kind].profile)
	}
	slices.Sort(residents)
	return residents
}

// best is the best scored kind that may join.
func (f *filler) best(set int32, load profile.Load, residents []cluster.Worker) (int32, bool) {
	var best candidate
	found := false
	for rank, kind := range f.order {
		if f.next(kind, residents) < 0 {
			continue
		}
		k := &f.p.kinds[kind]
		joined := f.p.sets.join(set, k.group)
		if joined == refused || !f.p.fits(load, k.profile) {
			continue
		}
		c := candidate{kind, rank, f.p.sets.room(joined), f.p.sets.all[joined].slowdown - f.p.sets.all[set].slowdown}
		if !found || f.score(c, best) < 0 {
			best, found = c, true
		}
	}
	return best.kind, found
}

// next is the index in waiting of the kind's next worker whose job has none among the residents, or -1.
func (f *filler) next(kind int32, residents []cluster.Worker) int {
	for i := len(f.waiting[kind]) - 1; i >= 0; i-- {
		if !f.p.sameJob(residents, f.waiting[kind][i]) {
			return i
		}
	}
	return -1
}

func (f *filler) take(kind int32, residents []cluster.Worker) cluster.Worker {
	i := f.next(kind, residents)
	w := f.waiting[kind][i]
	f.waiting[kind] = slices.Delete(f.waiting[kind], i, i+1)
	return w
}
