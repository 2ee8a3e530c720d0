package matching

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bruteForce is the size and least cost of a maximum matching, by trying every subset of vertices.
func bruteForce(n int, edges []Edge) (size int, cost float64) {
	type result struct {
		size int
		cost float64
	}
	memo := map[uint]result{}
	var best func(left uint) result
	best = func(left uint) result {
		if left == 0 {
			return result{}
		}
		if r, ok := memo[left]; ok {
			return r
		}
		v := 0
		for left>>v&1 == 0 {
			v++
		}
		r := best(left &^ (1 << v))
		for _, e := range edges {
			u, w := e.U, e.V
			if w == v {
				u, w = w, u
			}
			if u != v || w == v || left>>w&1 == 0 {
				continue
			}
			q := best(left &^ (1 << v) &^ (1 << w))
			q = result{q.size + 1, q.cost + e.Cost}
			if q.size > r.size || q.size == r.size && q.cost < r.cost {
				r = q
			}
		}
		memo[left] = r
		return r
	}
	r := best(1<<n - 1)
	return r.size, r.cost
}

// measure checks that mate is a matching of the graph and returns its size and cost.
func measure(t rapid.TB, n int, edges []Edge, mate []int) (size int, cost float64) {
	t.Helper()
	if len(mate) != n {
		t.Fatalf("%d entries for %d vertices", len(mate), n)
	}
	cheapest := map[[2]int]float64{}
	for _, e := range edges {
		key := [2]int{min(e.U, e.V), max(e.U, e.V)}
		if old, ok := cheapest[key]; !ok || e.Cost < old {
			cheapest[key] = e.Cost
		}
	}
	for v, w := range mate {
		if w == -1 {
			continue
		}
		if w == v || mate[w] != v {
			t.Fatalf("vertex %d is matched to %d, which is matched to %d", v, w, mate[w])
		}
		if v < w {
			c, ok := cheapest[[2]int{v, w}]
			if !ok {
				t.Fatalf("matched %d-%d, which is no edge", v, w)
			}
			size++
			cost += c
		}
	}
	return size, cost
}

// certify solves and proves the result optimal by the duals alone: for any matching M', its weight is at most the sum
// of all u plus (|B|-1)/2 z over blossoms B (in doubled units halved), and that sum is reached.
func certify(t rapid.TB, n int, edges []Edge) (size int, cost float64, nested int) {
	t.Helper()
	s := newSolver(newGraph(n, canonical(n, edges)))
	for s.stage() {
	}
	total := int64(0)
	for v, u := range s.u {
		if u < 0 || s.mate[v] == none && u != 0 {
			t.Fatalf("vertex %d: dual %d, mate %d", v, u, s.mate[v])
		}
		total += u
	}
	for b := n; b < len(s.base); b++ {
		if s.base[b] == none {
			continue
		}
		members := s.appendVertices(nil, int32(b))
		inside := 0
		for _, v := range members {
			if a := s.mate[v]; a != none && slices.Contains(members, s.g.head[a]) {
				inside++
			}
		}
		if s.z[b] < 0 || len(members)%2 == 0 || s.z[b] > 0 && inside != len(members)-1 {
			t.Fatalf("blossom %d: dual %d, %d members, %d of them matched inside", b, s.z[b], len(members), inside)
		}
		if s.parent[b] != none {
			nested++
		}
		total += s.z[b] * int64(len(members)-1) / 2
	}
	weight := int64(0)
	for a := range s.g.head {
		slack := s.slack(int32(a))
		for x := s.g.tail[a]; x != none; x = s.parent[x] {
			if slices.Contains(s.appendVertices(nil, x), s.g.head[a]) {
				slack += s.z[x]
			}
		}
		if slack < 0 {
			t.Fatalf("edge %d-%d: slack %d", s.g.tail[a], s.g.head[a], slack)
		}
		if s.mate[s.g.tail[a]] == int32(a) {
			weight += s.g.weight[a] // both arcs: doubled, as the duals are
		}
	}
	if weight != total {
		t.Fatalf("matching weighs %d, the duals %d", weight, total)
	}
	size, cost = measure(t, n, edges, Maximum(n, edges))
	return size, cost, nested
}

