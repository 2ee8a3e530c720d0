// Package matching finds a largest matching of a general graph and, among the largest, one of least total cost. With
// at most two residents on a GPU, placing n workers needs exactly n minus that size GPUs.
//
// It is Edmonds' blossom algorithm in its primal-dual form: "Maximum matching and a polyhedron with 0,1-vertices",
// J. Res. Natl. Bur. Stand. 69B (1965); the bookkeeping of least-slack edges that brings it to O(n^3) is Galil's
// survey, ACM Computing Surveys 18(1):23-38 (1986). All arithmetic inside is on integers, so the result is exact up to
// the resolution to which costs are read.
package matching

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Edge joins two vertices, 0 <= U, V < n, at a cost: finite, >= 0, in any unit.
type Edge struct {
	U, V int
	Cost float64
}

// Resolution is the step to which costs are rounded. Costs here are sums of a few slowdowns near one, measured to four
// digits; a millionth keeps equal configurations equal when their costs were summed in another order.
const Resolution = 1e-6

// dualLimit bounds every weight W inside. Duals are kept doubled: the vertex duals start at W and every free vertex
// falls by the total of all adjustments, ending at >= 0, so that total is <= W; hence a vertex dual is <= 2W, a blossom
// dual <= 2W, and the largest sum formed, a slack, <= 4W <= 2^62.
const dualLimit = int64(1) << 60

// Maximum is a matching of the graph with vertices 0..n-1: mate[v] is the vertex that v is matched to, or -1. It has
// the largest possible number of edges and among those the least total cost, each cost rounded to [Resolution] (or, for
// costs above about 1e18*Resolution/n, to the finest step that cannot overflow). Of parallel edges the cheapest counts;
// loops are ignored. Ties are broken by vertex number: the result does not depend on the order of the edges.
//
// Time O(n^3), memory O(n + len(edges)). It panics on an edge outside the contract of [Edge].
func Maximum(n int, edges []Edge) []int {
	s := newSolver(newGraph(n, canonical(n, edges)))
	for s.stage() {
	}
	mate := make([]int, n)
	for v, a := range s.mate {
		mate[v] = -1
		if a != none {
			mate[v] = int(s.g.head[a])
		}
	}
	return mate
}

// canonical checks the edges and lists them once each with U < V, in order, at the least of the parallel costs.
func canonical(n int, edges []Edge) []Edge {
	list := make([]Edge, 0, len(edges))
	for _, e := range edges {
		if min(e.U, e.V) < 0 || max(e.U, e.V) >= n {
			panic(fmt.Sprintf("matching: edge %d-%d outside the graph of %d vertices", e.U, e.V, n))
		}
		if !(e.Cost >= 0) || math.IsInf(e.Cost, 1) {
			panic(fmt.Sprintf("matching: edge %d-%d has cost %v", e.U, e.V, e.Cost))
		}
		if e.U != e.V {
			list = append(list, Edge{min(e.U, e.V), max(e.U, e.V), e.Cost})
		}
	}
	slices.SortFunc(list, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(a.U, b.U), cmp.Compare(a.V, b.V), cmp.Compare(a.Cost, b.Cost))
	})
	return slices.CompactFunc(list, func(a, b Edge) bool { return a.U == b.U && a.V == b.V })
}

// weights turns costs to be minimised into positive weights to be maximised: w = B - c with c the cost in steps. With
// at most h = n/2 edges and the largest c = C, B = h*C + 1 makes k+1 edges outweigh any k: (k+1)(B-C) > k*B whenever
// B > (k+1)*C. So the heaviest matching is a largest one.
func weights(n int, edges []Edge) []int64 {
	half := int64(n / 2)
	dearest := 0.0
	for _, e := range edges {
		dearest = max(dearest, e.Cost)
	}
	scale := 1 / Resolution
	// The 2 leaves room for the rounding and for the 1 in B.
	if limit := float64(dualLimit) / float64(2*(half+1)); dearest > limit*Resolution {
		scale = limit / dearest
	}
	steps := func(cost float64) int64 { return int64(math.Round(cost * scale)) }
	top := half*steps(dearest) + 1
	list := make([]int64, len(edges))
	for i, e := range edges {
		list[i] = top - steps(e.Cost)
	}
	return list
}
