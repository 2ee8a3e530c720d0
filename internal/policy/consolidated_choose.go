package policy

import "weft.dev/weft/internal/unit"

// choosePartly appends up to one slot per worker on partly used GPUs with room for the job's share: the least
// sufficient first, lowest index on ties. No GPU twice.
func (p *Consolidated) choosePartly(w *consolidatedWant, j *consolidatedJob, slots []Slot) []Slot {
	for left := int(j.share); left < int(unit.WholeGPU); left++ {
		for gpu := p.nextPartly(w, left, 0); gpu >= 0; gpu = p.nextPartly(w, left, gpu+1) {
			node := p.owner[gpu]
			slots = append(slots, Slot{Node: node, GPU: int32(gpu) - p.nodes[node].first})
			if len(slots) == int(j.workers) {
				return slots
			}
		}
	}
	return slots
}

// chooseFree appends g slots on wholly free GPUs by the rule of Consolidated, or reports false.
func (p *Consolidated) chooseFree(w *consolidatedWant, g int, slots []Slot) ([]Slot, bool) {
	if g <= w.largest {
		for free := g; free <= w.largest; free++ {
			if node := p.nextFree(w, free, 0); node >= 0 {
				return p.pick(node, g, slots), true
			}
		}
		return slots, false
	}
	for free := w.largest; free > 0; free-- {
		if free < g && !w.sizes[free] {
			continue // nodes with so much left are partly used, and none has what is missing
		}
		for node := p.nextFree(w, free, 0); node >= 0; node = p.nextFree(w, free, node+1) {
			if free >= g {
				return p.pick(node, g, slots), true
			}
			if int(p.nodes[node].gpus) == free {
				slots = p.pick(node, free, slots)
				g -= free
			}
		}
	}
	return slots, false
}

// pick appends the g lowest wholly free GPUs of a node.
func (p *Consolidated) pick(node, g int, slots []Slot) []Slot {
	n := &p.nodes[node]
	for gpu := int32(0); g > 0; gpu++ {
		if p.left[n.first+gpu] == unit.WholeGPU {
			slots = append(slots, Slot{Node: int32(node), GPU: gpu})
			g--
		}
	}
	return slots
}

// nextFree is the lowest node >= from with the given number of wholly free GPUs, in any pool of w; -1 for none.
func (p *Consolidated) nextFree(w *consolidatedWant, free, from int) int {
	best := -1
	for _, k := range w.pools {
		if node := p.pools[k].free.next(free, from); node >= 0 && (best < 0 || node < best) {
			best = node
		}
	}
	return best
}

// nextPartly is the lowest GPU >= from with the given share left, in any pool of w; -1 for none.
func (p *Consolidated) nextPartly(w *consolidatedWant, left, from int) int {
	best := -1
	for _, k := range w.pools {
		if gpu := p.pools[k].partly.next(left, from); gpu >= 0 && (best < 0 || gpu < best) {
			best = gpu
		}
	}
	return best
}
