package estimate

import (
	"math"
	"slices"
	"time"
)

// Alone is what is known of a job alone on its GPUs. What is 0 is unknown.
type Alone struct {
	Rate    float64 // iterations per second
	Busy    float64 // share of the time with its work on the GPU, in (0, 1]
	Idle    bool    // it never used its GPUs: it slows nobody
	Windows int     // measured
	Source  string  // of Busy, or of Rate where that is unknown: one of the Sources
}

// Sources of what is known of a job.
const (
	Measured  = "measured"  // here, while it ran alone
	Shared    = "shared"    // here, while it ran beside others only
	Declared  = "declared"  // by whoever knows; counts for observations until it is measured
	Catalogue = "catalogue" // by others on their machines: its rate says how long an iteration is, and no more
)

// Window is what became of one job over one window. Times are of one of its processes on one GPU; what is 0 is unknown.
type Window struct {
	Length      time.Duration
	Wait        time.Duration // for the token
	Stall       time.Duration // for memory of the pool
	Held        time.Duration // the token
	Used        time.Duration // computing, by the job's own account
	Age         time.Duration // of its program, at the end
	Iterations  uint64
	Utilisation float64 // of the GPU, as the driver says, in 0..1
	Alone       bool    // nobody else was on its GPUs
}

// Figures of learning.
const (
	keep         = 9                // samples of each figure: their median withstands four that are off
	warmUp       = 5 * time.Second  // of a program: a window that began earlier tells nothing
	idleAfter    = 10 * time.Minute // without any use of the GPU a job counts as one that uses none
	fewest       = 5                // iterations of a window whose speed counts
	leastWindow  = 200 * time.Millisecond
	longest      = 24 * time.Hour // of a window: more is a clock that stepped
	undisturbed  = 0.05           // of a window that may be waits, where it counts as alone
	faster       = 1.05           // than alone is a proof that what is known of it is too slow
	largestRate  = 1e6            // iterations per second
	leastSpeed   = 1e-6           // of a job that is told of: an iteration in eleven days
	leastBusy    = 1e-4           // less is unknown: who uses no GPU is Idle
	leastPortion = 0.2            // of a window without waits, for the busy share to show in it
)

// valid says whether a window is one. Lengths below 0 come from clocks that step.
func (w Window) valid() bool {
	return w.Length >= leastWindow && w.Length <= longest && w.Wait >= 0 && w.Stall >= 0 && w.Held >= 0 && w.Used >= 0 &&
		!(w.Age > 0 && w.Age-w.Length < warmUp)
}

// active says whether the job did anything with its GPU.
func (w Window) active() bool {
	return w.Held > 0 || w.Used > 0 || w.Wait > 0 || w.Stall > 0 || w.Iterations > 0
}

// lost is the share of a window that went to waits, at most 1.
func (w Window) lost() float64 {
	return min(1, (w.Wait.Seconds()+w.Stall.Seconds())/w.Length.Seconds())
}

// speed is iterations per second of the time without waits; 0 where there are too few.
func (w Window) speed() float64 {
	if w.Iterations < fewest || 1-w.lost() < leastPortion {
		return 0
	}
	return min(largestRate, float64(w.Iterations)/(w.Length.Seconds()*(1-w.lost())))
}

// busy is the busy share that a window shows; 0 where it shows none. Beside others the driver's figure is of all of them.
// What a job computed is told when it gives the token back: more than it held in the window is partly of the one before.
func (w Window) busy() float64 {
	if share := w.Utilisation; w.Alone && share >= leastBusy && share <= 1 {
		return share
	}
	if w.Held > 0 && w.Used > w.Held+w.Length/100 {
		return 0
	}
	if own := 1 - w.lost(); own >= leastPortion {
		return min(1, w.Used.Seconds()/(w.Length.Seconds()*own))
	}
	return 0
}

// samples are the last of a figure, the newest at the end.
type samples []float64

func (s *samples) add(v float64) {
	if len(*s) == keep {
		*s = slices.Delete(*s, 0, 1)
	}
	*s = append(*s, v)
}

// quantile is the value that a share of the samples is at or below; 0 without samples.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(s)-1, int(q*float64(len(s))))]
}

// spread is the standard deviation of the median as a share of it, by the median distance from it (a normal's is 0.67
// standard deviations).
func (s samples) spread() float64 {
	middle := s.quantile(0.5)
	if middle <= 0 {
		return 0
	}
	distance := make(samples, len(s))
	for i, v := range s {
		distance[i] = math.Abs(v - middle)
	}
	return min(0.2, 1.5*distance.quantile(0.5)/middle/math.Sqrt(float64(len(s))))
}

// facts are what is known of a key.
type facts struct {
	told    Alone
	speed   samples // alone
	busy    samples // alone
	shared  samples // speed beside others
	taken   samples // busy beside others
	windows int     // alone
	idle    time.Duration
	touched uint64
}

