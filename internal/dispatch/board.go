package dispatch

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// board is a state with its running jobs on their GPUs. Jobs are numbered in order of their IDs.
type board struct {
	s       *State
	o       Options
	jobs    []*Job
	on      [][]cluster.GPU // of each job that runs
	number  map[box.ID]int
	free    []unit.Bytes // of each GPU: usable and not held by foreign programs
	largest unit.Bytes   // usable memory of the largest GPU
	problem *placement.Problem
	packer  *placement.Packer // nil where there is no GPU
	sorts   sorts
}

// newBoard sets up a state; waiting says whether the jobs that wait are of interest.
func newBoard(s *State, waiting bool) *board {
	b := &board{s: s, o: s.Options, number: map[box.ID]int{}}
	b.o.MaxResidents = min(cmp.Or(b.o.MaxResidents, defaultResidents), placement.MaxMaxResidents)
	b.o.Grace = cmp.Or(b.o.Grace, defaultGrace)
	for i := range s.Jobs {
		if j := &s.Jobs[i]; len(j.On) > 0 || waiting {
			b.jobs = append(b.jobs, j)
		}
	}
	slices.SortFunc(b.jobs, func(x, y *Job) int { return cmp.Compare(x.ID, y.ID) })
	for i := range s.GPUs {
		b.largest = max(b.largest, s.GPUs[i].Usable)
		b.free = append(b.free, max(0, s.GPUs[i].Usable-min(s.GPUs[i].Foreign, s.GPUs[i].Usable)))
	}
	b.pose()
	return b
}

// pose makes the problem and puts those who run where they run.
func (b *board) pose() {
	jobs, profiles := make([]cluster.Job, len(b.jobs)), make([]profile.Profile, len(b.jobs))
	b.on = make([][]cluster.GPU, len(b.jobs))
	for i, j := range b.jobs {
		b.number[j.ID] = i
		b.on[i] = b.places(j)
		workers := min(max(1, j.GPUs), len(b.s.GPUs)+1) // one more than there are is too many, however many they are
		if len(j.On) > 0 {
			workers = len(b.on[i])
		}
		jobs[i] = cluster.Job{Model: j.Config.Model, Batch: j.Config.Batch, Workers: workers, Floor: j.Floor, Class: j.Class}
		profiles[i] = memoryOf(j)
	}
	o := placement.Options{GPUMemory: max(1, b.largest), MaxResidents: b.o.MaxResidents, Epsilon: b.o.Epsilon, Apart: b.apart()}
	b.problem = placement.NewProblem(jobs, b.s.Table, profiles, o)
	if len(b.s.GPUs) == 0 {
		return
	}
	b.sort()
	node := make([]int, len(b.s.GPUs))
	for g := range node {
		node[g] = b.node(cluster.GPU(g))
	}
	b.packer = placement.NewPackerOn(b.problem, placement.GPUs{Memory: b.free, Node: node, Together: b.sorts.together, Bar: b.bar,
		Sort: b.sorts.ofGPU, Ask: b.sorts.ofJob, Handover: true, Spread: b.o.Spread})
	for i := range b.jobs {
		b.packer.Reside(i, b.on[i])
	}
}

// places are the GPUs of a job that runs, without those that are no more.
func (b *board) places(j *Job) []cluster.GPU {
	var on []cluster.GPU
	for _, g := range j.On {
		if g >= 0 && g < len(b.s.GPUs) && !slices.Contains(on, cluster.GPU(g)) {
			on = append(on, cluster.GPU(g))
		}
	}
	return on
}

// memoryOf is what a job is counted at.
func memoryOf(j *Job) profile.Profile {
	if j.Cooperates {
		return j.Memory
	}
	return j.Memory.AtPeak()
}

// apart are the bans in force, by the numbers of the table; nil for none.
func (b *board) apart() func(i, l int) bool {
	var pairs map[[2]int]bool
	for _, ban := range b.s.Bans {
		if b.s.Table == nil || !ban.Until.After(b.s.Now) {
			continue
		}
		i, known := b.s.Table.Lookup(ban.A)
		l, also := b.s.Table.Lookup(ban.B)
		if known && also {
			if pairs == nil {
				pairs = map[[2]int]bool{}
			}
			pairs[[2]int{min(i, l), max(i, l)}] = true
		}
	}
	if pairs == nil {
		return nil
	}
	return func(i, l int) bool { return pairs[[2]int{min(i, l), max(i, l)}] }
}

// runs says whether a job has GPUs.
func (b *board) runs(job int) bool { return len(b.jobs[job].On) > 0 }

// workers is the size of a job's gang.
func (b *board) workers(job int) int { return b.problem.Jobs()[job].Workers }

// end is when a job that runs, or starts now, has ended at the latest; false when nothing limits it.
func (b *board) end(job int) (time.Time, bool) {
	j := b.jobs[job]
	switch {
	case j.Stopping:
		return b.s.Now.Add(b.o.Grace), true
	case j.MaxTime <= 0:
		return time.Time{}, false
	}
	return b.s.Now.Add(max(0, j.MaxTime-j.Ran) + b.o.Grace), true
}

// indexes are GPUs as others number them.
func indexes(gpus []cluster.GPU) []int {
	list := make([]int, len(gpus))
	for i, g := range gpus {
		list[i] = int(g)
	}
	return list
}
