package policy

import (
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/unit"
)

// Normal draws from the standard normal distribution.
type Normal interface {
	NormFloat64() float64
}

// AdjustingOptions say how predictions are corrected.
type AdjustingOptions struct {
	Belief *interference.Belief // what placement believes; its Safe table is the problem's
	Truth  *interference.Table  // what really happens
	Noise  float64              // standard deviation of an observed rate, as a share of it
	Random Normal
	Window time.Duration // how long a rate is observed before it counts
	Pause  time.Duration // how long a moved job makes no progress
	Drain  bool          // close gaps as Draining does
}

// Adjusting places jobs on predictions while they run at their true rates, and corrects itself:
//
//   - the residents of a shared GPU are observed a window after they came together, and again after twice as long each
//     time; observations correct the belief about every pair;
//   - a resident whose expected rate fell below its floor is relieved: the resident whose leaving restores the floors at the
//     least cost moves elsewhere, and its configuration is kept apart from the one it was in conflict with for a while;
//   - a pair of configurations that may be hoped to hold its floors, but is not safe to, is tried out: a few pairs at a
//     time may share all the same until they were observed often enough (pilot slices);
//   - a GPU that lost a job is emptied where that pays, within a budget of moves.
//
// Expected rates are posterior means, so one noisy window alone seldom moves a job: that is the test on several windows
// (CUSUM) of the first design, with the weight of each window left to the filter.
type Adjusting struct {
	*Draining
	o       AdjustingOptions
	config  []int // of each job, in the belief; -1 for none
	watches watches
	bans    []ban // by end
	pilots  pilots
	tokens  float64   // moves that may be spent on draining
	account []account // of each job
	over    bool      // the instant of now is over: what comes next, until Adjust, is of a later one
	ended   []int     // jobs that were released since, whose time is still to be counted
	stats   Adjustment
}

// Adjustment counts what corrections did, over the jobs of one placer.
type Adjustment struct {
	Observations int
	Repairs      []unit.Time // when a worker moved for a floor
	Stuck        int         // repairs that found no room
	Drained      int         // jobs moved to close gaps

	JobTime      time.Duration // that jobs ran
	BelowSettled time.Duration // of it below the floor, later than a window after the residents last changed
}

// Figures of the correction. Each keeps a move worth its cost.
const (
	newsworthy  = 0.005          // a change of a safe rate that placement is told of
	coolDown    = time.Hour      // how long a conflict keeps two configurations apart
	drainTokens = 1.0            // moves to close gaps per hour and GPU in use
	maxInterval = 64 * time.Hour // longest time between two observations of unchanged residents
	maxTokens   = 1000.0         // burst of moves after a quiet time
)

// NewAdjusting makes an Adjusting placer for the jobs of a problem over o.Belief.Safe() on a cluster.
func NewAdjusting(p *placement.Problem, c cluster.Cluster, o AdjustingOptions) *Adjusting {
	a := &Adjusting{Draining: NewDraining(p, c, o.Pause), o: o}
	jobs := p.Jobs()
	a.config = configsOf(jobs, o.Belief.Safe())
	a.watches = newWatches(len(a.slots))
	a.account = make([]account, len(jobs))
	a.pilots = newPilots(a)
	a.RunAt(o.Truth)
	a.changed = func(g cluster.GPU) { a.watches.renew(g, len(a.packer.Residents(g)), a.now, o.Window) }
	a.allow = a.afford
	return a
}

// Adjust implements Adjuster.
func (a *Adjusting) Adjust(now unit.Time, moved func(job int, slots []Slot, pause time.Duration)) unit.Time {
	a.tokens = min(maxTokens, a.tokens+now.Sub(a.now).Hours()*drainTokens*float64(a.packer.InUse()))
	a.now, a.over = now, false
	for _, job := range a.ended {
		a.settle(job)
	}
	a.ended = a.ended[:0]
	news := max(a.liftBans(), a.pilots.review(a))
	due := a.watches.due(now)
	for _, g := range due {
		news = max(news, a.observe(g))
	}
	if news > newsworthy {
		a.packer.Refresh()
	}
	for _, g := range due {
		a.repair(g, moved)
	}
	if a.o.Drain {
		a.Draining.Adjust(now, moved)
	}
	return a.next()
}

// next is when something is to be looked at again: at the latest a window from now, for what is placed after this call.
func (a *Adjusting) next() unit.Time {
	at := min(a.watches.next(), a.now.Add(a.o.Window))
	if len(a.bans) > 0 {
		at = min(at, a.bans[0].until)
	}
	return at
}

// afford is the budget of moves that close gaps.
func (a *Adjusting) afford(jobs []int) bool {
	if a.tokens < float64(len(jobs)) {
		return false
	}
	a.tokens -= float64(len(jobs))
	a.stats.Drained += len(jobs)
	return true
}

// observe measures the residents of a GPU and returns how far a safe rate moved.
func (a *Adjusting) observe(g cluster.GPU) float64 {
	residents, news := a.packer.Residents(g), 0.0
	for _, w := range residents {
		job := a.problem.Job(w)
		rate := a.trueRateOn(job, g) * (1 + a.o.Noise*a.o.Random.NormFloat64())
		news = max(news, a.o.Belief.Observe(a.config[job], a.others(job, residents), rate, a.o.Noise))
		a.stats.Observations++
	}
	return news
}

// others are the configurations beside a job.
func (a *Adjusting) others(job int, residents []cluster.Worker) []int {
	var others []int
	for _, w := range residents {
		if other := a.problem.Job(w); other != job {
			others = append(others, a.config[other])
		}
	}
	return others
}

// Place implements Placer.
func (a *Adjusting) Place(job int) ([]Slot, bool) {
	slots, ok := a.Draining.Place(job)
	if ok {
		a.enter(job)
	}
	return slots, ok
}

// Retake implements Retaker.
func (a *Adjusting) Retake(job int, slots []Slot) bool {
	if !a.Draining.Retake(job, slots) {
		return false
	}
	a.enter(job)
	return true
}

// enter begins to count a job that got GPUs.
func (a *Adjusting) enter(job int) {
	a.account[job].begin(a.now, 1)
	a.pilots.count(a.config[job], 1)
}

// Release implements Placer.
func (a *Adjusting) Release(job int, slots []Slot) {
	if a.over {
		a.ended = append(a.ended, job)
	} else {
		a.settle(job)
	}
	a.pilots.count(a.config[job], -1)
	a.Draining.Release(job, slots)
}

// Rates implements Rater.
func (a *Adjusting) Rates(yield func(job int, rate float64)) {
	a.Draining.Rates(func(job int, rate float64) {
		a.settle(job)
		a.account[job].begin(a.now, rate)
		yield(job, rate)
	})
	a.over = true // Rates is asked last
}

func (a *Adjusting) settle(job int) {
	a.account[job].end(a.now, a.problem.Jobs()[job].Floor, a.o.Window, &a.stats)
}

// Stats is what corrections did so far.
func (a *Adjusting) Stats() Adjustment { return a.stats }

// account is the time that a job has run at its present rate and that is not yet counted.
type account struct {
	rate  float64
	since unit.Time
}

func (c *account) begin(now unit.Time, rate float64) { c.rate, c.since = rate, now }

// end counts the time up to now.
func (c *account) end(now unit.Time, floor float64, window time.Duration, s *Adjustment) {
	ran := now.Sub(c.since)
	s.JobTime += ran
	if c.rate < floor-accountTolerance {
		s.BelowSettled += max(0, ran-window)
	}
	c.since = now
}

// accountTolerance is the slack of a floor in rounding, as for placement.
const accountTolerance = 1e-9
