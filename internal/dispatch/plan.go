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

// Plan decides which waiting jobs start now. Jobs are tried in the order of the queue. One that does not fit waits, and from
// then on another starts only where it cannot be in the way of any that waits before it: see docs/queue.md.
func Plan(s *State) Decision {
	p := newPlanner(s)
	p.run()
	return p.decision()
}

// planner goes through the queue once.
type planner struct {
	*board
	q       *queue
	levels  []int // that each job was picked at: its priority, age included
	order   []int // waiting jobs as they were picked
	last    []int // waiting jobs that are not in the queue: nothing on this machine starts them now
	starts  []int
	placed  map[int][]cluster.GPU // each start
	waits   map[int]Wait
	ahead   []int                    // jobs that wait for room, as they were picked
	claims  map[int][]cluster.GPU    // that each of ahead keeps for itself among its equals
	kept    []*placement.Ahead       // those who keep it, of each GPU
	above   map[int]*placement.Ahead // those of ahead that are higher than a priority, by that
	hidden  map[shape]bool
	held    map[shape]box.ID
	promise time.Time // when ahead[0] starts at the latest; zero for unknown
	steps   int       // of searching for harm that are left
}

// shape is what decides whether a job finds room: jobs of one shape are as well off as each other.
type shape struct {
	kind, workers int
	class         cluster.Class
	timed         bool // it will have ended by the time that was promised to the first in line
	aged          int  // its own priority, age included
}

// harmSteps bounds the searches for harm of one plan: a few milliseconds. Where it is spent, nobody passes any more.
const harmSteps = 20_000

func newPlanner(s *State) *planner {
	p := &planner{board: newBoard(s, true), placed: map[int][]cluster.GPU{}, waits: map[int]Wait{}, hidden: map[shape]bool{},
		held: map[shape]box.ID{}, claims: map[int][]cluster.GPU{}, above: map[int]*placement.Ahead{}, steps: harmSteps}
	p.levels = make([]int, len(p.jobs))
	for range s.GPUs {
		p.kept = append(p.kept, p.problem.Ahead())
	}
	var waiting []int
	for i := range p.jobs {
		if p.runs(i) {
			continue
		}
		if w, ok := p.hopeless(i); ok {
			p.waits[i] = w
			p.last = append(p.last, i)
		} else {
			waiting = append(waiting, i)
		}
	}
	p.q = newQueue(p.board, waiting)
	return p
}

// hopeless says why a job cannot start on this machine as it is, whoever else is there.
func (p *planner) hopeless(job int) (Wait, bool) {
	j := p.jobs[job]
	w := Wait{Job: j.ID, GPU: -1}
	if j.Waits != "" {
		w.Reason = plan.Reason{Code: j.Waits}
		return w, true
	}
	peak, large, open := j.Memory.Peak(), 0, 0
	for g := range p.s.GPUs {
		if p.s.GPUs[g].Usable >= peak {
			large++
		}
		r := p.bar(job, cluster.GPU(g))
		if !r.Refused() {
			open++
		} else if w.GPU < 0 || nearer(r, w.Reason) < 0 {
			w.GPU, w.Reason = g, r
		}
	}
	switch n := p.workers(job); {
	case open >= n:
		return Wait{}, false
	case len(p.s.GPUs) >= n && large == 0:
		return Wait{Job: j.ID, GPU: -1, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(peak), Limit: float64(p.largest)}}, true
	case large < n:
		return Wait{Job: j.ID, GPU: -1, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(n), Limit: float64(large)}}, true
	}
	return w, true
}

// run picks every job of the queue and starts it or notes why not.
func (p *planner) run() {
	for job, level := p.q.next(); job >= 0; job, level = p.q.next() {
		p.levels[job] = level
		if r := p.q.pick(job); r.Refused() {
			p.order = append(p.order, job)
			p.waits[job] = Wait{Job: p.jobs[job].ID, Reason: r, GPU: -1}
			continue
		}
		if p.start(job) {
			continue
		}
		p.order = append(p.order, job)
		p.ahead = append(p.ahead, job)
		p.claim(job)
	}
}

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

