package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// maxCached bounds the scores kept, 8 bytes each: 32 MiB. A log of jobs that are all different would otherwise keep
// one score per job and node. When it is full, all are worked out anew.
const maxCached = 4 << 20

// label checks the labels, or makes them, and sorts the nodes by size and label.
func (p *Scored) label(labels []int) error {
	p.labels = slices.Clone(labels)
	if labels == nil {
		p.labels = make([]int, len(p.nodes))
		for i := range p.labels {
			p.labels[i] = i
		}
	}
	sorted := slices.Sorted(slices.Values(p.labels))
	for i, l := range sorted {
		if i != l || len(sorted) != len(p.nodes) {
			return fmt.Errorf("the %d labels of %d nodes are not each number from 0 once", len(sorted), len(p.nodes))
		}
	}
	p.order = make([]int32, len(p.nodes))
	for i := range p.order {
		p.order[i] = int32(i)
	}
	slices.SortFunc(p.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(len(p.nodes[b].left), len(p.nodes[a].left)), cmp.Compare(p.labels[a], p.labels[b]))
	})
	return nil
}

// changed notes that a node's free resources are not what they were.
func (p *Scored) changed(node int) {
	p.recent[p.changes%uint64(len(p.recent))] = int32(node)
	p.changes++
}

// best is the node with the highest key, or -1 when none fits. Nodes in barred are left out.
func (p *Scored) best(s *podShape, barred []Slot) int {
	p.refresh(s)
	best, node := int64(nodeUnfit), -1
	for i, key := range s.keys {
		if key > best && !isBarred(barred, i) {
			best, node = key, i
		}
	}
	if node < 0 || p.picker == nil {
		return node
	}
	return p.pickBest(s, barred, best>>32)
}

// pickBest is one of the nodes of a score, as the rule draws.
func (p *Scored) pickBest(s *podShape, barred []Slot, score int64) int {
	p.equal = p.equal[:0]
	for i, key := range s.keys {
		if key != nodeUnfit && key>>32 == score && !isBarred(barred, i) {
			p.equal = append(p.equal, i)
		}
	}
	return p.equal[p.picker.pick(len(p.equal))]
}

func isBarred(barred []Slot, node int) bool {
	return len(barred) > 0 && slices.ContainsFunc(barred, func(s Slot) bool { return int(s.Node) == node })
}

// refresh brings the keys of a shape up to date with every change of a node since it was last asked for.
func (p *Scored) refresh(s *podShape) {
	if s.keys == nil {
		p.allocate(s)
	} else if p.changes-s.seen <= uint64(len(p.recent)) {
		p.stamp++
		for ; s.seen < p.changes; s.seen++ {
			node := p.recent[s.seen%uint64(len(p.recent))]
			if p.stamps[node] != p.stamp {
				p.stamps[node] = p.stamp
				s.keys[node] = p.key(s, int(node))
			}
		}
		return
	}
	for i := range s.keys {
		s.keys[i] = p.key(s, i)
	}
	s.seen = p.changes
}

func (p *Scored) allocate(s *podShape) {
	if p.cached+len(p.nodes) > p.budget {
		for _, other := range p.table.shapes {
			other.keys = nil
		}
		p.cached = 0
	}
	p.cached += len(p.nodes)
	s.keys = make([]int64, len(p.nodes))
}

// nodeUnfit is the key of a node that cannot hold the pod.
const nodeUnfit = math.MinInt64

// key orders the nodes for a shape: by score, then the smallest label first. The score is in the upper 32 bits.
func (p *Scored) key(s *podShape, node int) int64 {
	if !p.nodes[node].fits(s) {
		return nodeUnfit
	}
	return int64(p.rule.score(&p.nodes[node], s))<<32 | int64(len(p.nodes)-p.labels[node])
}
