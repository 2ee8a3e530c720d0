package recording

import (
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// How iterations show in a curve. An iteration ends where memory falls into its trough: what a step allocates is freed
// by its end. A fall counts when memory was high since the one before; the gap between both levels keeps what wobbles
// within an iteration from counting.
const (
	hysteresis    = 0.35 // share of the swing between the low and the high level
	leastCycles   = 3    // fewer are no evidence of a period
	maxSpread     = 0.25 // median deviation of the durations from their median, as a share of it
	leastLikeness = 0.7  // median correlation of an iteration with the next one, both stretched to the same length
	maxStretch    = 1.8  // a cycle longer than so many medians holds something else: an evaluation, a checkpoint
	maxShrink     = 2.5  // and one shorter than a median divided by this is no iteration: a start-up, a wobble
	complete      = 0.9  // a first iteration of at least this share of the median counts as recorded
	leastSwing    = 0.01 // of the peak: a smaller swing is flat
)

// lowLevels are the trough levels that are tried, as shares of the swing, and skips the shares of the recording that are
// taken for a start-up when the swing is measured. The first that gives a period counts: troughs are deep as a rule.
var (
	lowLevels = []float64{0.15, 0.05, 0.3, 0.5}
	skips     = []float64{0, 0.1, 0.25, 0.5}
)

// FindIterations finds the iterations of a curve from the curve alone: nil when no period shows. O(n) for n points and
// each pair of level and skip tried.
func FindIterations(c Curve) []Iteration {
	if c.Empty() {
		return nil
	}
	var best []Iteration
	for _, skip := range skips {
		from := c.Start() + unit.Time(skip*float64(c.End-c.Start()))
		least, most := c.Range(from, c.End)
		if float64(most-least) < leastSwing*float64(most) {
			continue
		}
		for _, low := range lowLevels {
			found := cycles(c, least, most, low)
			if len(found) > len(best) {
				best = found
			}
			if len(found) >= leastCycles {
				return found
			}
		}
	}
	return nil
}

// cycles finds the iterations between falls to one level, nil when they are irregular or unlike each other.
func cycles(c Curve, least, most unit.Bytes, low float64) []Iteration {
	swing := float64(most - least)
	l := least + unit.Bytes(low*swing)
	h := least + unit.Bytes(min(0.95, low+hysteresis)*swing)
	t := scan(c, least, l, h)
	var found []Iteration
	for i := 1; i < len(t.falls); i++ {
		found = append(found, Iteration{t.falls[i-1], t.falls[i]})
	}
	if len(found) < leastCycles-1 {
		return nil
	}
	median := medianDuration(found)
	found = slices.DeleteFunc(found, func(i Iteration) bool {
		return float64(i.Duration()) > maxStretch*float64(median) || float64(i.Duration()) < float64(median)/maxShrink
	})
	if head, ok := t.head(median); ok {
		found = append([]Iteration{head}, found...)
	}
	if len(found) < leastCycles || spread(found, median) > maxSpread || likeness(c, found) < leastLikeness {
		return nil
	}
	return found
}

// troughs is where a curve falls to its low level and where it leaves it for the high one.
type troughs struct {
	start   unit.Time // first time at or above the least steady level
	starts  bool      // the curve starts in a trough
	falls   []unit.Time
	lengths []time.Duration // from a fall to the last time at the low level before the rise
	first   time.Duration   // of the trough that the recording starts in
}

func scan(c Curve, least, low, high unit.Bytes) troughs {
	var t troughs
	up, begun, below := false, false, false
	var fell, left unit.Time
	for _, p := range c.Points {
		if !begun {
			if p.Bytes < least {
				continue
			}
			begun, t.start, t.starts = true, p.At, p.Bytes <= low
			fell, left, up = t.start, t.start, !t.starts && p.Bytes >= high
		}
		if below && p.Bytes > low {
			left = p.At
		}
		below = p.Bytes <= low
		switch {
		case p.Bytes >= high && !up:
			up = true
			if len(t.falls) > 0 {
				t.lengths = append(t.lengths, left.Sub(fell))
			} else if t.starts {
				t.first = left.Sub(fell)
			}
		case p.Bytes <= low && up:
			up, fell = false, p.At
			t.falls = append(t.falls, p.At)
		}
	}
	return t
}

// head is the first iteration, which no fall precedes. When the recording starts within a trough, the part of it
// before the recording is made up for by as much of the trough after it: every instant is a recorded one.
func (t troughs) head(median time.Duration) (Iteration, bool) {
	if !t.starts || len(t.falls) == 0 || len(t.lengths) == 0 {
		return Iteration{}, false
	}
	head := Iteration{t.start, t.falls[0]}
	if float64(head.Duration()) < complete*float64(median) {
		missing := middle(t.lengths) - t.first
		head.End = head.End.Add(max(0, missing))
	}
	ok := float64(head.Duration()) >= complete*float64(median)*complete
	return head, ok && float64(head.Duration()) <= maxStretch*float64(median)
}

func medianDuration(iterations []Iteration) time.Duration {
	durations := make([]time.Duration, len(iterations))
	for i, it := range iterations {
		durations[i] = it.Duration()
	}
	return middle(durations)
}

// middle is the median, the lower one of two; 0 of none. It reorders its argument.
func middle[T time.Duration | unit.Bytes | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func spread(iterations []Iteration, median time.Duration) float64 {
	if median <= 0 {
		return math.Inf(1)
	}
	off := make([]float64, len(iterations))
	for i, it := range iterations {
		off[i] = math.Abs(float64(it.Duration()-median)) / float64(median)
	}
	return middle(off)
}

// phases is how many instants of an iteration are compared: a valley of 2 % of it shows.
const phases = 64

// likeness is the median correlation of neighbouring iterations.
func likeness(c Curve, iterations []Iteration) float64 {
	var all []float64
	before := stretch(c, iterations[0])
	for _, it := range iterations[1:] {
		now := stretch(c, it)
		all = append(all, correlation(before, now))
		before = now
	}
	return middle(all)
}

func stretch(c Curve, it Iteration) [phases]float64 {
	var v [phases]float64
	for i := range v {
		at := it.Start + unit.Time((float64(i)+0.5)/phases*float64(it.Duration()))
		v[i] = float64(c.Points[c.index(at)].Bytes)
	}
	return v
}

func correlation(a, b [phases]float64) float64 {
	var meanA, meanB, ab, aa, bb float64
	for i := range a {
		meanA += a[i] / phases
		meanB += b[i] / phases
	}
	for i := range a {
		x, y := a[i]-meanA, b[i]-meanB
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
