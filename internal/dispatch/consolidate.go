package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
)

// Figures of closing gaps.
const (
	worthFactor = 2                // times its cost in GPU time that a move must be expected to save: expectations are rough
	leastStay   = 10 * time.Minute // on its GPUs before a job moves for others' sake: nobody is moved to and fro
)

// Consolidate empties GPUs whose residents fit on others in use, where that pays, with at most budget moves. A move costs
// every worker of a job its pause; it saves the GPU until its last resident would have left. Nobody knows when that is: a job
// is expected to run on for as long as it has run, or to its limit. A job moves only when it is so far ahead of its floor
// that the pause does not bring it below.
func Consolidate(s *State, budget int) []Move {
	b := newBoard(s, false)
	if b.packer == nil {
		return nil
	}
	var moves []Move
	stuck := map[string]bool{} // GPUs whose residents found no room elsewhere, by what those are
	for _, g := range b.leastFilled() {
		there := b.there(g)
		key := b.likeness(g, there)
		if stuck[key] || len(there) > budget || !b.pays(g, there) {
			continue // all who are there would move, if not others besides
		}
		fits := false
		emptied := b.packer.Drain(g, func(jobs []int) bool {
			fits = true
			return len(jobs) <= budget && b.pays(g, jobs)
		})
		stuck[key] = key != "" && !fits
		for _, job := range emptied {
			to := b.packer.GPUsOf(job)
			moves = append(moves, Move{b.jobs[job].ID, slices.Clone(b.jobs[job].On), indexes(to)})
			b.on[job] = to
		}
		if budget -= len(emptied); len(emptied) > 0 {
			return moves // one at a time: what is next is seen when this is done
		}
	}
	return moves
}

// likeness is the same for GPUs that are as hard to empty as each other; "" where a gang is there, for which others matter.
func (b *board) likeness(g cluster.GPU, there []int) string {
	asks := []int32{b.packer.Spot(g)}
	for _, job := range there {
		if b.workers(job) > 1 {
			return ""
		}
		asks = append(asks, b.packer.Ask(job))
	}
	slices.Sort(asks[1:])
	return fmt.Sprint(asks)
}

// there are the jobs on a GPU.
func (b *board) there(g cluster.GPU) []int {
	var jobs []int
	for _, w := range b.packer.Residents(g) {
		jobs = append(jobs, b.problem.Job(w))
	}
	return jobs
}

// leastFilled are the GPUs in use that are open, those with the fewest residents first.
func (b *board) leastFilled() []cluster.GPU {
	var gpus []cluster.GPU
	for g := range cluster.GPU(len(b.s.GPUs)) {
		if len(b.packer.Residents(g)) > 0 && b.s.GPUs[g].Closed == "" {
			gpus = append(gpus, g)
		}
	}
	slices.SortStableFunc(gpus, func(x, y cluster.GPU) int {
		return cmp.Compare(len(b.packer.Residents(x)), len(b.packer.Residents(y)))
	})
	return gpus
}

// pays weighs the GPU time that emptying a GPU saves against what it costs.
func (b *board) pays(gpu cluster.GPU, jobs []int) bool {
	saved, cost := time.Duration(0), time.Duration(0)
	for _, job := range jobs {
		j := b.jobs[job]
		if !movable(j) || b.s.Now.Sub(j.Started) < leastStay || ahead(j) < j.Pause {
			return false
		}
		if slices.Contains(b.on[job], gpu) {
			saved = max(saved, remaining(j))
		}
		cost += j.Pause * time.Duration(len(j.On))
	}
	return saved >= worthFactor*cost
}

// remaining is how long a job is expected to run on.
func remaining(j *Job) time.Duration {
	if j.MaxTime > 0 {
		return max(0, min(j.Ran, j.MaxTime-j.Ran))
	}
	return j.Ran
}

// ahead is how long a job could stand still now and have run at its floor on average: t (rate/floor - 1) after a time t.
func ahead(j *Job) time.Duration {
	if j.Rate <= 0 || j.Floor <= 0 {
		return 0
	}
	return time.Duration(float64(j.Ran) * (j.Rate/j.Floor - 1))
}
