package policy

// placeSpanning places a job with more workers than any of its nodes has GPUs: see Scored.
func (p *Scored) placeSpanning(s *podShape) ([]Slot, bool) {
	remaining := p.wholeNodes(p.nodes, s)
	rest := -1
	if remaining > 0 {
		if remaining <= s.runsOn.most {
			rest = p.best(p.table.intern(s.part(remaining)), p.whole)
		}
		if rest < 0 {
			s.refused = p.releases + 1
			return nil, false
		}
	}
	slots := make([]Slot, 0, s.workers)
	for _, whole := range p.whole {
		slots = p.take(slots, p.table.intern(s.part(len(p.nodes[whole.Node].left))), int(whole.Node))
	}
	if rest >= 0 {
		slots = p.take(slots, p.table.intern(s.part(remaining)), rest)
	}
	return slots, true
}

// wholeNodes sets p.whole to the nodes that a spanning job takes all of, and tells how many workers remain.
func (p *Scored) wholeNodes(nodes []nodeFree, s *podShape) int {
	p.whole = p.whole[:0]
	remaining := s.workers
	for _, node := range p.order {
		n := &nodes[node]
		if k := len(n.left); k > 0 && k <= remaining && n.wholly() && n.fits(p.table.intern(s.part(k))) {
			p.whole = append(p.whole, Slot{Node: node})
			remaining -= k
		}
	}
	return remaining
}
