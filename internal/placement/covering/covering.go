// Package covering solves the configuration linear program of placement, and rounds it. Items of few types, many of
// each, are to be covered by as few configurations as possible; a configuration is a multiset of types that may share
// one GPU. Its linear relaxation is a strong lower bound on the number of GPUs, and rounds to a near-optimal plan.
//
// The method is column generation: P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock
// problem", Operations Research 9(6):849-859 (1961), with an enumeration in place of their knapsack, since which
// configurations fit is known only by asking.
package covering

import (
	"errors"
	"fmt"
	"math"
)

// Problem asks for configurations that hold Demand[t] items of every type t = 0..T-1. What fits must be downward
// closed: a part of a configuration that fits, fits.
type Problem struct {
	Demand  []int
	MaxSize int // most items in a configuration, at least 1
	// Fits says whether a configuration, its types ascending, may be used. It is asked only about configurations whose
	// every pair fits, and, while memory lasts, once about each. Each type in demand must fit alone. It must neither
	// keep nor change the list.
	Fits func(config []int) bool
	// Penalty, when not nil, is what a configuration that fits costs, in any unit. Of roundings with equally many
	// configurations the one of less total penalty is preferred.
	Penalty func(config []int) float64
}

// Solution is a solution of the linear relaxation
//
//	min sum_S x_S   subject to   sum_S count(t in S) x_S >= Demand[t] for every t,   x >= 0
//
// over the configurations S that fit and hold no type more often than its demand. (Without that last condition the
// bound would be weaker; no plan ever needs the configurations it excludes.)
type Solution struct {
	// Bound is at most the optimum of the relaxation, hence of the covering: with any duals y >= 0 and z the exact
	// maximum of sum_{t in S} y_t over all S, y/z is feasible for the dual, so that sum Demand[t] y_t / z is a bound
	// (A. A. Farley, Operations Research 38(5):922-923, 1990). The best over all rounds, and never below items/MaxSize, less
	// [Shave] of it.
	Bound float64
	// Value is the sum of Weights, at least the optimum of the relaxation.
	Value float64
	// Columns are the configurations used, types ascending, and Weights how much of each; at most one per type.
	Columns [][]int
	Weights []float64
	// Duals prove the bound: no configuration's sum of them exceeds 1, and their demand-weighted sum is Bound.
	Duals []float64
	// Optimal says that Value and Bound are the optimum, up to about a millionth.
	Optimal bool

	lattice *lattice // what is known of Fits, for Round
	pool    []column
}

// Shave is the share of a bound given up to rounding errors. The sums behind a bound have at most MaxSize and T terms,
// with errors near 1e-16 a term; a billionth is far above them, and far below what one GPU is.
const Shave = 1e-9

// DefaultSteps is the budget of a call that names none: a few seconds of one core. A step is one configuration looked
// at, or [cellsPerStep] entries of the simplex method's basis inverse updated, about ten nanoseconds both.
const DefaultSteps = 300_000_000

// Solve solves the linear relaxation. maxSteps bounds the work; when it runs out, Optimal is false while Bound and the
// weights are valid still. maxSteps <= 0 means [DefaultSteps]. Deterministic. It fails on a problem outside its contract.
func Solve(p Problem, maxSteps int) (*Solution, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	l := newLattice(p)
	return solve(l, p.Demand, nil, newBudget(maxSteps)), nil
}

func check(p Problem) error {
	if p.MaxSize < 1 {
		return fmt.Errorf("configurations of at most %d items: want at least 1", p.MaxSize)
	}
	if p.Fits == nil {
		return errors.New("no rule for what fits")
	}
	for t, d := range p.Demand {
		if d < 0 || d > math.MaxInt32 {
			return fmt.Errorf("type %d: demand %d outside 0..%d", t, d, math.MaxInt32)
		}
		if d > 0 && !p.Fits([]int{t}) {
			return fmt.Errorf("type %d does not fit alone", t)
		}
	}
	return nil
}

// addSteps is what it takes to look a column up among the known ones.
const addSteps = 10

// budget counts steps down.
type budget struct {
	left int
}

func newBudget(steps int) *budget {
	if steps <= 0 {
		steps = DefaultSteps
	}
	return &budget{steps}
}

// spend takes steps and reports whether there were enough.
func (b *budget) spend(steps int) bool {
	b.left -= steps
	return b.left >= 0
}

// lend runs work on one part in so many of what is left.
func (b *budget) lend(parts int, work func(*budget)) {
	loan := max(0, b.left/parts)
	part := &budget{loan}
	work(part)
	b.left -= loan - part.left
}

// solve runs column generation for a demand of at most the lattice's own, from the columns of pool that it can use.
func solve(l *lattice, demand []int, pool []column, b *budget) *Solution {
	m := newMaster(demand)
	for _, c := range pool {
		b.spend(addSteps)
		m.add(c.trim(demand))
	}
	s := &Solution{Duals: make([]float64, len(demand)), lattice: l}
	if len(m.types) == 0 {
		s.Optimal = true
		return s
	}
	s.trivialBound(demand, l.p.MaxSize)
	pr := newPricer(l, demand)
	for quick := true; m.optimize(b); {
		duals := m.duals(len(demand))
		top, found, exact := pr.price(duals, b, quick)
		if exact {
			s.raise(demand, duals, top)
		}
		fresh := 0
		for _, c := range found {
			fresh += m.add(c)
		}
		if fresh == 0 && (exact || !quick) {
			// Nothing is left to gain, but perhaps what rounding errors in the duals pretend.
			s.Optimal = exact
			break
		}
		quick = fresh > 0
	}
	m.read(s, demand)
	return s
}

// trivialBound starts from the duals 1/size, at which no configuration of at most that many members exceeds 1.
func (s *Solution) trivialBound(demand []int, size int) {
	duals := make([]float64, len(demand))
	for t, d := range demand {
		if d > 0 {
			duals[t] = 1
		}
	}
	s.raise(demand, duals, float64(size))
}

// raise takes the bound that duals with the exact maximum price top prove, if it is better.
func (s *Solution) raise(demand []int, duals []float64, top float64) {
	sum := 0.0
	for t, d := range demand {
		sum += float64(d) * duals[t]
	}
	scale := (1 - Shave) / top
	if bound := sum * scale; bound > s.Bound {
		s.Bound = bound
		for t, y := range duals {
			s.Duals[t] = y * scale
		}
	}
}
