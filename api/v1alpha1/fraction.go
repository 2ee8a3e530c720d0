package v1alpha1

import (
	"math"
	"strconv"
)

// Fraction is a decimal number as text, such as "0.9". Each field says which numbers it takes.
//
// +kubebuilder:validation:MaxLength=10
type Fraction string

// Float is the number, or what is given where the text is empty or no number.
func (f Fraction) Float(otherwise float64) float64 {
	v, err := strconv.ParseFloat(string(f), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return otherwise
	}
	return v
}

// NewFraction writes a number with up to four decimals: 0.9 is "0.9".
func NewFraction(v float64) Fraction {
	return Fraction(strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64))
}
