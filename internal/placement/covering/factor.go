package covering

import "math"

// refactor computes the basis inverse anew by Gauss-Jordan elimination with row pivoting, and the values and duals from
// it. A basis that has become singular through rounding is left as the updates made it.
func (m *master) refactor() {
	rows := len(m.types)
	work := make([][]float64, rows) // by row: the basis, then the identity
	for r := range work {
		work[r] = make([]float64, 2*rows)
		work[r][rows+r] = 1
	}
	for i, j := range m.basis {
		if j < 0 {
			work[^j][i] = -1
			continue
		}
		for _, t := range m.columns[j] {
			work[m.row[t]][i]++
		}
	}
	for c := range rows {
		if !eliminate(work, c) {
			return
		}
	}
	for r := range work {
		for c := range rows {
			m.inv[c][r] = work[r][rows+c]
		}
	}
	m.recompute()
}

// eliminate makes column c the c-th unit vector; false when no pivot is left.
func eliminate(work [][]float64, c int) bool {
	best := c
	for r := c; r < len(work); r++ {
		if math.Abs(work[r][c]) > math.Abs(work[best][c]) {
			best = r
		}
	}
	if math.Abs(work[best][c]) <= pivotTolerance {
		return false
	}
	work[c], work[best] = work[best], work[c]
	pivot := work[c]
	for k, scale := c, 1/pivot[c]; k < len(pivot); k++ {
		pivot[k] *= scale
	}
	for r, row := range work {
		f := row[c]
		if r == c || f == 0 {
			continue
		}
		for k := c; k < len(pivot); k++ {
			row[k] -= f * pivot[k]
		}
	}
	return true
}

// recompute derives values and duals from the inverse.
func (m *master) recompute() {
	clear(m.x)
	for c, col := range m.inv {
		m.y[c] = 0
		for i, v := range col {
			m.x[i] += v * m.demand[c]
			if m.basis[i] >= 0 {
				m.y[c] += v
			}
		}
	}
}
