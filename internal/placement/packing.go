package placement

import (
	"slices"

	"weft.dev/weft/internal/cluster"
)

// Packing is a complete answer: the workers on each GPU in use. Jobs that no GPU can hold are in none.
type Packing struct {
	GPUs [][]cluster.Worker // residents ascending; GPUs ordered by their first resident
}

// packing is the present state of a packer.
func (k *Packer) packing() *Packing {
	q := &Packing{}
	for g := range k.overlay.GPUs() {
		if residents := k.overlay.Residents(cluster.GPU(g)); len(residents) > 0 {
			q.GPUs = append(q.GPUs, residents)
		}
	}
	return q
}

// Figures say how good a packing is.
type Figures struct {
	GPUs             int
	Saved            float64 // share of one GPU per worker
	MeanPerformance  float64 // workers / sum of slowdowns
	WorstPerformance float64 // of the slowest worker
	P05Performance   float64 // what all but the slowest twentieth of the workers reach at least
	BrokenFloors     int     // jobs with a worker below their floor
}

// Figures computes the packing's figures in O(workers).
func (p *Problem) Figures(q *Packing) Figures {
	f := Figures{GPUs: len(q.GPUs), MeanPerformance: 1, WorstPerformance: 1, P05Performance: 1}
	var rates []float64
	slowdowns := 0.0
	broken := map[int32]bool{}
	for _, residents := range q.GPUs {
		for i, rate := range p.Rates(residents) {
			slowdowns += 1 / rate
			rates = append(rates, rate)
			if j := p.job[residents[i]]; rate < p.jobs[j].Floor-floorTolerance {
				broken[j] = true
			}
		}
	}
	if workers := len(rates); workers > 0 {
		slices.Sort(rates)
		f.WorstPerformance, f.P05Performance = rates[0], rates[workers/20]
		f.Saved = 1 - float64(len(q.GPUs))/float64(workers)
		f.MeanPerformance = float64(workers) / slowdowns
	}
	f.BrokenFloors = len(broken)
	return f
}

// Rates is the share of standalone speed that each of the residents of one GPU keeps, in (0, 1].
func (p *Problem) Rates(residents []cluster.Worker) []float64 {
	groups := p.groupsAt(residents)
	rates := make([]float64, len(residents))
	for i := range residents {
		rates[i] = 1 / (1 + p.sets.added(groups, i))
	}
	return rates
}

func (p *Problem) groupsAt(residents []cluster.Worker) []int32 {
	groups := make([]int32, len(residents))
	for i, w := range residents {
		groups[i] = p.kindOf(w).group
	}
	return groups
}
