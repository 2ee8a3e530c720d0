package dispatch

import (
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
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
	place   []int                    // of each job of ahead among them
	claims  [][]cluster.GPU          // that each of ahead keeps for itself among its equals; by job
	kept    keeping                  // who keeps which GPU
	above   map[int]*placement.Ahead // those of ahead that are higher than a priority, by that
	harms   map[law]*answers
	fits    []fit
	fitOf   []int // of each job that waits
	held    map[shape]box.ID
	far     distances
	single  []place // room for offerNode
	tallies [2]*placement.Tally
	law     passing
	promise time.Time // when ahead[0] starts at the latest; zero for unknown
	steps   int       // of searching for harm that are left
}

func newPlanner(s *State) *planner {
	p := &planner{board: newBoard(s, true), placed: map[int][]cluster.GPU{}, waits: map[int]Wait{}, above: map[int]*placement.Ahead{},
		harms: map[law]*answers{}, held: map[shape]box.ID{}}
	p.levels, p.place, p.claims = make([]int, len(p.jobs)), make([]int, len(p.jobs)), make([][]cluster.GPU, len(p.jobs))
	p.numberFits()
	p.kept = newKeeping(p.board)
	p.steps = p.harmSteps()
	for i := range p.tallies {
		p.tallies[i] = placement.NewTally(len(p.sorts.nodes), 1)
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
	if p.packer == nil {
		w.Reason = plan.Reason{Code: plan.TooLarge, Got: float64(max(1, j.GPUs))}
		return w, true
	}
	f := &p.fits[p.fitOf[job]]
	if !f.judged {
		f.judged, f.never = true, p.impossible(job)
	}
	w = f.never
	w.Job = j.ID
	return w, w.Reason.Refused()
}

// impossible is hopeless for all jobs that are as well off as each other.
func (p *planner) impossible(job int) Wait {
	n, together, peak := p.workers(job), p.together(job), p.jobs[job].Memory.Peak()
	open, large, allowed, largest := p.tallies[0], p.tallies[1], 0, unit.Bytes(0)
	open.Reset(together)
	large.Reset(together)
	w := Wait{GPU: -1}
	var refused refusals
	for g := range p.s.GPUs {
		r, usable := p.bar(job, cluster.GPU(g)), p.s.GPUs[g].Usable
		if r.Code != plan.NodeMismatch {
			allowed++
			largest = max(largest, usable)
			if usable >= peak {
				large.Add(p.node(cluster.GPU(g)))
			}
		}
		if !r.Refused() {
			open.Add(p.node(cluster.GPU(g)))
			continue
		}
		refused[rank(r.Code)]++
		if w.GPU < 0 || nearer(r, w.Reason) < 0 {
			w.GPU, w.Reason = g, r
		}
	}
	w.Refused = refused.byCode()
	most, _ := large.Most()
	switch asked := max(1, p.jobs[job].GPUs); {
	case open.Enough(n):
		return Wait{}
	case allowed == 0:
		w.GPU = -1
		return w
	case allowed >= n && large.Count() == 0:
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(peak), Limit: float64(largest)}}
	case together > 1 && most < together:
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(together), Limit: float64(most)}}
	case !large.Enough(n):
		return Wait{GPU: -1, Reason: plan.Reason{Code: plan.TooLarge, Got: float64(asked), Limit: float64(large.Workers())}}
	}
	return w
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
		p.place[job] = len(p.ahead)
		p.ahead = append(p.ahead, job)
		p.claim(job)
	}
}

// start puts a job on GPUs if it may.
func (p *planner) start(job int) bool {
	shape := p.shapeOf(job)
	if p.fits[shape.fit].full || p.held[shape] != 0 {
		return false
	}
	law := p.passing(job, shape.timed || len(p.ahead) == 0)
	gpus, r := p.packer.AddWhere(job, law.allows)
	if !r.Refused() {
		p.starts = append(p.starts, job)
		p.placed[job] = gpus
		return true
	}
	if !law.free && p.packer.Finds(job) {
		p.held[shape] = p.jobs[law.offended()].ID
	} else {
		p.fits[shape.fit].full = true
	}
	return false
}

// decision is the outcome, with the reasons as they are after all starts.
func (p *planner) decision() Decision {
	var d Decision
	for _, job := range p.starts {
		d.Starts = append(d.Starts, Start{p.jobs[job].ID, indexes(p.placed[job])})
	}
	for _, job := range slices.Concat(p.order, p.last) {
		d.Order = append(d.Order, p.jobs[job].ID)
		d.Waits = append(d.Waits, p.wait(job))
	}
	if !p.promise.IsZero() {
		d.Promised = map[box.ID]time.Time{p.jobs[p.ahead[0]].ID: p.promise}
	}
	return d
}
