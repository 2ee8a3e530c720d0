package policy

import (
	"math"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
)

// truth is how jobs really slow each other down.
type truth struct {
	table  *interference.Table
	config []int // of each job; -1 for none
}

// RunAt makes jobs run at the rates of a table, whatever placement believes of them. A pair that the table does not have
// hardly makes progress: leastRate. It is called before anything is placed.
func (s *Sharing) RunAt(table *interference.Table) {
	s.truth = truth{table, configsOf(s.problem.Jobs(), table)}
	s.rateOf = s.trueRate
}

func configsOf(jobs []cluster.Job, t *interference.Table) []int {
	of := make([]int, len(jobs))
	for j := range jobs {
		of[j] = -1
		if i, ok := t.Lookup(interference.Config{Model: jobs[j].Model, Batch: jobs[j].Batch}); ok {
			of[j] = i
		}
	}
	return of
}

// added is the slowdown that one job adds to another.
func (t *truth) added(to, by int) float64 {
	if t.config[to] < 0 || t.config[by] < 0 {
		return math.Inf(1)
	}
	return t.table.Added(t.config[to], t.config[by])
}

// trueRate is the rate of a job at its slowest worker, by the truth.
func (s *Sharing) trueRate(job int) float64 {
	rate := 1.0
	for _, g := range s.gpus[job] {
		rate = min(rate, s.trueRateOn(job, g))
	}
	return rate
}

// trueRateOn is the rate of a job's worker on one GPU.
func (s *Sharing) trueRateOn(job int, g cluster.GPU) float64 {
	slowdown := 1.0
	for _, w := range s.packer.Residents(g) {
		if other := s.problem.Job(w); other != job {
			slowdown += s.truth.added(job, other)
		}
	}
	return max(leastRate, 1/slowdown)
}

// leastRate is the rate of a job beside one that nobody measured it beside: hardly any progress, but some, so that
// virtual time goes on.
const leastRate = 0.01
