package matching

// none stands for no arc, no node, no parent.
const none = int32(-1)

// graph holds every edge as two opposite arcs, those of one tail side by side: the arcs that leave v are
// first[v]..first[v+1]-1, by head.
type graph struct {
	n                int
	first            []int32
	tail, head, back []int32 // back is the opposite arc
	weight           []int64
}

// newGraph builds the graph of canonical edges.
func newGraph(n int, edges []Edge) *graph {
	arcs := 2 * len(edges)
	g := &graph{
		n: n, first: make([]int32, n+1), weight: make([]int64, arcs),
		tail: make([]int32, arcs), head: make([]int32, arcs), back: make([]int32, arcs),
	}
	for _, e := range edges {
		g.first[e.U+1]++
		g.first[e.V+1]++
	}
	for v := range n {
		g.first[v+1] += g.first[v]
	}
	next := make([]int32, n)
	copy(next, g.first)
	for i, w := range weights(n, edges) {
		u, v := int32(edges[i].U), int32(edges[i].V)
		a, b := next[u], next[v]
		next[u]++
		next[v]++
		g.tail[a], g.head[a], g.back[a], g.weight[a] = u, v, b, w
		g.tail[b], g.head[b], g.back[b], g.weight[b] = v, u, a, w
	}
	return g
}
