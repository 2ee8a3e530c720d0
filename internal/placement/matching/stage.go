package matching

// label says what a top-level node is to the alternating forest of the running stage.
type label uint8

const (
	outside label = iota // not reached
	outer                // at even distance from a free vertex: may be matched anew
	inner                // at odd distance
)

// solver runs the primal-dual algorithm. A node is a vertex 0..n-1 or a blossom n.. : an odd ring of nodes whose base
// vertex alone is matched outside it. Duals are doubled, so that all stay integers: an edge has slack
// u[i] + u[j] - 2w >= 0 outside blossoms, and the z of the blossoms that hold it come on top inside.
//
// Invariants between steps: matched edges and those of rings are tight; z > 0 only for blossoms, all of them full; free
// vertices share the least u. The matching is optimal once that u is zero or no vertex is free.
type solver struct {
	g      *graph
	u, z   []int64 // u by vertex, z by node (zero for vertices)
	mate   []int32 // by vertex: the arc to its partner
	top    []int32 // by vertex: the outermost node that holds it
	parent []int32 // by node
	base   []int32 // by node: the vertex that is matched outside it or free
	rings  []ring  // by node, empty for vertices
	unused []int32 // blossom numbers to be had

	labels []label // by node; only those of top-level nodes count
	entry  []int32 // by inner node: the tight arc by which the forest reached it
	// best holds least-slack arcs: of a vertex that is not outer, the one to it from an outer vertex; of an outer
	// top-level node, the one from it to another outer node, where the other did not record it earlier.
	best   []int32
	rivals [][]int32 // by outer blossom: its least-slack arcs, one to each other outer node when it was formed
	queue  []int32   // outer vertices whose arcs are still to be scanned
	tight  []int32   // scratch of adjust
	seen   []bool    // scratch of meet, by node
	near   []int32   // scratch of recordRivals, by node
}

// ring is a blossom's circle of nodes: nodes[0] holds the base, links[i] is an arc from nodes[i] to the next.
type ring struct {
	nodes, links []int32
}

func newSolver(g *graph) *solver {
	nodes := g.n + g.n/2 // blossoms are a laminar family of odd sets: at most (n-1)/2
	s := &solver{
		g: g, u: make([]int64, g.n), z: make([]int64, nodes), mate: make([]int32, g.n), top: make([]int32, g.n),
		parent: make([]int32, nodes), base: make([]int32, nodes), rings: make([]ring, nodes),
		labels: make([]label, nodes), entry: make([]int32, nodes), best: make([]int32, nodes),
		rivals: make([][]int32, nodes), seen: make([]bool, nodes), near: make([]int32, nodes),
	}
	heaviest := int64(0)
	for _, w := range g.weight {
		heaviest = max(heaviest, w)
	}
	for v := range g.n {
		s.u[v], s.mate[v], s.top[v], s.base[v] = heaviest, none, int32(v), int32(v)
	}
	for b := range nodes {
		s.parent[b], s.near[b] = none, none
	}
	for b := nodes - 1; b >= g.n; b-- {
		s.unused = append(s.unused, int32(b))
		s.base[b] = none
	}
	return s
}

func (s *solver) slack(a int32) int64 { return s.u[s.g.tail[a]] + s.u[s.g.head[a]] - 2*s.g.weight[a] }

// stage grows a forest from all free vertices until it finds an augmenting path, and takes it. It reports false when
// the matching is optimal.
func (s *solver) stage() bool {
	roots := s.plant()
	for roots > 0 {
		arc := s.grow()
		if arc == none {
			var more bool
			if arc, more = s.adjust(); !more {
				return false
			}
		}
		if arc != none {
			s.augment(arc)
			s.dissolve()
			return true
		}
	}
	return false
}

// plant forgets the last forest, makes every node with a free base a root, and counts the roots.
func (s *solver) plant() int {
	s.queue = s.queue[:0]
	for b := range s.labels {
		s.labels[b], s.best[b], s.rivals[b] = outside, none, nil
	}
	roots := 0
	for b, v := range s.base {
		if v != none && s.parent[b] == none && s.mate[v] == none {
			s.markOuter(int32(b))
			roots++
		}
	}
	return roots
}

func (s *solver) markOuter(b int32) {
	s.labels[b], s.best[b] = outer, none
	s.queue = s.appendVertices(s.queue, b)
}

// markInner takes the unreached node at the head of a tight arc into the forest, and its partner with it.
func (s *solver) markInner(a int32) {
	b := s.top[s.g.head[a]]
	s.labels[b], s.entry[b] = inner, a
	if partner := s.top[s.g.head[s.mate[s.base[b]]]]; s.labels[partner] != outer {
		s.markOuter(partner)
	}
}

// grow scans the queue. It returns an arc that joins two trees, or none when no tight arc is left to follow.
func (s *solver) grow() int32 {
	g := s.g
	for len(s.queue) > 0 {
		v := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		for a := g.first[v]; a < g.first[v+1]; a++ {
			w := g.head[a]
			from, to := s.top[v], s.top[w]
			if from == to {
				continue
			}
			slack := s.u[v] + s.u[w] - 2*g.weight[a]
			if slack == 0 && s.labels[to] != inner {
				if s.follow(a) {
					return a
				}
				continue
			}
			record := w
			if s.labels[to] == outer {
				record = from
			}
			if old := s.best[record]; old == none || slack < s.slack(old) {
				s.best[record] = a
			}
		}
	}
	return none
}

// follow extends the forest along a tight arc from an outer node. It reports whether the arc joins two trees.
func (s *solver) follow(a int32) bool {
	from, to := s.top[s.g.tail[a]], s.top[s.g.head[a]]
	switch {
	case from == to || s.labels[to] == inner:
		return false
	case s.labels[to] == outside:
		s.markInner(a)
		return false
	}
	root := s.meet(from, to)
	if root == none {
		return true
	}
	s.shrink(root, a)
	return false
}

// meet is the first common outer node on the two paths to the roots, or none when the roots differ.
func (s *solver) meet(from, to int32) int32 {
	var path []int32
	found := none
	for from != none {
		if s.seen[from] {
			found = from
			break
		}
		s.seen[from] = true
		path = append(path, from)
		from = s.above(from)
		if to != none {
			from, to = to, from
		}
	}
	for _, b := range path {
		s.seen[b] = false
	}
	return found
}

// above is the outer node two steps nearer the root, or none for a root.
func (s *solver) above(b int32) int32 {
	a := s.mate[s.base[b]]
	if a == none {
		return none
	}
	return s.top[s.g.tail[s.entry[s.top[s.g.head[a]]]]]
}
