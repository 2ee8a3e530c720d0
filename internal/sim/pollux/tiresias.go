package pollux

import "slices"

// demoteAt is the GPU-seconds at which a job leaves the first queue: 16 hours of one GPU, a figure of the published
// simulator.
const demoteAt = 16 * 3600

// tiresias is the least-attained-service policy of the Pollux paper's comparison: two queues, demotion only.
type tiresias struct {
	queues      [2][]*job
	free        []int // GPUs free in each node
	gpusPerNode int
}

func newTiresias(nodes, gpusPerNode int) *tiresias {
	return &tiresias{free: make([]int, nodes), gpusPerNode: gpusPerNode}
}

func (p *tiresias) arrive(j *job) { p.queues[0] = append(p.queues[0], j) }

// schedule decides at now who runs until the next round. The jobs that ran since the previous one did so for
// elapsed seconds.
func (p *tiresias) schedule(now, elapsed float64) error {
	p.update(elapsed)
	chosen := p.choose()
	for i := range p.free {
		p.free[i] = p.gpusPerNode
	}
	for _, j := range chosen {
		for i, n := range j.nodes {
			p.free[n] -= j.groups[i]
		}
	}
	for _, j := range chosen {
		if !j.allocated() {
			if err := p.place(now, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// update drops the jobs that ended, counts the time of those that run, and demotes.
func (p *tiresias) update(elapsed float64) {
	for q := range p.queues {
		p.queues[q] = slices.DeleteFunc(p.queues[q], func(j *job) bool { return j.done })
		for _, j := range p.queues[q] {
			if j.allocated() {
				j.attained += elapsed
			}
		}
	}
	due := func(j *job) bool { return j.attained*float64(j.row.Replicas) >= demoteAt }
	for _, j := range p.queues[0] {
		if due(j) {
			p.queues[1] = append(p.queues[1], j)
		}
	}
	p.queues[0] = slices.DeleteFunc(p.queues[0], due)
}

// choose goes through the queues and takes each job that the GPUs still left can hold. The others lose theirs.
func (p *tiresias) choose() []*job {
	left := len(p.free) * p.gpusPerNode
	var chosen []*job
	for _, queue := range p.queues {
		for _, j := range queue {
			switch {
			case j.row.Replicas <= left:
				left -= j.row.Replicas
				chosen = append(chosen, j)
			case j.allocated():
				j.nodes, j.groups = nil, nil
				j.preemptions++
			}
		}
	}
	return chosen
}

// place puts a job on the node with most free GPUs, lowest first, then the next, until it has all it needs.
func (p *tiresias) place(now float64, j *job) error {
	var nodes, groups []int
	for need := j.row.Replicas; need > 0; {
		n := slices.Index(p.free, slices.Max(p.free))
		got := min(p.free[n], need)
		p.free[n] -= got
		need -= got
		nodes, groups = append(nodes, n), append(groups, got)
	}
	return j.allocate(now, nodes, groups)
}
