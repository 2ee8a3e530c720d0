package policy

import (
	"fmt"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
)

// Sharing packs jobs onto shared GPUs with the planner's own greedy step: each worker goes to the fullest GPU on
// which every floor holds, and an idle GPU is used only when no other takes it. Where a GPU stands does not matter to
// it: all GPUs of the cluster are one pool.
type Sharing struct {
	packer  *placement.Packer
	problem *placement.Problem
	slots   []Slot          // of each GPU
	first   []int32         // first GPU of each node
	rates   []float64       // of each job when last yielded; 0 while it does not run
	touched []int           // jobs whose rate may have changed since
	gpus    [][]cluster.GPU // of each running job
	truth   truth
	rateOf  func(job int) float64
	choose  func(job int) ([]cluster.GPU, bool) // a GPU for each worker, in place of the greedy step; nil for that
	changed func(cluster.GPU)                   // told of every GPU whose residents changed; nil for none
}

// NewSharing makes a Sharing placer for the jobs of a problem on a cluster.
func NewSharing(p *placement.Problem, c cluster.Cluster) *Sharing {
	s := &Sharing{problem: p, rates: make([]float64, len(p.Jobs())), gpus: make([][]cluster.GPU, len(p.Jobs()))}
	for n, node := range c.Nodes {
		s.first = append(s.first, int32(len(s.slots)))
		for g := range node.GPUs {
			s.slots = append(s.slots, Slot{Node: int32(n), GPU: int32(g)})
		}
	}
	s.packer = placement.NewPacker(p, len(s.slots))
	s.rateOf = s.packer.Rate
	return s
}

// Fits implements Fitter.
func (s *Sharing) Fits(job int) (reason string, ok bool) {
	if n := s.problem.Jobs()[job].Workers; n > len(s.slots) {
		return fmt.Sprintf("gang of %d, cluster has %d", n, len(s.slots)), false
	}
	if s.problem.TooLarge(job) {
		return "TooLarge: fits no GPU", false
	}
	return "", true
}

// Place implements Placer.
func (s *Sharing) Place(job int) ([]Slot, bool) {
	gpus, ok := s.add(job)
	if !ok {
		return nil, false
	}
	s.gpus[job] = gpus
	s.touch(job, gpus)
	return s.slotsOf(gpus), true
}

func (s *Sharing) add(job int) ([]cluster.GPU, bool) {
	if s.choose == nil {
		gpus, r := s.packer.Add(job)
		return gpus, !r.Refused()
	}
	gpus, ok := s.choose(job)
	return gpus, ok && s.packer.AddAt(job, gpus)
}

func (s *Sharing) slotsOf(gpus []cluster.GPU) []Slot {
	slots := make([]Slot, len(gpus))
	for i, g := range gpus {
		slots[i] = s.slots[g]
	}
	return slots
}

// Retake implements Retaker.
func (s *Sharing) Retake(job int, slots []Slot) bool {
	gpus := make([]cluster.GPU, len(slots))
	for i, slot := range slots {
		gpus[i] = cluster.GPU(s.first[slot.Node] + slot.GPU)
	}
	if !s.packer.AddAt(job, gpus) {
		return false
	}
	s.gpus[job] = gpus
	s.touch(job, gpus)
	return true
}

// Release implements Placer.
func (s *Sharing) Release(job int, _ []Slot) {
	gpus := s.gpus[job]
	s.packer.Remove(job)
	s.gpus[job], s.rates[job] = nil, 0
	s.touch(job, gpus)
}

// relocated takes note of where a job is now. It starts anew at its own speed until told otherwise.
func (s *Sharing) relocated(job int) []Slot {
	s.touch(job, s.gpus[job])
	s.gpus[job] = s.packer.GPUsOf(job)
	s.touch(job, s.gpus[job])
	s.rates[job] = 1
	return s.slotsOf(s.gpus[job])
}

// touch notes every job on the GPUs, and the job itself while it runs.
func (s *Sharing) touch(job int, gpus []cluster.GPU) {
	if s.gpus[job] != nil {
		s.touched = append(s.touched, job)
	}
	for _, g := range gpus {
		for _, w := range s.packer.Residents(g) {
			s.touched = append(s.touched, s.problem.Job(w))
		}
		if s.changed != nil {
			s.changed(g)
		}
	}
}

// Rates implements Rater.
func (s *Sharing) Rates(yield func(job int, rate float64)) {
	slices.Sort(s.touched)
	for _, job := range slices.Compact(s.touched) {
		if s.gpus[job] == nil {
			continue
		}
		if rate := s.rateOf(job); rate != s.rates[job] {
			s.rates[job] = rate
			yield(job, rate)
		}
	}
	s.touched = s.touched[:0]
}