// start puts a job on GPUs if it may.
func (p *planner) start(job int) bool {
	shape := p.shapeOf(job)
	if p.hidden[shape] || p.held[shape] != 0 {
		return false
	}
	law := passing{p: p, job: job, free: shape.timed || len(p.ahead) == 0, may: map[cluster.GPU]bool{}}
	gpus, r := p.packer.AddWhere(job, law.allows)
	switch {
	case !r.Refused():
		p.starts = append(p.starts, job)
		p.placed[job] = gpus
		return true
	case law.offended != nil && len(law.may) >= shape.workers:
		p.held[shape] = *law.offended
	default:
		p.hidden[shape] = true
	}
	return false
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

// decision is the outcome, with the reasons as they are after all starts.
func (p *planner) decision() Decision {
	var d Decision
	for _, job := range p.starts {
		d.Starts = append(d.Starts, Start{p.jobs[job].ID, indexes(p.placed[job])})
	}
	known := map[shape]Wait{}
	for _, job := range slices.Concat(p.order, p.last) {
		d.Order = append(d.Order, p.jobs[job].ID)
		d.Waits = append(d.Waits, p.wait(job, known))
	}
	if !p.promise.IsZero() {
		d.Promised = map[box.ID]time.Time{p.jobs[p.ahead[0]].ID: p.promise}
	}
	return d
}

// wait is why a job waits. Equal jobs have equal reasons.
func (p *planner) wait(job int, known map[shape]Wait) Wait {
	if w, ok := p.waits[job]; ok {
		return w
	}
	shape := p.shapeOf(job)
	w, ok := known[shape]
	if !ok {
		w = p.refusal(job, shape)
		known[shape] = w
	}
	w.Job = p.jobs[job].ID
	if w.Reason.Code == plan.Priority {
		w.Reason.Got, w.Reason.Limit = float64(p.levels[job]), float64(p.levels[p.number[w.After]])
	}
	return w
}

// refusal is the reason of the GPU that comes nearest to taking a job, or of the whole gang.
func (p *planner) refusal(job int, s shape) Wait {
	w, taken := Wait{GPU: -1}, 0
	for g := range cluster.GPU(len(p.s.GPUs)) {
		r, resident := p.packer.Why(job, g)
		if !r.Refused() {
			taken++
		} else if w.GPU < 0 || nearer(r, w.Reason) < 0 {
			w.GPU, w.Reason, w.Resident = int(g), r, p.idOf(resident)
		}
	}
	switch n := p.workers(job); {
	case taken >= n && len(p.ahead) > 0:
		first := p.jobs[p.ahead[0]].ID
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.Priority}, After: cmp.Or(p.held[s], first)}
	case taken > 0:
		w.Reason = plan.Reason{Code: plan.Gang, Got: float64(n), Limit: float64(taken)}
	}
	return w
}

// idOf is the ID of a job by its number; 0 for none.
func (b *board) idOf(job int) box.ID {
	if job < 0 {
		return 0
	}
	return b.jobs[job].ID
}

// firmness orders what refuses a GPU by how far it is from giving way; codes that are not listed come last.
var firmness = []plan.Code{"", plan.Priority, plan.MemoryOverflow, plan.FloorResident, plan.FloorSelf, plan.MemoryReserved, plan.MaxResidents,
	plan.ClassConflict, plan.PairBanned, plan.ProfileUnknown, plan.Foreign, plan.Drained, plan.GPUUnhealthy}

// nearer orders refusals: the one closer to giving way first, by its code, then by how far off it is.
func nearer(a, b plan.Reason) int {
	return cmp.Or(cmp.Compare(rank(a.Code), rank(b.Code)), cmp.Compare(short(a), short(b)))
}

func rank(c plan.Code) int {
	if i := slices.Index(firmness, c); i >= 0 {
		return i
	}
	return len(firmness)
}

// short is how far off a refusal is: the excess as a share of what is allowed, or the deficit of a floor.
func short(r plan.Reason) float64 {
	switch {
	case r.Code == plan.MemoryOverflow:
		return r.Got - r.Limit
	case r.Limit == 0:
		return 0
	case r.Code == plan.FloorResident || r.Code == plan.FloorSelf:
		return 1 - r.Got/r.Limit
	}
	return r.Got/r.Limit - 1
}
