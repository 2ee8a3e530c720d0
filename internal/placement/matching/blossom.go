package matching

import "slices"

// appendVertices appends the vertices inside a node, in ring order.
func (s *solver) appendVertices(list []int32, b int32) []int32 {
	if int(b) < s.g.n {
		return append(list, b)
	}
	for _, c := range s.rings[b].nodes {
		list = s.appendVertices(list, c)
	}
	return list
}

// shrink makes a blossom of the circle that a tight arc between two outer nodes of one tree closes through root.
func (s *solver) shrink(root, a int32) {
	g := s.g
	var nodes, links []int32
	// From the arc's tail up to the root, and turned round: the ring starts at the root.
	for b := s.top[g.tail[a]]; b != root; b = s.above(b) {
		up := s.mate[s.base[b]]
		across := s.top[g.head[up]]
		nodes = append(nodes, b, across)
		links = append(links, g.back[up], s.entry[across])
	}
	nodes = append(nodes, root)
	slices.Reverse(nodes)
	slices.Reverse(links)
	links = append(links, a)
	for b := s.top[g.head[a]]; b != root; b = s.above(b) {
		up := s.mate[s.base[b]]
		across := s.top[g.head[up]]
		nodes = append(nodes, b, across)
		links = append(links, up, g.back[s.entry[across]])
	}
	b := s.unused[len(s.unused)-1]
	s.unused = s.unused[:len(s.unused)-1]
	s.rings[b] = ring{nodes, links}
	s.base[b], s.parent[b], s.z[b], s.labels[b] = s.base[root], none, 0, outer
	for _, c := range nodes {
		if s.labels[c] == inner { // its vertices become outer, and are scanned for the first time
			s.queue = s.appendVertices(s.queue, c)
		}
	}
	for _, c := range nodes {
		s.parent[c] = b
	}
	for _, v := range s.appendVertices(nil, b) {
		s.top[v] = b
	}
	s.recordRivals(b)
}

// recordRivals finds the least-slack arcs from a new blossom to every other outer node, from the lists of its parts
// where they have one and from all their arcs otherwise. Every vertex is read in full at most once a stage.
func (s *solver) recordRivals(b int32) {
	var met []int32
	offer := func(a int32) {
		to := s.top[s.g.head[a]]
		if to == b || s.labels[to] != outer {
			return
		}
		if old := s.near[to]; old == none {
			met = append(met, to)
			s.near[to] = a
		} else if s.slack(a) < s.slack(old) {
			s.near[to] = a
		}
	}
	for _, c := range s.rings[b].nodes {
		if s.rivals[c] != nil {
			for _, a := range s.rivals[c] {
				offer(a)
			}
			s.rivals[c] = nil
			continue
		}
		for _, v := range s.appendVertices(nil, c) {
			for a := s.g.first[v]; a < s.g.first[v+1]; a++ {
				offer(a)
			}
		}
	}
	s.best[b] = none
	s.rivals[b] = make([]int32, 0, len(met))
	for _, to := range met {
		a := s.near[to]
		s.near[to] = none
		s.rivals[b] = append(s.rivals[b], a)
		if s.best[b] == none || s.slack(a) < s.slack(s.best[b]) {
			s.best[b] = a
		}
	}
}

// release takes a top-level blossom apart: the nodes of its ring become top-level.
func (s *solver) release(b int32) ring {
	r := s.rings[b]
	for _, c := range r.nodes {
		s.parent[c] = none
		for _, v := range s.appendVertices(nil, c) {
			s.top[v] = c
		}
	}
	s.rings[b], s.base[b], s.labels[b], s.best[b] = ring{}, none, outside, none
	s.unused = append(s.unused, b)
	return r
}

// dissolve releases, after a stage, the outer blossoms whose dual is zero, and those inside them.
func (s *solver) dissolve() {
	for b := s.g.n; b < len(s.base); b++ {
		if s.base[b] != none && s.parent[b] == none && s.labels[b] == outer && s.z[b] == 0 {
			s.dissolveAll(int32(b))
		}
	}
}

func (s *solver) dissolveAll(b int32) {
	for _, c := range s.release(b).nodes {
		if int(c) >= s.g.n && s.z[c] == 0 {
			s.dissolveAll(c)
		}
	}
}

// open releases an inner blossom within a stage. The even way round its ring, from where the forest entered to its
// base, stays in the forest; the other nodes leave it.
func (s *solver) open(b int32) {
	enter := s.entry[b]
	r := s.release(b)
	for _, c := range r.nodes {
		s.labels[c] = outside
	}
	size := len(r.nodes)
	i := slices.Index(r.nodes, s.top[s.g.head[enter]])
	s.markInner(enter) // marks the next node on the way, its partner, outer
	for i != 0 {
		if i%2 == 0 {
			s.markInner(s.g.back[r.links[i-2]])
			i -= 2
		} else {
			s.markInner(r.links[i+1])
			i = (i + 2) % size
		}
	}
}

// rebase turns the matching inside a node round so that v becomes its base.
func (s *solver) rebase(b, v int32) {
	if int(b) < s.g.n {
		return
	}
	r := &s.rings[b]
	child := v
	for s.parent[child] != b {
		child = s.parent[child]
	}
	s.rebase(child, v)
	start := slices.Index(r.nodes, child)
	size := len(r.nodes)
	for i := start; i != 0; {
		var link int32
		if i%2 == 0 {
			link = r.links[i-2]
			i -= 2
		} else {
			link = r.links[i+1]
			i = (i + 2) % size
		}
		s.match(link, b)
	}
	r.nodes = slices.Concat(r.nodes[start:], r.nodes[:start])
	r.links = slices.Concat(r.links[start:], r.links[:start])
	s.base[b] = v
}

// match matches the ends of an arc between two nodes of the ring of b.
func (s *solver) match(a, b int32) {
	for _, half := range [2]int32{a, s.g.back[a]} {
		v := s.g.tail[half]
		child := v
		for s.parent[child] != b {
			child = s.parent[child]
		}
		s.rebase(child, v)
		s.mate[v] = half
	}
}

// augment flips the path that an arc between two trees completes: from root to root.
func (s *solver) augment(arc int32) {
	for _, a := range [2]int32{arc, s.g.back[arc]} {
		for {
			v := s.g.tail[a]
			b := s.top[v]
			up := s.mate[s.base[b]]
			s.rebase(b, v)
			s.mate[v] = a
			if up == none {
				break
			}
			across := s.top[s.g.head[up]]
			a = s.entry[across]
			w := s.g.head[a]
			s.rebase(across, w)
			s.mate[w] = s.g.back[a]
		}
	}
}
