package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// What a method's figures over time rest on. A replay starts every job when it was submitted, places it by the
// method's own step and lets it run longer where it shares. A sampled figure plans the jobs that run at evenly spread
// instants anew: the method has no step for one arrival. Its GPU-hours count the longer run time by the mean
// performance.
const (
	basisReplay  = "replay"
	basisSampled = "sampled"
)

// timeSamples is how many instants a sampled figure looks at. Each stands for an equal part of the workers' time, so
// busy hours count by what runs in them; the busiest instant is looked at besides.
const timeSamples = 48

// Bounds that keep a sampled figure to some ten seconds on any log, by what makes an instant dear: the jobs planned over all
// instants together; for exact the cube of the workers, three thousand million of which are some seconds; for lp the
// groups of jobs, with more of which the rounding searches long. They are counts, so that equal logs give equal
// figures on any machine. The least number of instants still tells a quiet log from a busy one.
const (
	sampledJobs  = 200_000
	sampledCubes = 3e9
	easyGroups   = 40
	hardSamples  = 12
	leastSamples = 6

	// sampledSeconds is when a figure is left out all the same.
	sampledSeconds = 15
)

// samplesOf is the number of instants for a method.
func (in *planInput) samplesOf(m placement.Method, peak int) int {
	n := min(timeSamples, sampledJobs/peak)
	switch {
	case m.Name == "exact":
		n = min(n, int(sampledCubes/math.Pow(float64(peak), 3)))
	case m.Name == "lp" && in.groups() > easyGroups:
		n = min(n, hardSamples)
	}
	return max(n, leastSamples)
}

// groups is how many kinds of jobs there are, memory aside.
func (in *planInput) groups() int {
	type group struct {
		model, batch string
		floor        float64
		class        cluster.Class
	}
	seen := map[group]struct{}{}
	for j := range in.jobs {
		job := &in.jobs[j]
		seen[group{job.Model, job.Batch, job.Floor, job.Class}] = struct{}{}
	}
	return len(seen)
}

// overTime adds the figures over the time of the log.
func (s *planStudy) overTime(ctx context.Context, out *session, c *planCommand, in *planInput, methods []placement.Method) {
	alone := concurrency(in.jobs, 1)
	start, end := alone.span()
	dedicated := alone.hours()
	if dedicated <= 0 {
		return // nothing runs for any time
	}
	s.span = fmt.Sprintf("The log spans %s.", report.Duration(end.Sub(start)))
	for _, m := range methods {
		pulse := out.pulse("plan: over time, " + m.Name)
		row, ok := await(ctx, func() planOverTime { return c.rowOverTime(ctx, out.clock, in, m, alone) })
		pulse.stop()
		if !ok || interrupted(row.err) {
			s.interrupt("in the figures over time, method " + m.Name)
			return
		}
		if row.err != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("over time, %s: %v", m.Name, row.err))
			continue
		}
		if row.note != "" {
			s.Notes = append(s.Notes, row.note)
		}
		row.Method = m.Name
		row.Average = row.GPUHours / end.Sub(start).Hours()
		row.Saved = 1 - row.GPUHours/dedicated
		s.OverTime = append(s.OverTime, row)
	}
}

func (c *planCommand) rowOverTime(ctx context.Context, clock func() time.Time, in *planInput, m placement.Method, alone steps) planOverTime {
	switch m.Name {
	case "dedicated":
		return planOverTime{Peak: alone.peak(), GPUHours: alone.hours(), Basis: basisReplay}
	case "greedy", "peak":
		return c.replayed(ctx, in, m.Name == "peak")
	}
	return c.sampled(ctx, clock, in, m, alone)
}

// replayed runs the greedy step for every arrival on as many GPUs as are needed.
func (c *planCommand) replayed(ctx context.Context, in *planInput, atPeak bool) planOverTime {
	slowest := 1.0
	for j := range in.jobs {
		slowest = min(slowest, in.jobs[j].Floor)
	}
	pool := cluster.Uniform(1, concurrency(in.jobs, 1/slowest).peak())
	p := in.problem(c.Sharing.options())
	if atPeak {
		p = p.AtPeak()
	}
	r, err := sim.Run(ctx, sim.Config{Cluster: pool, Jobs: in.jobs, Order: policy.FIFO(), Placer: policy.NewSharing(p, pool)})
	if err != nil {
		return planOverTime{err: err}
	}
	return planOverTime{Peak: r.PeakGPUs, GPUHours: r.GPUHours, Basis: basisReplay, err: ctx.Err()}
}

