package policy

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// shareOrWait is the rule of SJF-BSBF (Luo et al., arXiv 2407.13088): a job takes idle GPUs; where there are too few, it
// joins the residents of others, at most two to a GPU, if the two then end sooner on average than if it waited for them.
// It takes those with which they end soonest. As in the paper, run times are known, and nobody is preempted: under
// an order that preempts, a job that is given its GPUs back does not ask again.
//
// Slowdowns are what placement believes; how far a job has come is what really happened. A gang is slowed by its worst
// GPU, and shares only if that pays with every resident it joins.
//
// While a resident works on, waiting for it only becomes better; so a job that waits is asked again when another ends.
type shareOrWait struct {
	*Sharing
	o      BaselineOptions
	config []int // of each job, in the table
	now    unit.Time
	work   []work // of each running job
}

func newShareOrWait(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	o.paired()
	o.NoFloors = true
	b := &shareOrWait{Sharing: o.sharing(c, jobs), o: o, config: configsOf(jobs, o.Table), work: make([]work, len(jobs))}
	b.Sharing.choose = b.choose
	return b
}

// work is how much of its standalone run time a job has done.
type work struct {
	done  time.Duration
	rate  float64 // since the time below; 0 while it does not run
	since unit.Time
}

func (w *work) at(now unit.Time) time.Duration {
	return w.done + unit.Duration(now.Sub(w.since).Seconds()*w.rate)
}

// set takes a new rate from now on.
func (w *work) set(now unit.Time, rate float64) { w.done, w.since, w.rate = w.at(now), now, rate }

// remaining is the standalone run time in seconds that a job still needs.
func (b *shareOrWait) remaining(job int) float64 {
	return max(0, b.problem.Jobs()[job].Duration-b.work[job].at(b.now)).Seconds()
}

// Adjust implements Adjuster: nobody moves, but progress takes a clock.
func (b *shareOrWait) Adjust(now unit.Time, _ func(job int, slots []Slot, pause time.Duration)) unit.Time {
	b.now = now
	return unit.Never
}

// Place implements Placer.
func (b *shareOrWait) Place(job int) ([]Slot, bool) {
	slots, ok := b.Sharing.Place(job)
	if ok {
		b.work[job].set(b.now, 1)
	}
	return slots, ok
}

// Retake implements Retaker.
func (b *shareOrWait) Retake(job int, slots []Slot) bool {
	ok := b.Sharing.Retake(job, slots)
	if ok {
		b.work[job].set(b.now, 1)
	}
	return ok
}

// Release implements Placer.
func (b *shareOrWait) Release(job int, slots []Slot) {
	b.work[job].set(b.now, 0)
	b.Sharing.Release(job, slots)
}

// Rates implements Rater.
func (b *shareOrWait) Rates(yield func(job int, rate float64)) {
	b.Sharing.Rates(func(job int, rate float64) {
		b.work[job].set(b.now, rate)
		yield(job, rate)
	})
}

// side is one of two jobs that may share: what it still needs alone, in seconds, and its slowdown beside the other.
type side struct{ left, slowdown float64 }

// shared is the mean time to the end of two jobs that share from now on: the one that ends first is slowed all along, the
// other until then.
func shared(a, b side) float64 {
	if a.slowdown*a.left < b.slowdown*b.left {
		a, b = b, a
	}
	return a.left/2 + (1-1/(2*a.slowdown))*b.slowdown*b.left
}

// waited is the mean time to the end of two jobs when the first waits for the second.
func waited(a, b side) float64 { return b.left + a.left/2 }

// offer is a GPU whose resident a job could join.
type offer struct {
	gpu      cluster.GPU
	ours     side
	resident side
}

func (o *offer) pays() bool { return shared(o.ours, o.resident) < waited(o.ours, o.resident) }

// choose is the GPUs that a job takes, or false when it waits. O(GPUs log GPUs).
func (b *shareOrWait) choose(job int) ([]cluster.GPU, bool) {
	workers := b.problem.Jobs()[job].Workers
	gpus := b.idle(workers)
	if len(gpus) == workers {
		return gpus, true
	}
	offers := b.offers(job)
	if len(gpus)+len(offers) < workers {
		return nil, false
	}
	offers = offers[:workers-len(gpus)]
	worst := 1.0
	for i := range offers {
		worst = max(worst, offers[i].ours.slowdown)
	}
	for i := range offers {
		if offers[i].ours.slowdown = worst; !offers[i].pays() {
			return nil, false
		}
		gpus = append(gpus, offers[i].gpu)
	}
	return gpus, true
}

// offers is the GPUs that pay each by itself, the soonest mean end first; ties go to the lowest index.
func (b *shareOrWait) offers(job int) []offer {
	var offers []offer
	for _, g := range b.single(job) {
		other := b.problem.Job(b.packer.Residents(g)[0])
		x := offer{gpu: g,
			ours: side{b.remaining(job), 1 + b.o.Table.Added(b.config[job], b.config[other])},
			resident: side{b.remaining(other),
				max(1/b.packer.Rate(other), 1+b.o.Table.Added(b.config[other], b.config[job]))}}
		if x.pays() {
			offers = append(offers, x)
		}
	}
	slices.SortStableFunc(offers, func(x, y offer) int {
		return cmp.Compare(shared(x.ours, x.resident), shared(y.ours, y.resident))
	})
	return offers
}
