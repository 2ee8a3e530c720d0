package sim

import (
	"time"

	"weft.dev/weft/internal/trace"
)

// Summarise computes the figures of a replay that ran outside of Run, by rules of its own, on a number of GPUs. usage
// says how many of them had a job over time; every GPU in use counts as given out whole.
func Summarise(outcomes []Outcome, usage []Usage, gpus int) Figures {
	var s sample
	for i := range outcomes {
		s.add(&outcomes[i])
		s.held += float64(outcomes[i].Run) // jobs count alike: their gangs are not known here
		s.alone += float64(outcomes[i].Run) / max(1, outcomes[i].Slowdown)
	}
	f := s.figures()
	f.MeanPerformance = 1
	if s.held > 0 {
		f.MeanPerformance = s.alone / s.held
	}
	span := s.span(false, 0)
	f.Makespan = span.Seconds()
	f.PeakGPUs = peak(usage)
	busy := busyTime(usage, s.lastEnd.Sub(0))
	f.GPUHours = gpuHours(busy)
	f.Utilisation = fraction(busy, float64(gpus)*float64(span))
	f.Allocation = 100 * f.Utilisation
	f.Excluded = []trace.Exclusion{}
	return f
}

// busyTime is the GPU nanoseconds under a usage curve up to an end.
func busyTime(usage []Usage, end time.Duration) float64 {
	sum := 0.0
	for i, u := range usage {
		until := end
		if i+1 < len(usage) {
			until = usage[i+1].At.Sub(0)
		}
		sum += float64(u.GPUs) * float64(max(0, until-u.At.Sub(0)))
	}
	return sum
}
