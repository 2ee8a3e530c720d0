package profile

import "math"

// Effective is the worker's effective memory at scale s per byte, in bytes:
//
//	Persistent + ln E[exp(s Ephemeral)] / s
//
// the mean for s near 0, the peak for s = +Inf. Effective memory adds up over independent workers, and by Chernoff's
// bound a sum of at most M - ln(1/epsilon)/s overflows M with a probability of at most epsilon: the effective bandwidth
// of Hui (IEEE JSAC 6(9), 1988) and Kelly (1996).
func (p Profile) Effective(s float64) float64 {
	if len(p.Ephemeral) == 0 || math.IsInf(s, 1) {
		return float64(p.Peak())
	}
	top := float64(p.Ephemeral[len(p.Ephemeral)-1].Bytes)
	sum := 0.0
	for _, l := range p.Ephemeral {
		sum += l.Fraction * math.Exp(s*(float64(l.Bytes)-top)) // at most 1: nothing overflows
	}
	return float64(p.Persistent) + top + math.Log(sum)/s
}