// sampled plans the jobs that run at some instants.
func (c *planCommand) sampled(ctx context.Context, clock func() time.Time, in *planInput, m placement.Method, alone steps) planOverTime {
	n := in.samplesOf(m, alone.peak())
	row := planOverTime{Basis: basisSampled}
	if n < timeSamples {
		row.note = fmt.Sprintf("over time, %s: %d instants instead of %d, for each takes long", m.Name, n, timeSamples)
	}
	busiest, instants := alone.samples(n)
	began := clock()
	for i, t := range append(instants, busiest) {
		running := in.at(t)
		p := running.problem(c.Sharing.options())
		q, err := m.Pack(ctx, p)
		if err != nil {
			return planOverTime{err: err}
		}
		f := p.Figures(q)
		row.Peak = max(row.Peak, f.GPUs)
		if i < n {
			row.GPUHours += alone.hours() / float64(n) * float64(f.GPUs) / f.MeanPerformance / float64(p.Workers())
		}
		if took := clock().Sub(began).Seconds(); took > sampledSeconds && i < n {
			return planOverTime{err: fmt.Errorf("left out: %d of %d instants took %.0f s", i+1, n+1, took)}
		}
	}
	return row
}

// at is the jobs that run at an instant.
func (in *planInput) at(t unit.Time) *planInput {
	running := &planInput{table: in.table}
	for j := range in.jobs {
		if job := &in.jobs[j]; job.Submit <= t && t < job.Submit.Add(job.Duration) {
			running.jobs = append(running.jobs, *job)
			running.profiles = append(running.profiles, in.profiles[j])
		}
	}
	return running
}

// steps is a number of workers that changes over time, ascending.
type steps []sim.Usage

// concurrency is how many workers run if each job starts when submitted and runs stretch times as long as alone.
func concurrency(jobs []cluster.Job, stretch float64) steps {
	var changes steps
	for j := range jobs {
		job := &jobs[j]
		run := unit.Duration(job.Duration.Seconds() * stretch)
		changes = append(changes, sim.Usage{At: job.Submit, GPUs: job.Workers}, sim.Usage{At: job.Submit.Add(run), GPUs: -job.Workers})
	}
	slices.SortFunc(changes, func(a, b sim.Usage) int {
		if a.At != b.At {
			return int(min(1, max(-1, a.At-b.At)))
		}
		return a.GPUs - b.GPUs // ends first
	})
	running := 0
	for i := range changes {
		running += changes[i].GPUs
		changes[i].GPUs = running
	}
	return changes
}

func (s steps) span() (start, end unit.Time) {
	if len(s) == 0 {
		return 0, 0
	}
	return s[0].At, s[len(s)-1].At
}

func (s steps) peak() int {
	most := 0
	for _, u := range s {
		most = max(most, u.GPUs)
	}
	return most
}

// samples are n instants, each in the middle of an equal part of the area under the curve, and the busiest instant.
func (s steps) samples(n int) (busiest unit.Time, instants []unit.Time) {
	total, sum, most := s.hours(), 0.0, 0
	for i := 1; i < len(s); i++ {
		if s[i-1].GPUs > most {
			most, busiest = s[i-1].GPUs, s[i-1].At
		}
		length := s[i].At.Sub(s[i-1].At)
		area := float64(s[i-1].GPUs) * length.Hours()
		for len(instants) < n && area > 0 {
			part := ((float64(len(instants))+0.5)/float64(n)*total - sum) / area
			if part >= 1 {
				break
			}
			instants = append(instants, s[i-1].At.Add(time.Duration(part*float64(length))))
		}
		sum += area
	}
	for len(instants) < n { // rounding left the last one out
		instants = append(instants, busiest)
	}
	return busiest, instants
}

// hours is the GPU-hours under the curve.
func (s steps) hours() float64 {
	sum := 0.0
	for i := 1; i < len(s); i++ {
		sum += float64(s[i-1].GPUs) * s[i].At.Sub(s[i-1].At).Hours()
	}
	return sum
}
