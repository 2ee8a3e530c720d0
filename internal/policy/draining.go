package policy

import (
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/unit"
)

// drainFactor is how many times its cost in GPU time a migration must be expected to save: expectations are rough, and
// a cluster that moves jobs for nothing angers their users.
const drainFactor = 2

// Draining is Sharing that closes gaps: when a job leaves, the GPUs it was on are tried to be emptied by moving their
// other residents to GPUs in use. A migration costs every worker of a moved job the pause; it saves the GPU until its
// last resident would have left. Nobody knows when that is: a job is expected to run on for as long as it has run, for
// run times are heavy-tailed. A job only moves when it is so far ahead of its floor that the pause does not bring it
// below.
type Draining struct {
	*Sharing
	pause   time.Duration
	now     unit.Time
	started []unit.Time // of each job that has been placed
	credits []credit    // of each running job
	left    []cluster.GPU
	allow   func(jobs []int) bool // has the last word on moving jobs; nil for always
}

// NewDraining makes a Draining placer for the jobs of a problem on a cluster. pause is how long a moved job makes no
// progress.
func NewDraining(p *placement.Problem, c cluster.Cluster, pause time.Duration) *Draining {
	n := len(p.Jobs())
	return &Draining{Sharing: NewSharing(p, c), pause: pause, started: make([]unit.Time, n), credits: make([]credit, n)}
}

// Place implements Placer.
func (d *Draining) Place(job int) ([]Slot, bool) {
	slots, ok := d.Sharing.Place(job)
	if ok {
		d.started[job] = d.now
		d.credits[job] = credit{floor: d.problem.Jobs()[job].Floor, rate: 1, since: d.now}
	}
	return slots, ok
}

// Rates implements Rater.
func (d *Draining) Rates(yield func(job int, rate float64)) {
	d.Sharing.Rates(func(job int, rate float64) {
		d.credits[job].set(d.now, rate)
		yield(job, rate)
	})
}

// Release implements Placer.
func (d *Draining) Release(job int, slots []Slot) {
	d.left = append(d.left, d.gpus[job]...)
	d.Sharing.Release(job, slots)
}

// Adjust implements Adjuster.
func (d *Draining) Adjust(now unit.Time, moved func(job int, slots []Slot, pause time.Duration)) unit.Time {
	d.now = now
	slices.Sort(d.left)
	for _, g := range slices.Compact(d.left) {
		for _, job := range d.packer.Drain(g, func(jobs []int) bool { return d.worth(g, jobs) }) {
			d.resettle(job, moved)
		}
	}
	d.left = d.left[:0]
	return unit.Never
}

// resettle makes known where a job is now, and charges it the pause.
func (d *Draining) resettle(job int, moved func(job int, slots []Slot, pause time.Duration)) {
	slots := d.relocated(job)
	d.credits[job].set(d.now, 1)
	d.credits[job].spend(d.now, d.pause)
	moved(job, slots, d.pause)
}

// worth weighs the GPU time saved by emptying g against what moving jobs costs, and refuses to break a floor.
func (d *Draining) worth(g cluster.GPU, jobs []int) bool {
	saved, cost := time.Duration(0), time.Duration(0)
	for _, job := range jobs {
		if d.credits[job].at(d.now) < d.pause {
			return false
		}
		if slices.Contains(d.gpus[job], g) {
			saved = max(saved, d.now.Sub(d.started[job]))
		}
		cost += d.pause * time.Duration(d.problem.Jobs()[job].Workers)
	}
	return saved >= drainFactor*cost && (d.allow == nil || d.allow(jobs))
}
