package dispatch

import (
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
)

// fit is what is known of jobs that find room where each other do, those ahead aside: those of one ask with as many workers.
type fit struct {
	judged bool // never is known
	never  Wait // why none starts whoever is there; no reason where one may
	full   bool // there is no room
	asked  bool // all GPUs for the rest, at the end
	enough bool // GPUs take it
	why    Wait // what keeps it off the nearest, or the whole gang
}

// shape is what decides whether a job starts: jobs of one shape are as well off as each other.
type shape struct {
	fit   int
	timed bool // it will have ended by the time that was promised to the first in line
	aged  int  // its own priority, age included
}

// The searches for harm of one plan are bounded: a few milliseconds on a machine, and more where there are more GPUs. Where that
// is spent, nobody passes any more.
const (
	leastSteps  = 20_000
	stepsPerGPU = 50
)

func (p *planner) harmSteps() int { return max(leastSteps, stepsPerGPU*len(p.s.GPUs)) }

// numberFits finds the fit of each job that waits.
func (p *planner) numberFits() {
	if p.packer == nil {
		return
	}
	type key struct {
		ask  int32
		gpus int
	}
	number := map[key]int{}
	p.fitOf = make([]int, len(p.jobs))
	for job, j := range p.jobs {
		if p.runs(job) {
			continue
		}
		k := key{p.packer.Ask(job), max(1, j.GPUs)}
		at, ok := number[k]
		if !ok {
			at = len(p.fits)
			number[k] = at
			p.fits = append(p.fits, fit{})
		}
		p.fitOf[job] = at
	}
}

// aged is a job's own priority with its age.
func (p *planner) aged(job int) int { return p.jobs[job].Priority + age(p.jobs[job], p.s.Now) }

// higher says whether a job ahead may not be delayed by one of a priority at all; else it may not on the GPUs that it keeps.
func (p *planner) higher(ahead, aged int) bool { return p.o.Strict || p.aged(ahead) > aged }

func (p *planner) shapeOf(job int) shape {
	return shape{p.fitOf[job], p.inTime(job), p.aged(job)}
}

// claim counts a job that waits for room among those ahead of all that follow. The first in line keeps the GPUs that it is
// promised, where it is, and others those nearest to taking them, as long as some are not yet kept by as many as could share.
func (p *planner) claim(job int) {
	for aged, list := range p.above {
		if p.higher(job, aged) {
			list.Add(job)
		}
	}
	if len(p.ahead) == 1 {
		p.promise, p.claims[job] = p.opening(job)
	}
	if p.claims[job] == nil {
		p.claims[job] = p.nearest(job)
	}
	for _, g := range p.claims[job] {
		p.kept.add(job, g)
	}
}

// higherThan are those of ahead that are higher than a priority.
func (p *planner) higherThan(aged int) *placement.Ahead {
	if p.above[aged] == nil {
		p.above[aged] = p.packer.Ahead()
		for _, job := range p.ahead {
			if p.higher(job, aged) {
				p.above[aged].Add(job)
			}
		}
	}
	return p.above[aged]
}

// passing is where a job may go without being in the way of those ahead.
type passing struct {
	p     *planner
	job   int
	free  bool             // everywhere
	known *answers         // nil until one is asked for
	above *placement.Ahead // with it
}

// law is what decides whom a job is in the way of, the GPU aside.
type law struct {
	ask   int32
	above *placement.Ahead
}

// answers are whom jobs of an ask are in the way of, by the spot of a GPU and who keeps it; -1 for nobody. They hold for one
// version of those above.
type answers struct {
	version int
	whom    map[[2]int32]int
}

// passing is set up for the job that is tried now.
func (p *planner) passing(job int, free bool) *passing {
	p.law = passing{p: p, job: job, free: free}
	return &p.law
}

// answers that hold now.
func (l *passing) answers() *answers {
	l.above = l.p.higherThan(l.p.aged(l.job))
	key := law{l.p.packer.Ask(l.job), l.above}
	known := l.p.harms[key]
	if known == nil || known.version != l.above.Version() {
		known = &answers{l.above.Version(), map[[2]int32]int{}}
		l.p.harms[key] = known
	}
	return known
}

func (l *passing) allows(g cluster.GPU) bool { return l.free || l.whom(g) < 0 }

// whom is one of those ahead that the job could be in the way of on a GPU, or one that stands for it; -1 for nobody.
func (l *passing) whom(g cluster.GPU) int {
	p := l.p
	if l.known == nil {
		l.known = l.answers()
	}
	key := [2]int32{p.packer.Spot(g), p.kept.at[g]}
	other, ok := l.known.whom[key]
	if !ok {
		other = p.packer.InTheWayOf(l.job, g, [2]*placement.Ahead{l.above, p.kept.lists[p.kept.at[g]]}, &p.steps)
		if p.steps >= 0 {
			l.known.whom[key] = other
		}
	}
	return other
}

// offended is the first of those ahead that a job could be in the way of, over all GPUs that would take it.
func (l *passing) offended() int {
	p, first := l.p, len(l.p.ahead)-1
	for g := range cluster.GPU(len(p.s.GPUs)) {
		if !p.packer.Takes(l.job, g) {
			continue
		}
		if other := l.whom(g); other >= 0 {
			first = min(first, p.place[l.standsFor(other, g)])
		}
	}
	return p.ahead[first]
}

// standsFor is the job that one of the same ask stands for on a GPU: the first of those above, or else of those that keep it.
func (l *passing) standsFor(other int, g cluster.GPU) int {
	if first := l.above.First(l.p.packer.Ask(other)); first >= 0 {
		return first
	}
	return l.p.kept.first(l.p.packer.Ask(other), g)
}

// inTime says whether a job will have ended before the first in line starts at the latest.
func (p *planner) inTime(job int) bool {
	if p.promise.IsZero() || p.o.Strict {
		return false
	}
	end, ok := p.end(job)
	return ok && !end.After(p.promise)
}

// opening is when a job that does not fit now fits at the latest, and where; zero for unknown.
func (p *planner) opening(job int) (time.Time, []cluster.GPU) {
	leaving := p.leaving()
	n, gpus := p.packer.OpensAfter(job, leaving)
	if n <= 0 {
		return time.Time{}, nil
	}
	end, _ := p.end(leaving[n-1])
	return end, gpus
}

// leaving are the jobs on GPUs that end by a known time, in that order.
func (p *planner) leaving() []int {
	var leaving []int
	for i := range p.jobs {
		if _, ok := p.end(i); ok && len(p.on[i])+len(p.placed[i]) > 0 {
			leaving = append(leaving, i)
		}
	}
	slices.SortStableFunc(leaving, func(a, b int) int {
		x, _ := p.end(a)
		y, _ := p.end(b)
		return x.Compare(y)
	})
	return leaving
}
