package placement

import (
	"context"
	"fmt"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement/matching"
	"weft.dev/weft/internal/profile"
)

// LimitError says that a problem is too large for a method that would otherwise run for minutes.
type LimitError struct {
	Method string
	What   string // what is counted
	Got    int
	Limit  int
}

// Error names the method and both numbers.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d %s, at most %d", e.Method, e.Got, e.What, e.Limit)
}

// exactWorkers bounds the vertices of the matching, which takes O(n^3) time and O(n^2) memory: minutes and gigabytes
// above it.
const exactWorkers = 2000

// Exact is the optimum for at most two residents, and among the optima one of least total slowdown: two workers that
// may share are an edge, and GPUs = workers - maximum matching. It costs O(n^3) and ignores MaxResidents above 2.
// More than exactWorkers workers that may share give a *LimitError.
func Exact(ctx context.Context, p *Problem) (*Packing, error) {
	var workers []cluster.Worker // vertices of the graph
	q := &Packing{}
	for w := range cluster.Worker(len(p.job)) {
		switch {
		case p.TooLarge(p.Job(w)):
		case p.kindOf(w).group == alone:
			q.GPUs = append(q.GPUs, []cluster.Worker{w})
		default:
			workers = append(workers, w)
		}
	}
	if len(workers) > exactWorkers {
		return nil, &LimitError{"exact", "workers that may share", len(workers), exactWorkers}
	}
	if ctx.Err() != nil {
		return q, ctx.Err()
	}
	mate := matching.Maximum(len(workers), p.pairs(workers))
	for v, w := range workers {
		switch {
		case mate[v] < 0:
			q.GPUs = append(q.GPUs, []cluster.Worker{w})
		case mate[v] > v:
			q.GPUs = append(q.GPUs, []cluster.Worker{w, workers[mate[v]]})
		}
	}
	return q, nil
}

// pairs are the pairs of workers that may share a GPU, at the sum of their slowdowns above 1.
func (p *Problem) pairs(workers []cluster.Worker) []matching.Edge {
	type answer struct {
		fits bool
		cost float64
	}
	known := map[[2]int32]answer{}
	var edges []matching.Edge
	for v, w := range workers {
		for u := range v {
			if p.job[workers[u]] == p.job[w] {
				continue
			}
			key := [2]int32{p.kind[p.job[workers[u]]], p.kind[p.job[w]]}
			a, ok := known[key]
			if !ok {
				a.fits, a.cost = p.pair(&p.kinds[key[0]], &p.kinds[key[1]])
				known[key] = a
			}
			if a.fits {
				edges = append(edges, matching.Edge{U: u, V: v, Cost: a.cost})
			}
		}
	}
	return edges
}

// pair says whether workers of two kinds may share a GPU, and the sum of their slowdowns above 1.
func (p *Problem) pair(a, b *kind) (bool, float64) {
	if p.options.MaxResidents < 2 {
		return false, 0
	}
	set := p.sets.join(p.sets.join(empty, a.group), b.group)
	if set == refused || !p.fits(profile.Load{}.Add(a.profile), b.profile) {
		return false, 0
	}
	return true, p.sets.all[set].slowdown
}
