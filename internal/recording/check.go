package recording

import (
	"fmt"
	"math"
)

// Check holds an analysis against what every profile must keep: ascending levels, shares of time that sum to 1, a peak
// and a mean that are those of what was recorded or above. It is nil when all of it holds.
func (a *Analysis) Check() error {
	p := a.Profile
	sum, before := 0.0, p.Persistent-1
	if len(p.Ephemeral) == 0 {
		sum = 1
	}
	for _, l := range p.Ephemeral {
		if l.Bytes+p.Persistent <= before || !(l.Fraction > 0 && l.Fraction <= 1) {
			return fmt.Errorf("level %d for %v of the time after %d", l.Bytes, l.Fraction, before)
		}
		before = l.Bytes + p.Persistent
		sum += l.Fraction
	}
	held := gather(a.Recording.Allocated, a.windows())
	switch {
	case math.Abs(sum-1) > 1e-9:
		return fmt.Errorf("shares of time sum to %v", sum)
	case p.Persistent < 0 || p.Persistent != held.least() || p.Peak() != held.most():
		return fmt.Errorf("%d to %d, recorded %d to %d", p.Persistent, p.Peak(), held.least(), held.most())
	case !(p.Mean() >= a.Mean*(1-1e-9)) || math.IsInf(p.Mean(), 0):
		return fmt.Errorf("mean %v, recorded %v", p.Mean(), a.Mean)
	case !(a.Verdict.Share >= 0 && a.Verdict.Share <= 1+1e-9):
		return fmt.Errorf("valley for %v of the time", a.Verdict.Share)
	}
	return nil
}
