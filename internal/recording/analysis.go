package recording

import (
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Levels of a profile: twelve are what placement was measured with; beyond 256 nothing is gained, for a load merges
// its levels to as many.
const (
	DefaultLevels = 12
	MaxLevels     = 256
)

// Analysis is what a recording says about the memory of a job.
type Analysis struct {
	Recording  Recording
	Iterations []Figures     // the steady ones; none when no period was found
	Marked     bool          // the recording itself says where iterations begin
	Period     time.Duration // median; 0 when unknown
	Profile    profile.Profile
	Trough     unit.Bytes // median of the least of each iteration
	Mean       float64    // bytes
	Verdict    Verdict
	Notes      []string // those of the recording, then those of the analysis
}

// Analyse finds the iterations of a recording and quantises what they hold into levels, 1 to MaxLevels. The recording
// must have points. Persistent is the least that is held in any steady iteration. O(n log n) for n points.
func Analyse(r Recording, levels int) *Analysis {
	a := &Analysis{Recording: r, Notes: slices.Clone(r.Notes)}
	a.iterations()
	windows := a.windows()
	held := gather(r.Allocated, windows)
	a.Profile = quantise(held, levels)
	if r.Clock == Ordered {
		a.Profile = atPeak(a.Profile)
	}
	a.Mean = held.mean()
	a.Trough = a.Profile.Persistent
	if len(a.Iterations) > 0 {
		least := make([]unit.Bytes, len(a.Iterations))
		for i, f := range a.Iterations {
			least[i] = f.Min
		}
		a.Trough = middle(least)
	}
	a.Verdict = a.judge(held, windows)
	return a
}

// iterations takes the marks, or finds the period in the curve.
func (a *Analysis) iterations() {
	r := &a.Recording
	found := r.Marks
	a.Marked = len(found) > 0
	if !a.Marked {
		found = FindIterations(r.Allocated)
	}
	for _, it := range found {
		a.Iterations = append(a.Iterations, Measure(r.Allocated, it))
	}
	a.dropWarmUp()
	switch {
	case len(a.Iterations) == 0 && r.Allocated.flat():
		// a flat line has no period, and needs none
	case len(a.Iterations) == 0:
		a.Notes = append(a.Notes, "no period found: shares of time are those of the whole recording")
	case r.Clock == Real:
		a.Period = period(a.Iterations)
	}
	switch r.Clock {
	case Even:
		a.Notes = append(a.Notes, "no times in the recording: samples count as evenly spaced, the period is unknown")
	case Ordered:
		a.Notes = append(a.Notes, "no times in the recording: levels are known, the period and the shares of time are not; "+
			"the profile holds the peak all the time")
	}
}

func (c Curve) flat() bool {
	least, most := c.Range(c.Start(), c.End)
	return float64(most-least) < leastSwing*float64(most)
}

// What tells the first iterations of a run from steady ones, and how many must remain to say so.
const (
	warmUpTime   = 1.5  // medians
	warmUpLevel  = 0.05 // of the median peak
	steadyEnough = 3
)

// dropWarmUp leaves out first iterations that take longer or hold more or less than the others.
func (a *Analysis) dropWarmUp() {
	if len(a.Iterations) <= steadyEnough {
		return
	}
	typical, median := a.typical(), period(a.Iterations)
	dropped, most := 0, unit.Bytes(0)
	for len(a.Iterations)-dropped > steadyEnough {
		f := a.Iterations[dropped]
		off := max(f.Max-typical.Max, typical.Max-f.Max, f.Min-typical.Min, typical.Min-f.Min)
		if float64(f.Duration()) <= warmUpTime*float64(median) && float64(off) <= warmUpLevel*float64(typical.Max) {
			break
		}
		most = max(most, f.Max)
		dropped++
	}
	a.Iterations = a.Iterations[dropped:]
	switch {
	case dropped == 1:
		a.Notes = append(a.Notes, fmt.Sprintf("the first iteration differs and is not counted (warm-up); it holds up to %s", most))
	case dropped > 1:
		a.Notes = append(a.Notes, fmt.Sprintf("the first %d iterations differ and are not counted (warm-up); they hold up to %s", dropped, most))
	}
}

func (a *Analysis) typical() Figures {
	var least, most []unit.Bytes
	for _, f := range a.Iterations {
		least, most = append(least, f.Min), append(most, f.Max)
	}
	return Figures{Min: middle(least), Max: middle(most)}
}

// windows are the spans whose shares of time count: the iterations, or without any the recording from when it first
// reaches its median level, so that a start-up does not count as a valley.
func (a *Analysis) windows() []Iteration {
	if len(a.Iterations) > 0 {
		spans := make([]Iteration, len(a.Iterations))
		for i, f := range a.Iterations {
			spans[i] = f.Iteration
		}
		return spans
	}
	c := a.Recording.Allocated
	whole := Iteration{c.Start(), max(c.End, c.Start()+1)}
	median := gather(c, []Iteration{whole}).median()
	for _, p := range c.Points {
		if p.Bytes >= median {
			whole.Start = p.At
			break
		}
	}
	whole.End = max(whole.End, whole.Start+1)
	return []Iteration{whole}
}

// atPeak is a profile of the same range whose shares of time are unknown: the peak counts all the time.
func atPeak(p profile.Profile) profile.Profile {
	if len(p.Ephemeral) == 0 {
		return p
	}
	return profile.Profile{Persistent: p.Persistent,
		Ephemeral: []profile.Level{{Bytes: p.Peak() - p.Persistent, Fraction: 1}}}
}

// shownIterations is how many iterations a drawing shows: enough to see that they recur.
const shownIterations = 3

// Span is what a drawing shows: the first steady iterations, or without any the whole recording.
func (a *Analysis) Span() Iteration {
	if n := min(len(a.Iterations), shownIterations); n > 0 {
		return Iteration{a.Iterations[0].Start, a.Iterations[n-1].End}
	}
	c := a.Recording.Allocated
	return Iteration{c.Start(), max(c.End, c.Start()+1)}
}

// Samples is the most that is held in each of n equal parts of a span.
func (c Curve) Samples(span Iteration, n int) []unit.Bytes {
	out := make([]unit.Bytes, n)
	length := float64(span.Duration())
	for i := range out {
		from := span.Start + unit.Time(length*float64(i)/float64(n))
		to := span.Start + unit.Time(length*float64(i+1)/float64(n))
		_, out[i] = c.Range(from, max(to, from+1))
	}
	return out
}
