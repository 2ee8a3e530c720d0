package dispatch

import (
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
	switch n := max(1, j.GPUs); {
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
