package covering

import "math"

const (
	// cellsPerStep is how many entries of the basis inverse are updated in the time of one pricing step.
	cellsPerStep = 16
	// refactorAfter pivots the inverse is computed anew: product-form updates lose about a digit in that many.
	refactorAfter = 100
	// pivotTolerance is the least pivot taken; entries are ratios of small counts, so below it is noise.
	pivotTolerance = 1e-9
	// perturbation raises each demand by one to two times itself, differently per type, so that ties in the ratio test,
	// and with them cycling, do not occur: equal copies of every type would make most pivots degenerate. The value of
	// the relaxation rises by at most 2e-8 a type.
	perturbation = 1e-8
)

// master is the linear program over the columns found so far, solved by the revised simplex method with an explicit
// basis inverse. Rows are the types in demand; the singletons are the first columns and the first basis.
type master struct {
	types   []int32 // by row
	row     []int32 // by type
	demand  []float64
	columns []column
	known   map[string]struct{}
	basic   []bool // by column

	basis  []int       // by row: a column, or ^r for the surplus of row r
	inv    [][]float64 // the basis inverse, by column
	x      []float64   // value of the basic variables
	y      []float64   // duals
	alpha  []float64   // scratch: the entering column in terms of the basis
	pivots int
}

func newMaster(demand []int) *master {
	m := &master{row: make([]int32, len(demand)), known: map[string]struct{}{}}
	for t, d := range demand {
		if d == 0 {
			continue
		}
		m.row[t] = int32(len(m.types))
		m.types = append(m.types, int32(t))
		// The golden ratio's multiples spread evenly over (0,1), no two alike.
		_, spread := math.Modf(float64(t+1) * math.Phi)
		m.demand = append(m.demand, float64(d)+perturbation*(1+spread))
	}
	rows := len(m.types)
	m.basis, m.inv = make([]int, rows), make([][]float64, rows)
	m.x, m.y, m.alpha = make([]float64, rows), make([]float64, rows), make([]float64, rows)
	for r, t := range m.types {
		m.add(column{t})
		m.basis[r], m.basic[r] = r, true
		m.inv[r] = make([]float64, rows)
		m.inv[r][r] = 1
		m.x[r], m.y[r] = m.demand[r], 1
	}
	return m
}

// add takes a column, unless it is empty or known, and counts it.
func (m *master) add(c column) int {
	if len(c) == 0 {
		return 0
	}
	key := c.key()
	if _, ok := m.known[key]; ok {
		return 0
	}
	m.known[key] = struct{}{}
	m.columns = append(m.columns, c)
	m.basic = append(m.basic, false)
	return 1
}

// duals is the dual of every type, none negative.
func (m *master) duals(types int) []float64 {
	list := make([]float64, types)
	for r, t := range m.types {
		list[t] = max(0, m.y[r])
	}
	return list
}

// optimize pivots until no known column improves. It reports false when the budget ran out; the basis is feasible then
// too.
func (m *master) optimize(b *budget) bool {
	rows := len(m.types)
	for {
		enter, gain, ok := m.entering()
		if !ok {
			return true
		}
		if !b.spend(1 + (len(m.columns)+rows*rows)/cellsPerStep) {
			return false
		}
		m.direct(enter)
		leave := m.leaving()
		if leave < 0 {
			return true // only noise is left to gain: costs are bounded below by zero
		}
		m.pivot(enter, leave, gain)
		if m.pivots++; m.pivots%refactorAfter == 0 {
			b.spend(rows * rows * rows / cellsPerStep)
			m.refactor()
		}
	}
}

// entering is the variable that lowers the value most per unit, Dantzig's rule; the first of equals.
func (m *master) entering() (enter int, gain float64, ok bool) {
	gain = priceTolerance / 2
	for j, c := range m.columns {
		price := -1.0
		for _, t := range c {
			price += m.y[m.row[t]]
		}
		if price > gain && !m.basic[j] {
			enter, gain, ok = j, price, true
		}
	}
	for r, y := range m.y {
		if -y > gain {
			enter, gain, ok = ^r, -y, true
		}
	}
	return enter, gain, ok
}

// direct computes alpha, the basis inverse times the entering column.
func (m *master) direct(enter int) {
	clear(m.alpha)
	if enter < 0 {
		for i, v := range m.inv[^enter] {
			m.alpha[i] = -v
		}
		return
	}
	for _, t := range m.columns[enter] {
		for i, v := range m.inv[m.row[t]] {
			m.alpha[i] += v
		}
	}
}

// leaving is the row whose variable reaches zero first, of equals the one with the largest pivot; -1 when none does.
func (m *master) leaving() int {
	leave, least := -1, math.Inf(1)
	for i, a := range m.alpha {
		if a <= pivotTolerance {
			continue
		}
		ratio := max(0, m.x[i]) / a
		if ratio < least || ratio == least && a > m.alpha[leave] {
			leave, least = i, ratio
		}
	}
	return leave
}

func (m *master) pivot(enter, leave int, gain float64) {
	step := max(0, m.x[leave]) / m.alpha[leave]
	for i, a := range m.alpha {
		m.x[i] -= step * a
	}
	m.x[leave] = step
	for c, col := range m.inv {
		v := col[leave]
		if v == 0 {
			continue
		}
		f := v / m.alpha[leave]
		m.y[c] -= gain * f
		for i, a := range m.alpha {
			col[i] -= f * a
		}
		col[leave] = f
	}
	if old := m.basis[leave]; old >= 0 {
		m.basic[old] = false
	}
	if enter >= 0 {
		m.basic[enter] = true
	}
	m.basis[leave] = enter
}

// read writes the weights of the basis into a solution.
func (m *master) read(s *Solution, demand []int) {
	x := m.x
	// The demand without its perturbation, where the basis is feasible for it.
	exact := make([]float64, len(m.types))
	for c, col := range m.inv {
		for i, v := range col {
			exact[i] += v * float64(demand[m.types[c]])
		}
	}
	feasible := true
	for _, v := range exact {
		feasible = feasible && v >= -perturbation*perturbation
	}
	if feasible {
		x = exact
	}
	for i, j := range m.basis {
		if j >= 0 && x[i] > 0 {
			s.Columns = append(s.Columns, m.columns[j].ints())
			s.Weights = append(s.Weights, x[i])
			s.Value += x[i]
		}
	}
	s.pool = m.columns
}
