package placement

import (
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
	BrokenFloors     int     // jobs with a worker below their floor
}

// Figures computes the packing's figures in O(workers).
func (p *Problem) Figures(q *Packing) Figures {
	f := Figures{GPUs: len(q.GPUs), WorstPerformance: 1, MeanPerformance: 1}
	workers, slowdowns := 0, 0.0
	broken := map[int32]bool{}
	for _, residents := range q.GPUs {
		groups := p.groupsAt(residents)
		for i, w := range residents {
			slowdown := 1 + p.sets.added(groups, i)
			workers++
			slowdowns += slowdown
			f.WorstPerformance = min(f.WorstPerformance, 1/slowdown)
			if j := p.job[w]; 1/slowdown < p.jobs[j].Floor-floorTolerance {
				broken[j] = true
			}
		}
	}
	if workers > 0 {
		f.Saved = 1 - float64(len(q.GPUs))/float64(workers)
		f.MeanPerformance = float64(workers) / slowdowns
	}
	f.BrokenFloors = len(broken)
	return f
}

func (p *Problem) groupsAt(residents []cluster.Worker) []int32 {
	groups := make([]int32, len(residents))
	for i, w := range residents {
		groups[i] = p.kindOf(w).group
	}
	return groups
}
