package placement

import (
	"context"
)

// Heuristic fills one GPU after the other with the best partners for its first worker, by several scores, keeps the
// best of these packings, of Greedy's and of Peak's, and then tries to empty its least filled GPUs. It costs
// O(n^2 log n) at most; workers of one group are scored once. It never needs more GPUs than Greedy, whose guarantee it
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
