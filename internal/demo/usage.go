package demo

import (
	"cmp"
	"slices"
	"time"
)

// Step says how many GPUs are in use from a time on.
type Step struct {
	At   time.Duration
	GPUs int
}

// Usage is how many GPUs have a job, in order of time. The last step is the last end, with none.
func (r *Run) Usage() []Step {
	type edge struct {
		at  time.Duration
		gpu int
		by  int
	}
	var edges []edge
	for _, o := range r.Jobs {
		for _, s := range o.Stays {
			edges = append(edges, edge{s.From, s.GPU, 1}, edge{s.To, s.GPU, -1})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var steps []Step
	residents, used := map[int]int{}, 0
	for i, e := range edges {
		before := residents[e.gpu]
		residents[e.gpu] += e.by
		switch {
		case before == 0:
			used++
		case residents[e.gpu] == 0:
			used--
		}
		if i+1 == len(edges) || edges[i+1].at > e.at {
			steps = append(steps, Step{e.at, used})
		}
	}
	return steps
}
