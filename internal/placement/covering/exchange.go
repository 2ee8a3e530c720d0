package covering

import (
	"math"
	"slices"
)

// exchange lowers the total penalty of a covering by moving an item from one configuration to another, or swapping
// two. Equal configurations are treated together. Configurations are numbered as they are met, 0 the empty one, so that
// a try is a few look-ups in tables.
type exchange struct {
	l       *lattice
	b       *budget
	columns []column
	number  map[string]int32
	penalty []float64
	without [][]int32 // by configuration and position: what is left without that member
	with    [][]int32 // by configuration and type: what it is with one more; unknown, or refused
	copies  []int
	kinds   []int32           // the configurations with copies, in order of their columns
	settled map[[2]int32]bool // pairs that no exchange improves
}

const (
	unknown = int32(0)
	refused = int32(-1)
	// exchangeSteps is what trying one exchange costs: its look-ups rarely find the cache.
	exchangeSteps = 4
	// improvement is the least gain worth an exchange: above the rounding of a sum of penalties, so that exchanges end.
	improvement = 1e-9
)

func newExchange(l *lattice, configs []column, b *budget) *exchange {
	x := &exchange{l: l, b: b, number: map[string]int32{}, settled: map[[2]int32]bool{}}
	x.intern(nil)
	for _, c := range configs {
		x.change(x.intern(c), 1)
	}
	return x
}

// intern numbers a configuration that fits.
func (x *exchange) intern(c column) int32 {
	key := c.key()
	id, ok := x.number[key]
	if ok {
		return id
	}
	id = int32(len(x.columns))
	x.number[key] = id
	x.columns = append(x.columns, c)
	x.copies = append(x.copies, 0)
	x.without = append(x.without, nil)
	x.with = append(x.with, nil)
	cost := 0.0
	if len(c) > 0 {
		cost = x.l.p.Penalty(c.ints())
	}
	x.penalty = append(x.penalty, cost)
	return id
}

// less is the configuration without the member at a position.
func (x *exchange) less(id int32, at int) int32 {
	if x.without[id] == nil {
		c := x.columns[id]
		row := make([]int32, len(c))
		for i := range c {
			row[i] = x.intern(slices.Delete(slices.Clone(c), i, i+1))
		}
		x.without[id] = row
	}
	return x.without[id][at]
}

// more is the configuration with one more member, or refused.
func (x *exchange) more(id, t int32) int32 {
	if x.with[id] == nil {
		x.with[id] = make([]int32, len(x.l.p.Demand))
	}
	next := x.with[id][t]
	if next == unknown {
		x.b.spend(askSteps)
		c := x.columns[id]
		at, _ := slices.BinarySearch(c, t)
		c = slices.Insert(slices.Clone(c), at, t)
		next = refused
		if x.l.fits(c) {
			next = x.intern(c)
		}
		x.with[id][t] = next
	}
	return next
}

// change adds copies of a configuration, or with a negative number takes them away.
func (x *exchange) change(id int32, copies int) {
	if len(x.columns[id]) == 0 {
		return
	}
	before := x.copies[id]
	x.copies[id] = before + copies
	at, _ := slices.BinarySearchFunc(x.kinds, id, func(a, b int32) int { return slices.Compare(x.columns[a], x.columns[b]) })
	switch {
	case before == 0:
		x.kinds = slices.Insert(x.kinds, at, id)
	case before+copies == 0:
		x.kinds = slices.Delete(x.kinds, at, at+1)
	}
}

// run exchanges until nothing improves or the budget is spent, and lists the configurations.
func (x *exchange) run() []column {
	for improved := true; improved && x.b.left >= 0; {
		improved = false
		for i := 0; i < len(x.kinds); i++ {
			for j := 0; j < len(x.kinds) && i < len(x.kinds) && x.b.left >= 0; j++ {
				improved = x.improve(x.kinds[i], x.kinds[j]) || improved
			}
		}
	}
	var list []column
	for _, id := range x.kinds {
		for range x.copies[id] {
			list = append(list, x.columns[id])
		}
	}
	return list
}

// improve applies the best exchange between two kinds of configurations to as many copies as there are.
func (x *exchange) improve(a, b int32) bool {
	pairs := min(x.copies[a], x.copies[b])
	if a == b {
		pairs = x.copies[a] / 2
	}
	key := [2]int32{a, b}
	if pairs == 0 || x.settled[key] {
		return false
	}
	newA, newB := x.bestExchange(a, b)
	if newA == refused {
		x.settled[key] = true
		return false
	}
	x.change(a, -pairs)
	x.change(b, -pairs)
	x.change(newA, pairs)
	x.change(newB, pairs)
	return true
}

// bestExchange is what becomes of the two by the move or swap that saves most; refused where none saves.
func (x *exchange) bestExchange(a, b int32) (bestA, bestB int32) {
	bestA, bestB = refused, refused
	least := x.penalty[a] + x.penalty[b] - improvement
	try := func(newA, newB int32) {
		if newA == refused || newB == refused {
			return
		}
		cost := x.penalty[newA] + x.penalty[newB]
		if len(x.columns[newA]) == 0 {
			cost = math.Inf(-1) // one configuration less: worth any penalty
		}
		if cost < least {
			least, bestA, bestB = cost, newA, newB
		}
	}
	columnA, columnB := x.columns[a], x.columns[b]
	x.b.spend(exchangeSteps * (1 + len(columnA)*(1+len(columnB))))
	for i, t := range columnA {
		if columnA.repeats(i) > 0 {
			continue
		}
		rest := x.less(a, i)
		try(rest, x.more(b, t))
		for k, u := range columnB {
			if u != t && columnB.repeats(k) == 0 {
				try(x.more(rest, u), x.more(x.less(b, k), t))
			}
		}
	}
	return bestA, bestB
}
