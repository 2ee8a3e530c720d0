package policy

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// unpacking is try-and-unpack in the manner of Gandiva (Xiao et al., OSDI 2018): it packs at a venture and asks the jobs
// afterwards. A job joins the residents that have run longest, two to a GPU, and takes idle GPUs when there are no
// others. After a window it is seen how much work the two do; where that is hardly more than one job would do alone,
// the younger moves elsewhere, and their configurations are kept apart from then on. Where it finds no other GPU it
// stays, and is looked at again later.
//
// It observes without noise, and predicts nothing.
type unpacking struct {
	*Sharing
	o       BaselineOptions
	config  []int // of each job, in the table
	now     unit.Time
	started []unit.Time // of each job that has been placed
	watches watches
	apart   map[[2]int]bool // configurations that were unpacked
}

// packGain is how much more work than one job a pair must do together to stay: rates of real jobs vary by some per cent
// from window to window, and less gain than that is none.
const packGain = 0.05

func newUnpacking(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	o.paired()
	u := &unpacking{config: configsOf(jobs, o.Table), started: make([]unit.Time, len(jobs)), apart: map[[2]int]bool{}}
	o.Admit = func(configs []int) bool { return len(configs) == 2 && !u.apart[pairOf(configs[0], configs[1])] }
	u.Sharing = o.sharing(c, jobs)
	u.o = o
	u.watches = newWatches(len(u.slots))
	u.Sharing.choose = u.choose
	u.changed = func(g cluster.GPU) { u.watches.renew(g, len(u.packer.Residents(g)), u.now, o.Window) }
	return u
}

// choose is the first of the GPUs in preference for each worker of a job.
func (u *unpacking) choose(job int) ([]cluster.GPU, bool) {
	workers := u.problem.Jobs()[job].Workers
	gpus := u.preferred(job, workers)
	if len(gpus) < workers {
		return nil, false
	}
	return gpus[:workers], true
}

// preferred is the GPUs with one resident that a worker of the job may join, that of the resident that started
// first in front, and then up to n idle ones. Ties go to the lowest index.
func (u *unpacking) preferred(job, n int) []cluster.GPU {
	gpus := u.single(job)
	since := func(g cluster.GPU) unit.Time { return u.started[u.problem.Job(u.packer.Residents(g)[0])] }
	slices.SortStableFunc(gpus, func(g, h cluster.GPU) int { return cmp.Compare(since(g), since(h)) })
	return append(gpus, u.idle(n)...)
}

// Place implements Placer.
func (u *unpacking) Place(job int) ([]Slot, bool) {
	slots, ok := u.Sharing.Place(job)
	if ok {
		u.started[job] = u.now
	}
	return slots, ok
}

// Adjust implements Adjuster. A pair that comes together after it, at this instant, is due a window from now.
func (u *unpacking) Adjust(now unit.Time, moved func(job int, slots []Slot, pause time.Duration)) unit.Time {
	u.now = now
	for _, g := range u.watches.due(now) {
		u.judge(g, moved)
	}
	return min(u.watches.next(), now.Add(u.o.Window))
}

// judge parts the residents of a GPU that do too little together.
func (u *unpacking) judge(g cluster.GPU, moved func(job int, slots []Slot, pause time.Duration)) {
	residents := u.packer.Residents(g)
	a, b := u.problem.Job(residents[0]), u.problem.Job(residents[1])
	if u.trueRateOn(a, g)+u.trueRateOn(b, g) >= 1+packGain {
		return
	}
	if pair := pairOf(u.config[a], u.config[b]); !u.apart[pair] {
		u.apart[pair] = true
		u.packer.Refresh()
	}
	younger, job := residents[1], b
	if cmp.Or(cmp.Compare(u.started[a], u.started[b]), cmp.Compare(a, b)) > 0 {
		younger, job = residents[0], a
	}
	for _, to := range u.preferred(job, 1) {
		if u.packer.MoveTo(younger, to) {
			moved(job, u.relocated(job), u.o.Pause)
			return
		}
	}
}
