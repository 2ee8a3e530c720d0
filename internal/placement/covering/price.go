package covering

import "slices"

// priceTolerance is by how much a price must exceed 1 for its column to be worth adding.
const priceTolerance = 1e-9

// pricer finds the configurations of the largest sum of duals, by depth-first search of the lattice.
type pricer struct {
	l      *lattice
	demand []int
	duals  []float64
	b      *budget
	ceil   [][]float64 // by depth: scratch of visit
	stop   int         // where of the budget the running search ends
	best   float64     // the price to beat under the running first member
	column column      // that of best
}

// quickSteps bounds a quick search under one first member: enough to be exact where few configurations fit.
const quickSteps = 2000

func newPricer(l *lattice, demand []int) *pricer {
	return &pricer{l: l, demand: demand, ceil: make([][]float64, l.p.MaxSize)}
}

// price returns the largest price of any configuration, or 1+priceTolerance if that is more, and for each type the
// dearest of the configurations above that which start with it. A quick search cuts every type's short: what it finds
// is worth adding, but the largest price is not known then, nor when the budget runs out: exact is false.
func (p *pricer) price(duals []float64, b *budget, quick bool) (top float64, found []column, exact bool) {
	p.duals, p.b = duals, b
	top, exact = 1+priceTolerance, true
	dearest := p.ceilings(p.l.root, 0)
	config := make(column, 1, p.l.p.MaxSize)
	for i, t := range p.l.root.next {
		room := p.l.p.MaxSize - 1
		p.best, p.column = 1+priceTolerance, nil
		if p.demand[t] == 0 || duals[t]+float64(room)*dearest[i] <= p.best {
			continue
		}
		p.stop = 0
		if quick {
			p.stop = max(0, b.left-quickSteps)
		}
		config[0] = t
		p.offer(config, duals[t])
		if room > 0 {
			p.visit(p.child(p.l.root, i, config), config, duals[t])
		}
		exact = exact && b.left >= p.stop
		if p.column != nil {
			found = append(found, p.column)
			top = max(top, p.best)
		}
		if b.left < 0 {
			return top, found, false
		}
	}
	return top, found, exact
}

// askSteps is what it takes to find out whether a configuration fits: its parts are looked up and the caller asked.
const askSteps = 30

func (p *pricer) child(n *node, i int, config column) *node {
	before := p.l.asked
	kid := p.l.child(n, i, config)
	p.b.spend((p.l.asked - before) * askSteps)
	return kid
}

func (p *pricer) offer(config column, price float64) {
	if price > p.best {
		p.best, p.column = price, slices.Clone(config)
	}
}

// ceilings is, by position in the node's next, the largest dual there or later.
func (p *pricer) ceilings(n *node, depth int) []float64 {
	if cap(p.ceil[depth]) < len(n.next) {
		p.ceil[depth] = make([]float64, len(n.next), 2*len(n.next))
	}
	list := p.ceil[depth][:len(n.next)]
	most := 0.0
	for i := len(n.next) - 1; i >= 0; i-- {
		if t := n.next[i]; p.demand[t] > 0 {
			most = max(most, p.duals[t])
		}
		list[i] = most
	}
	return list
}

// visit tries what may join config. Whatever joins later is among what may join now, so that every free place adds at
// most the largest dual from here on.
func (p *pricer) visit(n *node, config column, price float64) {
	depth := len(config)
	room := p.l.p.MaxSize - depth - 1
	p.b.spend(1 + len(n.next))
	dearest := p.ceilings(n, depth)
	for i, t := range n.next {
		if p.b.left < p.stop || price+float64(room+1)*dearest[i] <= p.best {
			return // no time, or no hope here nor later
		}
		if price+p.duals[t]+float64(room)*dearest[i] <= p.best {
			continue
		}
		larger := append(config, t)
		if larger.repeats(depth) >= p.demand[t] {
			continue
		}
		p.offer(larger, price+p.duals[t])
		if room > 0 {
			p.visit(p.child(n, i, larger), larger, price+p.duals[t])
		}
	}
}
