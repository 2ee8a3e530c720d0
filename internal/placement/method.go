package placement

import (
	"context"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
)

// Method is one way to pack, by the name users choose it by.
type Method struct {
	Name  string
	Label string // what tables call it
	Pack  func(context.Context, *Problem) (*Packing, error)
}

// Methods lists every method, from the plainest to the strongest.
func Methods() []Method {
	return []Method{
		{"dedicated", "dedicated", Dedicated},
		{"peak", "peak", Peak},
		{"greedy", "greedy", Greedy},
		{"heuristic", "heuristic", Heuristic},
		{"exact", "exact (2)", Exact},
		{"lp", "lp", LP},
	}
}

// Dedicated gives every worker a GPU of its own.
func Dedicated(_ context.Context, p *Problem) (*Packing, error) {
	q := &Packing{}
	for w := range cluster.Worker(len(p.job)) {
		if !p.TooLarge(p.Job(w)) {
			q.GPUs = append(q.GPUs, []cluster.Worker{w})
		}
	}
	return q, nil
}

// Peak is Greedy when every worker may hold its peak at any time: what packing by peak memory reaches under the same
// floors. Where memory is unknown it equals Greedy.
func Peak(ctx context.Context, p *Problem) (*Packing, error) { return Greedy(ctx, p.AtPeak()) }

// AtPeak is the problem without valleys in memory. Its workers have the same numbers.
func (p *Problem) AtPeak() *Problem {
	profiles := make([]profile.Profile, len(p.jobs))
	for j := range profiles {
		profiles[j] = p.kinds[p.kind[j]].profile.AtPeak()
	}
	o := p.options
	o.Epsilon = 0
	q := NewProblem(p.jobs, p.sets.table, profiles, o)
	q.Progress = p.Progress
	return q
}
