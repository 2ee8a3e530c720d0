package placement

import (
	"cmp"
	"context"
	"slices"
)

// Greedy packs jobs one by one, the hardest first, each worker on the fullest GPU that takes it. It costs
// O(n log n) for n workers.
//
// Guarantee where memory does not bind: a GPU is only opened when no open one takes the worker, so GPUs with one
// resident are pairwise incompatible, no plan joins them, and GPUs <= (MaxResidents+1)/2 x optimum: 3/2 for pairs.
func Greedy(ctx context.Context, p *Problem) (*Packing, error) {
	k := NewPacker(p, 0)
	for i, job := range p.hardestFirst() {
		if i%checkEvery == 0 {
			p.progress(i, len(p.jobs))
			if ctx.Err() != nil {
				return k.packing(), ctx.Err()
			}
		}
		if !p.TooLarge(job) {
			k.Add(job) // cannot refuse: GPUs are opened as needed
		}
	}
	return k.packing(), nil
}

// checkEvery is how many jobs are placed between two looks at the context, and two reports of progress.
const checkEvery = 1024

func (p *Problem) progress(done, total int) {
	if p.Progress != nil {
		p.Progress(done, total)
	}
}

// hardestFirst orders jobs by size descending: the largest of the share of a GPU's memory, of its utilisation, and of
// the share of all workers that the job cannot sit beside. Ties go to larger gangs, then to the job's ID.
func (p *Problem) hardestFirst() []int {
	size := make([]float64, len(p.kinds))
	for k := range p.kinds {
		size[k] = p.size(&p.kinds[k])
	}
	order := make([]int, len(p.jobs))
	for j := range order {
		order[j] = j
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(size[p.kind[b]], size[p.kind[a]]),
			cmp.Compare(p.kind[a], p.kind[b]),
			cmp.Compare(p.jobs[b].Workers, p.jobs[a].Workers),
			cmp.Compare(p.first[a], p.first[b]))
	})
	return order
}

func (p *Problem) size(k *kind) float64 {
	memory := 0.0
	if limit := p.options.GPUMemory; limit > 0 {
		memory = k.size / float64(limit)
	}
	s, compatible := p.sets, 0
	single := s.join(empty, k.group)
	for g, workers := range s.demand {
		if s.mayJoin(single, int32(g)) {
			compatible += workers
		}
	}
	return max(memory, k.util, 1-float64(compatible)/float64(len(p.job)))
}