// Figures of what samples say: a speed is more often disturbed than not, but no more is made of that; a busy share errs on
// the side of more.
const (
	speedQuantile = 0.5
	bestQuantile  = 0.75
	busyQuantile  = 0.75
)

// rate is the standalone rate as far as it is known, and where from.
func (f *facts) rate() (float64, string) {
	return best(f.speed, speedQuantile, f.shared, bestQuantile, f.told.Rate, f.told.Source)
}

// share is the busy share as far as it is known, and where from.
func (f *facts) share() (float64, string) {
	return best(f.busy, busyQuantile, f.taken, busyQuantile, f.told.Busy, f.told.Source)
}

// best is the figure of the best source: measured alone, declared, measured beside others, told by who knows less.
func best(alone samples, q float64, beside samples, besideQ float64, told float64, source string) (float64, string) {
	switch {
	case len(alone) > 0:
		return alone.quantile(q), Measured
	case told > 0 && source == Declared:
		return told, Declared
	case len(beside) > 0:
		return beside.quantile(besideQ), Shared
	case told > 0:
		return told, source
	}
	return 0, ""
}

// never says whether the job is one that uses no GPU.
func (f *facts) never() bool {
	used := len(f.busy) > 0 || len(f.taken) > 0 || len(f.speed) > 0 || len(f.shared) > 0
	return !used && (f.idle >= idleAfter || f.told.Idle)
}

// Tell says what is known of a key from elsewhere: Declared or Catalogue. Figures that cannot be are unknown. What was
// measured comes first.
func (b *Book) Tell(key string, a Alone) {
	if !(Kind{Key: key}).named() {
		return
	}
	if !(a.Rate >= leastSpeed && a.Rate <= largestRate) {
		a.Rate = 0
	}
	if !(a.Busy >= leastBusy && a.Busy <= 1) {
		a.Busy = 0
	}
	if a.Source != Declared {
		a.Source = Catalogue
	}
	a.Windows = 0
	f := b.fact(key)
	if f.told != a {
		f.told = a
		b.soil(key)
	}
}

// Alone is what is known of a key; false when that is nothing.
func (b *Book) Alone(key string) (Alone, bool) {
	f := b.facts[key]
	if f == nil {
		return Alone{}, false
	}
	rate, source := f.rate()
	a := Alone{Rate: rate, Idle: f.never(), Windows: f.windows, Source: source}
	if busy, source := f.share(); busy > 0 {
		a.Busy, a.Source = busy, source
	}
	return a, a.Rate > 0 || a.Busy > 0 || a.Idle
}

// Learn takes what a window shows of a job: alone, its speed and its busy share; beside others both as well, but these
// count only until it ran alone. Call it for every window, before Rate.
func (b *Book) Learn(key string, w Window) {
	if !(Kind{Key: key}).named() || !w.valid() {
		return
	}
	if !w.active() {
		if f := b.fact(key); f.idle < idleAfter {
			if f.idle += w.Length; f.never() {
				b.soil(key)
			}
		}
		return
	}
	f := b.fact(key)
	was := f.never()
	f.idle, f.told.Idle = 0, false
	speed, busy := w.speed(), w.busy()
	if w.Alone && w.lost() <= undisturbed {
		f.windows = min(f.windows+1, math.MaxInt32)
		f.learn(&f.speed, &f.busy, speed, busy)
	} else {
		f.learn(&f.shared, &f.taken, speed, busy)
	}
	f.outrun(float64(w.Iterations) / w.Length.Seconds())
	if was || b.changed(key) {
		b.soil(key)
	}
}

// learn adds what is known.
func (f *facts) learn(speeds, shares *samples, speed, busy float64) {
	if speed > 0 {
		speeds.add(speed)
	}
	if busy >= leastBusy {
		shares.add(busy)
	}
}

// outrun takes note that a job was seen to run faster than it is known to run alone: nobody does.
func (f *facts) outrun(speed float64) {
	known, source := f.rate()
	if known <= 0 || speed <= faster*known || speed > largestRate {
		return
	}
	switch source {
	case Measured:
		f.speed.add(speed)
	case Declared:
		f.told.Rate = speed
	}
}

// changed says whether what is known of a key has moved so far that its priors are to be read again.
func (b *Book) changed(key string) bool {
	now := b.facet(key)
	for class := range classes {
		if i, ok := b.index[Kind{key, class}]; ok {
			was := b.rows[i].basis
			if !now.near(was) {
				return true
			}
		}
	}
	return false
}

// fact is the facts of a key, new ones where there are none.
func (b *Book) fact(key string) *facts {
	f := b.facts[key]
	if f == nil {
		if len(b.facts) >= maxFacts {
			b.forgetFacts(maxFacts / 4)
		}
		f = &facts{}
		b.facts[key] = f
	}
	b.turn++
	f.touched = b.turn
	return f
}
