package sim

import (
	"slices"

	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// preemptiveLine goes through all live jobs in order whenever something happened:
//
//   - a running job keeps its GPUs, unless a job before it takes them in this pass;
//   - a waiting job gets GPUs that nobody holds; where there are none for it, it gets those it would get if the last
//     1, 2, 4, ... jobs of the order, at most all behind it, held none. Of these, whose GPUs it does not take keep theirs;
//   - a job that so loses its GPUs gets others in its turn (a migration), or waits (a preemption);
//   - a job that finds no room is passed over, and with it, in this pass, all jobs of its shape behind it.
//
// Work done is kept. Nobody moves without need.
type preemptiveLine struct {
	*engine
	steady   bool     // running jobs keep their order by running on
	running  []runner // in order; where not steady, in the order of the last pass
	places   []place  // scratch of rerank
	waiting  []waiting
	active   []int32 // shapes with waiting jobs
	shape    []int32 // of each job
	size     []int64 // GPU thousandths that each job asks for
	capacity int64   // GPU thousandths there are
	held     int64   // GPU thousandths taken, by the placer's books

	// of the present pass
	pass    uint32
	refused []uint32 // shapes: the last pass that refused one
	heads   waiting  // first job of each active shape not refused yet
	losing  int      // runners that lost their GPUs and whose turn is still to come
	behind  int64    // what the runners from behindOf on hold; behindOf -1: unknown
	counted int
	started []int32 // waiting jobs that got GPUs
	lost    []int32 // running jobs that lost their GPUs, though they may have got others since
	kept    []policy.Slot
}

// runner is a job on the list of running ones.
type runner struct {
	job      int32
	resident bool  // still on the GPUs that it had before the pass
	holds    int64 // GPU thousandths by the placer's books; 0 when it lost them in this pass
}

func newPreemptiveLine(e *engine) *preemptiveLine {
	l := &preemptiveLine{engine: e, size: make([]int64, len(e.jobs)),
		capacity: int64(len(e.occupancy.gpus)) * int64(unit.WholeGPU),
		steady:   e.order.Steady && e.rater == nil && e.restartCost == 0}
	var shapes int
	l.shape, shapes = shapesOf(e.jobs)
	l.waiting, l.refused = make([]waiting, shapes), make([]uint32, shapes)
	for i := range e.jobs {
		l.size[i] = int64(e.jobs[i].Workers) * int64(e.jobs[i].Share)
	}
	return l
}

func (l *preemptiveLine) add(job int32) {
	shape := l.shape[job]
	if len(l.waiting[shape]) == 0 {
		l.active = append(l.active, shape)
	}
	l.waiting[shape].push(l.place(job))
}

// leave takes the first job of a shape out of the line.
func (l *preemptiveLine) leave(shape int32) {
	l.waiting[shape].pop()
	if len(l.waiting[shape]) == 0 {
		i := slices.Index(l.active, shape)
		l.active = slices.Delete(l.active, i, i+1)
	}
}

func (l *preemptiveLine) gone(job int32) {
	i := l.find(job)
	l.held -= l.running[i].holds
	l.running = slices.Delete(l.running, i, i+1)
}

func (l *preemptiveLine) moved(job int32) {
	i := l.find(job)
	r := l.running[i]
	l.running = slices.Delete(l.running, i, i+1)
	l.insert(r)
}

// freed does not matter: every pass asks anew.
func (l *preemptiveLine) freed() {}

func (l *preemptiveLine) find(job int32) int {
	return slices.IndexFunc(l.running, func(r runner) bool { return r.job == job })
}

func (l *preemptiveLine) insert(r runner) {
	l.running = slices.Insert(l.running, l.search(0, l.place(r.job)), r)
}

// search is the first runner at or after index from that stands behind p.
func (l *preemptiveLine) search(from int, p place) int {
	to := len(l.running)
	for from < to {
		middle := int(uint(from+to) / 2)
		if p.before(l.place(l.running[middle].job)) {
			to = middle
		} else {
			from = middle + 1
		}
	}
	return from
}

// rerank puts the running jobs in their present order, which differs little from the last one.
func (l *preemptiveLine) rerank() {
	l.places = l.places[:0]
	for i, r := range l.running {
		p := l.place(r.job)
		l.places = append(l.places, p)
		for ; i > 0 && p.before(l.places[i-1]); i-- {
			l.places[i], l.running[i] = l.places[i-1], l.running[i-1]
		}
		l.places[i], l.running[i] = p, r
	}
}

func (l *preemptiveLine) serve() {
	if len(l.active) == 0 {
		return
	}
	l.pass++
	l.counted = -1
	for _, shape := range l.active {
		l.heads.push(l.waiting[shape][0])
	}
	for len(l.heads) > 0 && l.seat(l.heads[0].job) {
		l.served(l.heads[0].job) // so far no running job is concerned
	}
	if !l.steady && len(l.heads) > 0 {
		l.rerank()
	}
	for i := 0; len(l.heads) > 0 || l.losing > 0; {
		turn := len(l.running)
		if len(l.heads) > 0 {
			turn = l.search(i, l.heads[0])
		}
		for ; i < turn && l.losing > 0; i++ {
			l.revive(i)
		}
		i = turn
		if len(l.heads) > 0 {
			l.try(i)
		}
	}
	l.settle()
}

// try lets the first of the heads have GPUs; the runners from index next on stand behind it.
func (l *preemptiveLine) try(next int) {
	job := l.heads[0].job
	shape := l.shape[job]
	switch {
	case l.refused[shape] == l.pass:
		l.heads.pop()
	case l.claim(job, next):
		l.served(job)
	case next == 0 && len(l.started) == 0: // though all others were out of the way
		l.refuseWaiting(job)
		l.advanceHead(shape)
	default:
		l.refused[shape] = l.pass
		l.heads.pop()
	}
}

// served notes that the first of the heads got GPUs.
func (l *preemptiveLine) served(job int32) {
	l.started = append(l.started, job)
	l.advanceHead(l.shape[job])
}

// advanceHead takes the first of the heads, which is of the given shape, out of the line; the next job of the shape
// takes its place.
func (l *preemptiveLine) advanceHead(shape int32) {
	l.heads.pop()
	l.leave(shape)
	if len(l.waiting[shape]) > 0 {
		l.heads.push(l.waiting[shape][0])
	}
}

// revive is the turn of a runner: if it lost its GPUs, it may have others.
func (l *preemptiveLine) revive(i int) {
	r := &l.running[i]
	if r.holds > 0 {
		return
	}
	l.losing--
	l.heldBehind(i + 1) // count past this runner before it holds something again
	shape := l.shape[r.job]
	if l.refused[shape] != l.pass && l.claim(r.job, i+1) {
		r.holds = l.size[r.job]
	} else {
		l.refused[shape] = l.pass
	}
}
