package estimate

import "math"

// Noise of a rate that was observed over a window, as a share of it.
const (
	waitNoise    = 0.05 // by waits: what they do not show
	stepNoise    = 0.03 // by iterations: what varies from window to window
	countNoise   = 0.4  // of an iteration: where in it the window began and ended
	toldNoise    = 0.05 // of a rate that was told, not measured
	sharedNoise  = 0.05 // of the best speed beside others, which is no more than the speed alone
	disagreement = 0.25 // of how far the two ways to tell a rate are apart
)

// Rate is the rate of a job over a window as a share of its rate alone, and its standard deviation as a share of that. Where
// the rate alone is known and enough iterations were seen, it is by iterations, which also shows contention for caches,
// memory bandwidth and clocks; else by its waits, which do not. It is false for a window that tells nothing: no length,
// the warm-up of a program, a job that did nothing with its GPU.
func (b *Book) Rate(key string, w Window) (rate, noise float64, ok bool) {
	if !w.valid() || !w.active() {
		return 0, 0, false
	}
	waits := 1 - w.lost()
	f := b.facts[key]
	if f == nil || w.Iterations < fewest {
		return waits, waitNoise, true
	}
	alone, source := f.rate()
	if alone <= 0 || source == Catalogue {
		return waits, waitNoise, true
	}
	rate = min(1, float64(w.Iterations)/(alone*w.Length.Seconds()))
	more := 0.0
	switch source {
	case Declared:
		more = toldNoise
	case Shared:
		more = sharedNoise
	case Measured:
		more = f.speed.spread()
	}
	count := countNoise / float64(w.Iterations)
	apart := disagreement * (rate - waits)
	return rate, math.Sqrt(stepNoise*stepNoise + count*count + more*more + apart*apart), true
}