// drawGraph draws sizes and densities, and the edges from a seed: lists drawn by rapid come out short, the graphs sparse.
func drawGraph(t *rapid.T, most int) (int, []Edge) {
	n := most - rapid.IntRange(0, most).Draw(t, "vertices left out")
	density := rapid.SampledFrom([]float64{0.1, 0.2, 0.4, 0.7, 1}).Draw(t, "density")
	distinct := rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "distinct costs")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	var edges []Edge
	for u := range n {
		for v := range n { // loops and parallel edges too
			if rng.Float64() < density {
				edges = append(edges, Edge{u, v, float64(rng.IntN(distinct)) / 8})
			}
		}
	}
	return n, edges
}

func TestMaximumEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, edges := drawGraph(t, 10)
		size, cost, _ := certify(t, n, edges)
		wantSize, wantCost := bruteForce(n, edges)
		if size != wantSize || math.Abs(cost-wantCost) > 1e-9 {
			t.Fatalf("size %d at cost %v, want %d at %v", size, cost, wantSize, wantCost)
		}
	})
}

// Random graphs of many densities, large enough for nested blossoms to form and open; the duals prove each result.
func TestDualsCertifyOptimum(t *testing.T) {
	nested := 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 2 + rng.IntN(90)
		if seed%20 == 0 {
			n = 200
		}
		density := []float64{0.02, 0.05, 0.1, 0.3, 0.8}[seed%5]
		span := []int{0, 2, 100, 1e6}[seed%4]
		var edges []Edge
		for u := range n {
			for v := range u {
				if rng.Float64() < density {
					edges = append(edges, Edge{u, v, float64(rng.IntN(span+1)) / 1000})
				}
			}
		}
		_, _, deep := certify(t, n, edges)
		nested += deep
	}
	if nested == 0 {
		t.Error("no graph left a nested blossom: the test is too easy")
	}
}

// tutteBerge is the size that the Gallai-Edmonds decomposition proves: D are the vertices that some maximum matching
// misses, A their other neighbours; the size is (n - (odd components of G-A - |A|)) / 2.
func tutteBerge(n int, edges []Edge, size int) int {
	in := make([]byte, n)
	for v := range n {
		var without []Edge
		for _, e := range edges {
			if e.U != v && e.V != v {
				without = append(without, e)
			}
		}
		if s, _ := measureSize(n, without); s == size {
			in[v] = 'D'
		}
	}
	removed := 0
	for _, e := range edges {
		for _, p := range [2][2]int{{e.U, e.V}, {e.V, e.U}} {
			if in[p[0]] == 'D' && in[p[1]] == 0 {
				in[p[1]] = 'A'
				removed++
			}
		}
	}
	group := make([]int, n)
	for v := range group {
		group[v] = v
	}
	var find func(v int) int
	find = func(v int) int {
		if group[v] != v {
			group[v] = find(group[v])
		}
		return group[v]
	}
	for _, e := range edges {
		if in[e.U] != 'A' && in[e.V] != 'A' {
			group[find(e.U)] = find(e.V)
		}
	}
	members := map[int]int{}
	for v := range n {
		if in[v] != 'A' {
			members[find(v)]++
		}
	}
	odd := 0
	for _, count := range members {
		odd += count % 2
	}
	return (n - (odd - removed)) / 2
}

func measureSize(n int, edges []Edge) (int, []int) {
	mate := Maximum(n, edges)
	size := 0
	for v, w := range mate {
		if w > v {
			size++
		}
	}
	return size, mate
}

func TestTutteBerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, edges := drawGraph(t, 24)
		rand.New(rand.NewPCG(1, uint64(n))).Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })
		edges = edges[:min(len(edges), n)] // sparse graphs have the interesting deficiencies
		size, _ := measureSize(n, edges)
		if proven := tutteBerge(n, edges, size); size != proven {
			t.Fatalf("size %d, the Tutte-Berge formula gives %d", size, proven)
		}
	})
}

func TestOrderOfEdgesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, edges := drawGraph(t, 30)
		want := Maximum(n, edges)
		shuffled := rapid.Permutation(edges).Draw(t, "shuffled")
		for i, e := range shuffled {
			if i%2 == 0 {
				shuffled[i] = Edge{e.V, e.U, e.Cost}
			}
		}
		if got := Maximum(n, shuffled); !slices.Equal(got, want) {
			t.Fatalf("%v, shuffled %v", want, got)
		}
	})
}

func path(vertices ...int) (edges []Edge) {
	for i := 1; i < len(vertices); i++ {
		edges = append(edges, Edge{vertices[i-1], vertices[i], 1})
	}
	return edges
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		edges []Edge
		size  int
		cost  float64
	}{
		{"no vertex", 0, nil, 0, 0},
		{"one vertex and a loop", 1, []Edge{{0, 0, 1}}, 0, 0},
		{"no edge", 5, nil, 0, 0},
		{"one edge", 2, []Edge{{1, 0, 3}}, 1, 3},
		{"parallel edges", 2, []Edge{{1, 0, 3}, {0, 1, 2}, {0, 1, 5}}, 1, 2},
		{"triangle", 3, path(0, 1, 2, 0), 1, 1},
		{"ring of nine", 9, path(0, 1, 2, 3, 4, 5, 6, 7, 8, 0), 4, 4},
		{"two triangles joined", 6, append(path(0, 1, 2, 0), append(path(3, 4, 5, 3), Edge{2, 3, 9})...), 3, 11},
		{"two triangles apart", 6, append(path(0, 1, 2, 0), path(3, 4, 5, 3)...), 2, 2},
		{"a triangle on a ring on a stem", 10, append(path(0, 1, 2, 3, 4, 5, 1), append(path(3, 6, 4), path(6, 7, 8, 9)...)...), 5, 5},
		{"size before cost", 4, []Edge{{1, 2, 0}, {0, 1, 1e6}, {2, 3, 1e6}}, 2, 2e6},
		{"huge costs", 4, []Edge{{0, 1, 1e300}, {2, 3, 1e300}, {0, 2, 1e300}, {1, 3, 0.5e300}}, 2, 1.5e300},
	} {
		t.Run(c.name, func(t *testing.T) {
			size, cost, _ := certify(t, c.n, c.edges)
			if size != c.size || math.Abs(cost-c.cost) > 1e-9*c.cost {
				t.Errorf("size %d at cost %v, want %d at %v", size, cost, c.size, c.cost)
			}
		})
	}
}

func TestContract(t *testing.T) {
	for _, e := range []Edge{{0, 2, 1}, {-1, 0, 1}, {0, 1, -1}, {0, 1, math.NaN()}, {0, 1, math.Inf(1)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was accepted", e)
				}
			}()
			Maximum(2, []Edge{e})
		}()
	}
}

// twins is a graph of 26 kinds of equal vertices, about half of all pairs joined, at the cost of their kinds.
func twins(n int, seed uint64) []Edge {
	const kinds = 26
	rng := rand.New(rand.NewPCG(seed, 1))
	var cost [kinds][kinds]float64
	for a := range kinds {
		for b := range a + 1 {
			if rng.IntN(2) == 0 {
				cost[a][b] = 1 + rng.Float64()
				cost[b][a] = cost[a][b]
			}
		}
	}
	var edges []Edge
	for u := range n {
		for v := range u {
			if c := cost[u%kinds][v%kinds]; c > 0 {
				edges = append(edges, Edge{u, v, c})
			}
		}
	}
	return edges
}

func TestTwinKinds(t *testing.T) {
	for seed := range uint64(4) {
		certify(t, 130, twins(130, seed))
	}
}

func BenchmarkMatching(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	var dense, sparse []Edge
	for u := range 1000 {
		for v := range u {
			if x := rng.Float64(); x < 0.5 {
				dense = append(dense, Edge{u, v, 1 + x})
				if x < 0.005 {
					sparse = append(sparse, Edge{u, v, 1 + 100*x})
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		n     int
		edges []Edge
	}{
		{"1000", 1000, twins(1000, 1)}, {"1000/distinct", 1000, dense}, {"1000/sparse", 1000, sparse},
		{"2000", 2000, twins(2000, 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				Maximum(c.n, c.edges)
			}
		})
	}
}
