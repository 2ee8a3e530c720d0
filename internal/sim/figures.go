package sim

import (
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// sample gathers outcomes and computes the figures that depend on them alone.
type sample struct {
	jcts                            []time.Duration
	queue                           float64 // s
	broken, preemptions, migrations int
	ran                             bool // some job ran
	firstSubmit, lastEnd            unit.Time
	alone, held, below              float64 // GPU ns of ended jobs: standalone, held, below the floor
}

// work counts the GPU time of a job that ended.
func (s *sample) work(o *Outcome, j *cluster.Job) {
	if o.Ended {
		workers := float64(j.Workers)
		s.alone += workers * float64(j.Duration)
		s.held += workers * float64(o.Run)
		s.below += workers * float64(o.Below)
	}
}

// performance is standalone over held GPU time, and the share of the latter below the floor.
func (s *sample) performance() (mean, below float64) {
	if s.held == 0 {
		return 1, 0
	}
	return s.alone / s.held, s.below / s.held
}

// add counts a job. One that has not ended counts only for what happened to it.
func (s *sample) add(o *Outcome) {
	s.preemptions += o.Preemptions
	s.migrations += o.Migrations
	if o.Broken {
		s.broken++
	}
	if (o.Ended || o.Run > 0) && (!s.ran || o.Submit < s.firstSubmit) {
		s.ran, s.firstSubmit = true, o.Submit
	}
	if !o.Ended {
		return
	}
	s.lastEnd = max(s.lastEnd, o.End)
	s.jcts = append(s.jcts, o.JCT())
	s.queue += o.Queue().Seconds()
}

// figures needs to be called last: it sorts the sample.
func (s *sample) figures() Figures {
	f := Figures{Jobs: len(s.jcts), BrokenFloors: s.broken, Preemptions: s.preemptions, Migrations: s.migrations}
	if f.Jobs == 0 {
		return f
	}
	sum := 0.0
	for _, d := range s.jcts {
		sum += d.Seconds()
	}
	n := float64(f.Jobs)
	f.AvgJCT, f.AvgQueue = sum/n, s.queue/n
	slices.Sort(s.jcts)
	f.MedianJCT, f.P95JCT, f.P99JCT = s.quantile(0.5), s.quantile(0.95), s.quantile(0.99)
	return f
}

// quantile is sorted[int(n*q)] in seconds, as the published replays count it.
func (s *sample) quantile(q float64) float64 {
	return s.jcts[int(math.Floor(float64(len(s.jcts))*q))].Seconds()
}

// span is the time from the first submission to the last end, or to now where the replay was cut short.
func (s *sample) span(partial bool, now unit.Time) time.Duration {
	if !s.ran {
		return 0
	}
	end := s.lastEnd
	if partial {
		end = max(end, now)
	}
	return end.Sub(s.firstSubmit)
}
