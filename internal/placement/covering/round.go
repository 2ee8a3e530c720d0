package covering

import (
	"cmp"
	"math"
	"slices"
)

// integral is how near below a whole number a weight counts as that number: above the perturbation's effect on a
// weight, far below any fraction that a basis of small counts yields.
const integral = 1e-5

// Round turns a solution of the relaxation into configurations that hold every item exactly once, as few as it can
// find: at most ceil(s.Value) + T always, ceil(s.Bound) or one more as a rule. Configurations are sorted; each lists
// its types ascending.
//
// It takes the whole part of every weight, then dives: fix the largest fractions, solve what is left, and so on, with
// limited discrepancies (W. D. Harvey, M. L. Ginsberg, IJCAI 1995); rounding up every weight is the fallback that gives
// the guarantee. A plan that misses the bound is repaired part by part. Then items are exchanged between configurations
// as long as that lowers the penalty. s must come from [Solve] for the same p; maxSteps is as there. Deterministic.
func Round(p Problem, s *Solution, maxSteps int) [][]int {
	b := newBudget(maxSteps)
	r := &rounder{l: s.lattice, target: wholeAbove(s.Bound)}
	b.lend(2, func(part *budget) {
		r.b = part
		r.search(newPlan(p.Demand), s, discrepancies)
		r.repair(s)
	})
	configs := r.best
	if p.Penalty != nil {
		configs = newExchange(s.lattice, configs, b).run()
	}
	slices.SortFunc(configs, slices.Compare)
	list := make([][]int, len(configs))
	for i, c := range configs {
		list[i] = c.ints()
	}
	return list
}

// discrepancies is the most wrong turns that a dive corrects: the work grows with the depth to that power.
const discrepancies = 3

// wholeAbove is the least count that a bound allows.
func wholeAbove(bound float64) int { return int(math.Ceil(bound - integral)) }

// plan is a partial covering.
type plan struct {
	left    []int // demand not covered yet
	items   int   // sum of left
	configs []column
}

func newPlan(demand []int) *plan {
	f := &plan{left: slices.Clone(demand)}
	for _, d := range demand {
		f.items += d
	}
	return f
}

func (f *plan) clone() *plan {
	return &plan{left: slices.Clone(f.left), items: f.items, configs: slices.Clone(f.configs)}
}

// take adds copies of a configuration, or of the part of it that is still needed.
func (f *plan) take(c column, copies int) {
	for range copies {
		part := c.trim(f.left)
		if len(part) == 0 {
			return
		}
		for _, t := range part {
			f.left[t]--
		}
		f.items -= len(part)
		f.configs = append(f.configs, part)
	}
}

// roundUp completes the plan with every weight rounded up. Each of the at most T columns adds less than one to the
// value of s, so the plan grows by at most ceil(Value) + T.
func (f *plan) roundUp(s *Solution) *plan {
	full := f.clone()
	for _, i := range s.byFraction() {
		full.take(columnOf(s.Columns[i]), wholeAbove(s.Weights[i]))
	}
	for t, d := range full.left { // nothing, for a solution of this demand
		full.take(column{int32(t)}, d)
	}
	return full
}

// byFraction orders the columns by the fraction of their weight, largest first, then by their types.
func (s *Solution) byFraction() []int {
	order := make([]int, len(s.Columns))
	for i := range order {
		order[i] = i
	}
	fraction := func(i int) float64 { return s.Weights[i] - math.Floor(s.Weights[i]+integral) }
	slices.SortFunc(order, func(i, j int) int {
		if d := fraction(j) - fraction(i); math.Abs(d) > integral {
			return cmp.Compare(d, 0)
		}
		return slices.Compare(s.Columns[i], s.Columns[j])
	})
	return order
}

// rounder searches for the shortest plan.
type rounder struct {
	l      *lattice
	b      *budget
	target int
	best   []column
	cost   float64 // total penalty of best
}

// offer keeps a complete plan if it is shorter, or as short at less penalty.
func (r *rounder) offer(f *plan) {
	if r.best != nil && len(f.configs) > len(r.best) {
		return
	}
	cost := 0.0
	if r.l.p.Penalty != nil {
		for _, c := range f.configs {
			cost += r.l.p.Penalty(c.ints())
		}
	}
	if r.best == nil || len(f.configs) < len(r.best) || cost < r.cost {
		r.best, r.cost = f.configs, cost
	}
}

// search offers the plan rounded up, then dives with more and more discrepancies, up to most.
func (r *rounder) search(f *plan, s *Solution, most int) {
	r.offer(f.roundUp(s))
	for limit := 0; limit <= most && len(r.best) > r.target && r.b.left > 0; limit++ {
		r.dive(f, s, limit)
	}
}

// relax solves the relaxation of a plan's rest, on a part of the budget: where proving its optimum takes longer, a good
// solution will do.
func (r *rounder) relax(f *plan, pool []column) (s *Solution) {
	r.b.lend(relaxShare, func(part *budget) { s = solve(r.l, f.left, pool, part) })
	return s
}

// relaxShare leaves budget for the whole depth of a dive: each level gets one part in so many of the rest.
const relaxShare = 8

// batchShare of the columns are fixed at once: diving one by one through hundreds of types of one item each would
// take hundreds of linear programs, for no visible gain.
const batchShare = 10

// dive completes a plan whose rest has the relaxation s. Of the columns by fraction it follows the first, and with
// limit discrepancies left also the next few.
func (r *rounder) dive(f *plan, s *Solution, limit int) {
	if len(f.configs)+wholeAbove(s.Bound) >= len(r.best) {
		return
	}
	f = f.clone()
	for i, w := range s.Weights {
		f.take(columnOf(s.Columns[i]), int(w+integral))
	}
	if f.items == 0 {
		r.offer(f)
		return
	}
	order := s.byFraction()
	for turn := range min(limit+1, len(order)) {
		if len(r.best) <= r.target {
			return
		}
		if r.b.left < 0 {
			r.offer(f.roundUp(s))
			return
		}
		next := f.clone()
		for _, i := range order[turn:][:1+(len(order)-turn-1)/batchShare] {
			next.take(columnOf(s.Columns[i]), 1)
		}
		if next.items == 0 {
			r.offer(next)
			continue
		}
		r.dive(next, r.relax(next, s.pool), limit-turn)
	}
}
