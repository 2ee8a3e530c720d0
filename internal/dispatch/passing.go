package dispatch

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
)

// shape is what decides whether a job finds room: jobs of one shape are as well off as each other.
type shape struct {
	kind, workers int
	class         cluster.Class
	timed         bool // it will have ended by the time that was promised to the first in line
	aged          int  // its own priority, age included
}

// harmSteps bounds the searches for harm of one plan: a few milliseconds. Where it is spent, nobody passes any more.
const harmSteps = 20_000

// aged is a job's own priority with its age.
func (p *planner) aged(job int) int { return p.jobs[job].Priority + age(p.jobs[job], p.s.Now) }

// higher says whether a job ahead may not be delayed by one of a priority at all; else it may not on the GPUs that it keeps.
func (p *planner) higher(ahead, aged int) bool { return p.o.Strict || p.aged(ahead) > aged }

func (p *planner) shapeOf(job int) shape {
	return shape{p.problem.Kind(job), p.workers(job), p.jobs[job].Class, p.inTime(job), p.aged(job)}
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
		p.kept[g].Add(job)
	}
}

// nearest are the GPUs that a job keeps: those kept by the fewest, then those nearest to taking it, then the lowest.
func (p *planner) nearest(job int) []cluster.GPU {
	type option struct {
		gpu  cluster.GPU
		kept int
		why  plan.Reason
	}
	var options []option
	for g := range cluster.GPU(len(p.s.GPUs)) {
		if n := p.kept[g].Len(); n < p.o.MaxResidents && !p.bar(job, g).Refused() {
			why, _ := p.packer.Why(job, g)
			options = append(options, option{g, n, why})
		}
	}
	slices.SortStableFunc(options, func(a, b option) int { return cmp.Or(cmp.Compare(a.kept, b.kept), nearer(a.why, b.why)) })
	keep := []cluster.GPU{}
	for _, o := range options[:min(len(options), p.workers(job))] {
		keep = append(keep, o.gpu)
	}
	return keep
}

// higherThan are those of ahead that are higher than a priority.
func (p *planner) higherThan(aged int) *placement.Ahead {
	if p.above[aged] == nil {
		p.above[aged] = p.problem.Ahead()
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
	p        *planner
	job      int
	free     bool                 // everywhere
	may      map[cluster.GPU]bool // by GPU that would take it
	offended *box.ID              // the first of those ahead that it would be in the way of
	at       int                  // its place among them
}

func (l *passing) allows(g cluster.GPU) bool {
	if l.free {
		return true
	}
	may, ok := l.may[g]
	if !ok {
		other := l.p.packer.InTheWayOf(l.job, g, [2]*placement.Ahead{l.p.higherThan(l.p.aged(l.job)), l.p.kept[g]}, &l.p.steps)
		may = other < 0
		l.may[g] = may
		if at := slices.Index(l.p.ahead, other); !may && (l.offended == nil || at < l.at) {
			l.offended, l.at = &l.p.jobs[other].ID, at
		}
	}
	return may
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
