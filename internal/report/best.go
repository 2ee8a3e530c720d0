package report

import "math"

// BestOf returns the indexes of the values that Best should mark in a column: all that equal the least one, or the
// greatest where greater is better. Nothing is marked when no value differs, so that a mark always says something. NaN
// stands for no value and takes no part.
func BestOf(values []float64, greaterIsBetter bool) []int {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			least, most = min(least, v), max(most, v)
		}
	}
	if least >= most {
		return nil
	}
	best := least
	if greaterIsBetter {
		best = most
	}
	var at []int
	for i, v := range values {
		if v == best {
			at = append(at, i)
		}
	}
	return at
}
