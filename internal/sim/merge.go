package sim

import (
	"slices"
	"time"

	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// merger puts the parts of a replay together.
type merger struct {
	cfg      Config
	result   *Result
	excluded trace.Exclusions
	busyTime float64 // GPU ns with a resident
	heldTime float64 // GPU thousandths x ns
	curves   [][]Usage
	now      unit.Time // how far the parts got
}

func newMerger(cfg Config) *merger {
	m := &merger{cfg: cfg, result: &Result{Outcomes: make([]Outcome, len(cfg.Jobs))}}
	m.result.Policy = cfg.Order.Name
	for i := range cfg.Jobs {
		m.result.Outcomes[i] = Outcome{Job: i, Submit: cfg.Jobs[i].Submit}
	}
	return m
}

// orphans leaves out the jobs of a part without nodes.
func (m *merger) orphans(p part) {
	reason := "no node in " + p.name()
	for _, i := range p.index {
		m.result.Refused = append(m.result.Refused, Refusal{int(i), reason})
	}
}

// add takes over what a part came to.
func (m *merger) add(e *engine) {
	r := m.result
	for job := range e.state {
		r.Outcomes[e.index[job]] = e.outcome(job)
	}
	r.Refused = append(r.Refused, e.result.refused...)
	r.Spans = append(r.Spans, e.result.spans...)
	r.Events += e.result.events
	r.Partial = r.Partial || e.result.partial
	m.busyTime += e.occupancy.busyTime
	m.heldTime += e.occupancy.heldTime
	m.curves = append(m.curves, e.occupancy.usage)
	m.now = max(m.now, e.now)
	if e.vc != "" {
		r.VCs = append(r.VCs, e.figures(r.Outcomes))
	}
}

func (e *engine) outcome(job int) Outcome {
	s := &e.state[job]
	o := Outcome{Job: int(e.index[job]), Submit: e.jobs[job].Submit, Start: s.first, Run: s.ran, Broken: s.broken, Below: s.below,
		Preemptions: int(s.preemptions), Migrations: int(s.migrations)}
	if s.ended {
		o.Ended, o.End, o.Slowdown = true, s.end, 1
		o.Standalone = !e.occupancy.shared[job]
		if d := e.jobs[job].Duration; d > 0 {
			o.Slowdown = max(1, float64(s.ran)/float64(d))
		}
	}
	return o
}

// figures is what the report says of one virtual cluster.
func (e *engine) figures(outcomes []Outcome) VC {
	var s sample
	for _, i := range e.index {
		s.add(&outcomes[i])
	}
	f := s.figures()
	v := VC{VC: e.vc, GPUs: len(e.occupancy.gpus), Jobs: f.Jobs, AvgJCT: f.AvgJCT, MedianJCT: f.MedianJCT, P99JCT: f.P99JCT,
		AvgQueue: f.AvgQueue, GPUHours: gpuHours(e.occupancy.heldTime / float64(unit.WholeGPU)), PeakGPUs: peak(e.occupancy.usage)}
	span := s.span(e.result.partial, e.now)
	v.Makespan = span.Seconds()
	v.Utilisation = fraction(e.occupancy.busyTime, float64(v.GPUs)*float64(span))
	return v
}

// finish computes the figures of the whole.
func (m *merger) finish() *Result {
	r := m.result
	var s sample
	for i := range r.Outcomes {
		s.add(&r.Outcomes[i])
		s.work(&r.Outcomes[i], &m.cfg.Jobs[i])
	}
	f := s.figures()
	f.MeanPerformance, f.BelowFloor = s.performance()
	f.Policy, f.Events, f.Partial = r.Policy, r.Events, r.Partial
	f.GPUHours = gpuHours(m.heldTime / float64(unit.WholeGPU))
	span := s.span(r.Partial, m.now)
	f.Makespan = span.Seconds()
	capacity := float64(m.cfg.Cluster.GPUs()) * float64(span)
	f.Utilisation = fraction(m.busyTime, capacity)
	f.Allocation = 100 * fraction(m.heldTime, capacity*float64(unit.WholeGPU))
	slices.SortStableFunc(r.Refused, func(a, b Refusal) int { return a.Job - b.Job })
	for _, x := range r.Refused {
		m.excluded.Count(x.Reason, 1)
	}
	f.Excluded = append([]trace.Exclusion{}, m.excluded...)
	r.Usage = sumCurves(m.curves)
	f.PeakGPUs = peak(r.Usage)
	r.Figures = f
	sortSpans(r.Spans)
	return r
}

// gpuHours converts GPU nanoseconds.
func gpuHours(ns float64) float64 { return ns / float64(time.Hour) }

// fraction is part / whole, 0 where there is no whole.
func fraction(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

func sortSpans(spans []Span) {
	slices.SortFunc(spans, func(a, b Span) int {
		switch {
		case a.End != b.End:
			return int(min(1, max(-1, a.End-b.End)))
		case a.GPU != b.GPU:
			return int(a.GPU - b.GPU)
		case a.Start != b.Start:
			return int(min(1, max(-1, a.Start-b.Start)))
		}
		return int(a.Job - b.Job)
	})
}

func peak(curve []Usage) int {
	most := 0
	for _, u := range curve {
		most = max(most, u.GPUs)
	}
	return most
}

// sumCurves adds up the usage curves of parts.
func sumCurves(curves [][]Usage) []Usage {
	if len(curves) == 1 {
		return curves[0]
	}
	var sum []Usage
	type step struct {
		at     unit.Time
		change int
	}
	var steps []step
	for _, c := range curves {
		last := 0
		for _, u := range c {
			steps = append(steps, step{u.At, u.GPUs - last})
			last = u.GPUs
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(min(1, max(-1, a.at-b.at))) })
	busy, noted := 0, 0
	for i, s := range steps {
		busy += s.change
		if (i+1 == len(steps) || steps[i+1].at > s.at) && busy != noted {
			sum = append(sum, Usage{s.at, busy})
			noted = busy
		}
	}
	return sum
}
