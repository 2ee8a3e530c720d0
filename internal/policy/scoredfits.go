package policy

import (
	"fmt"
	"iter"
)

// Fits implements Fitter. O(nodes).
func (p *Scored) Fits(job int) (string, bool) {
	s := p.shapes[job]
	remaining := s.workers
	p.whole = p.whole[:0]
	if s.spans() {
		remaining = p.wholeNodes(p.empty, s)
		if remaining == 0 {
			return "", true
		}
	}
	rest := p.table.intern(s.part(remaining))
	for i := range p.empty {
		if p.empty[i].fits(rest) && !isBarred(p.whole, i) {
			return "", true
		}
	}
	return p.misfit(s), false
}

// misfit says why the empty cluster cannot hold a job.
func (p *Scored) misfit(s *podShape) string {
	gpus := 0
	for i := range p.empty {
		if s.runsOn.kinds[p.empty[i].kind] {
			gpus += len(p.empty[i].left)
		}
	}
	switch {
	case s.workers > gpus && s.runsOn.models != "":
		return fmt.Sprintf("gang of %d, cluster has %d GPUs of model %s with enough memory", s.workers, gpus, s.runsOn.models)
	case s.workers > gpus:
		return fmt.Sprintf("gang of %d, cluster has %d GPUs with enough memory", s.workers, gpus)
	case s.spans():
		return fmt.Sprintf("gang of %d does not divide into whole nodes and a part of one, with %d milliCPU and %s of memory",
			s.workers, s.cpu, s.memory)
	}
	return fmt.Sprintf("no node has %d GPUs, %d milliCPU and %s of memory together", s.workers, s.cpu, s.memory)
}

// Retake implements Retaker. A job without GPUs returns to the node it was last on. O(slots).
func (p *Scored) Retake(job int, slots []Slot) bool {
	s := p.shapes[job]
	if node, known := p.onNode[job]; s.workers == 0 && (!known || node >= 0) || len(slots) != s.workers {
		return false
	}
	for part := range p.parts(job, slots) {
		if n := &p.nodes[part.node]; !n.fits(part.shape) || !n.hasRoom(part.shape.share, part.gpus) {
			return false
		}
	}
	for part := range p.parts(job, slots) {
		p.nodes[part.node].take(part.shape, part.gpus)
		p.changed(part.node)
	}
	if s.workers == 0 {
		p.onNode[job] = ^p.onNode[job]
	}
	return true
}

// scoredPart is what a job has on one node. It is valid until the next one.
type scoredPart struct {
	shape *podShape
	node  int
	gpus  []int32
}

// parts divides the slots that Place returned by node. A job without GPUs has one part, where it is or was.
func (p *Scored) parts(job int, slots []Slot) iter.Seq[scoredPart] {
	s := p.shapes[job]
	return func(yield func(scoredPart) bool) {
		if s.workers == 0 {
			node := int(p.onNode[job])
			yield(scoredPart{s, max(node, ^node), nil})
			return
		}
		for len(slots) > 0 {
			node := slots[0].Node
			p.pick = p.pick[:0]
			for len(slots) > 0 && slots[0].Node == node {
				p.pick = append(p.pick, slots[0].GPU)
				slots = slots[1:]
			}
			if !yield(scoredPart{p.table.intern(s.part(len(p.pick))), int(node), p.pick}) {
				return
			}
		}
	}
}
