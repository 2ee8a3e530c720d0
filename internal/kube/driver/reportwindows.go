package driver

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/unit"
)

// Figures of reports.
const (
	firstWindows = 6   // beside new neighbours that are one period long
	mostPeriods  = 16  // of a window, while figures stay alike
	alike        = 0.1 // lost shares that are no further apart, and speeds by no more than this share, are alike
)

// windows decides which windows of a node's workers are due, and what they say. It is pure: looks at the agent go in. Windows of a
// worker follow on each other without a gap, but for three: the moment between two looks in which its neighbours changed, a window
// that ends there before half a period, and time in which it had no process or did nothing at all.
type windows struct {
	period time.Duration
	of     map[string]*running // by the UID of the claim
}

// due is a window that is to be told of.
type due struct {
	claim  string // UID
	window v1alpha1.Window
}

// running is the window of a worker that has not ended, and what decides how long it becomes.
type running struct {
	first, turn, last sight // its begin, the end of its last whole period, the last look
	with              company
	periods           int // whole ones in it
	length            int // periods that it is to have
	windows           int // told of since the neighbours changed; no more are counted than firstWindows
	before            *agent.Window

	writing bool   // the last window is on its way
	unsaid  *sight // its begin, if the running window could cover it, too
}

// sight is one look at a worker.
type sight struct {
	at   time.Time
	job  *agent.Job
	busy float64 // seconds in which its first GPU was, since it was first seen
}

// company is who is with a worker on its GPUs. While it stays the same, what is seen of the worker can be averaged.
type company struct {
	own     bool     // it has a process itself
	jobs    []uint64 // other allocations
	escaped []int    // their processes that take no turns
	foreign []int    // processes of nobody
}

func (c *company) equal(o *company) bool {
	return c.own == o.own && slices.Equal(c.jobs, o.jobs) && slices.Equal(c.escaped, o.escaped) && slices.Equal(c.foreign, o.foreign)
}

// companyOf is who is with a job.
func companyOf(j *agent.Job, stats *agent.Stats) company {
	c := company{own: len(j.PIDs) > 0}
	for i := range stats.Jobs {
		o := &stats.Jobs[i]
		if o.ID == j.ID || !slices.ContainsFunc(o.GPUs, func(g int) bool { return slices.Contains(j.GPUs, g) }) {
			continue
		}
		c.jobs = append(c.jobs, o.ID)
		c.escaped = appendOn(c.escaped, o.Escaped, j.GPUs)
	}
	for i := range stats.GPUs {
		c.foreign = appendOn(c.foreign, stats.GPUs[i].Foreign, j.GPUs)
	}
	slices.Sort(c.jobs)
	c.escaped, c.foreign = sorted(c.escaped), sorted(c.foreign)
	return c
}

// appendOn adds the processes that are on one of some GPUs.
func appendOn(pids []int, list []agent.Escaped, gpus []int) []int {
	for _, p := range list {
		if slices.Contains(gpus, p.GPU) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func sorted(pids []int) []int {
	slices.Sort(pids)
	return slices.Compact(pids)
}

// look takes what is seen of the node, and says which windows are due. Those that report says false of are left out. Times never go
// back.
func (w *windows) look(at time.Time, stats *agent.Stats, report func(claim string) bool) []due {
	var list []due
	seen := map[string]bool{}
	for i := range stats.Jobs {
		j := &stats.Jobs[i]
		claim := claimOf(*j)
		if claim == "" || j.Whole || !report(claim) {
			continue
		}
		seen[claim] = true
		s, with := sight{at: at, job: j}, companyOf(j, stats)
		r := w.of[claim]
		if r == nil {
			w.of[claim] = &running{first: s, turn: s, last: s, with: with, length: 1}
			continue
		}
		s.busy = r.last.busy + utilisation(j, stats)*at.Sub(r.last.at).Seconds()
		if window := r.look(s, with, w.period); window != nil {
			list = append(list, due{claim, *window})
		}
	}
	for claim, r := range w.of {
		if !seen[claim] && !r.writing { // there is one window of a claim on its way at most, also of one that comes back
			delete(w.of, claim)
		}
	}
	return list
}

// told says what became of a due window. One that was not taken is covered by the next, if that has the same neighbours.
func (w *windows) told(claim string, taken bool) {
	r := w.of[claim]
	if r == nil {
		return
	}
	if !taken && r.unsaid != nil {
		r.first = *r.unsaid
		r.periods = max(r.periods, r.length) // it is due again
	}
	r.writing, r.unsaid = false, nil
}

// utilisation of a job's first GPU, in [0, 1].
func utilisation(j *agent.Job, stats *agent.Stats) float64 {
	for i := range stats.GPUs {
		if g := &stats.GPUs[i]; len(j.GPUs) > 0 && g.GPU == j.GPUs[0] {
			return min(1, max(0, g.Utilisation))
		}
	}
	return 0
}

// look takes the next look at the worker, and returns the window that ends with it, or ended with the one before; nil for none.
func (r *running) look(s sight, with company, period time.Duration) *v1alpha1.Window {
	if !r.with.equal(&with) || !s.job.Continues(r.last.job) {
		var window *v1alpha1.Window
		if r.with.own && !r.writing && 2*r.last.at.Sub(r.first.at) >= period && r.active(r.last) {
			window = r.end(r.last)
		}
		r.first, r.turn, r.last, r.with, r.periods, r.length, r.windows, r.before, r.unsaid = s, s, s, with, 0, 1, 0, nil, nil
		return window
	}
	r.last = s
	if s.at.Sub(r.turn.at) < period {
		return nil
	}
	if !with.own || !r.active(s) {
		r.first, r.turn, r.periods = s, s, 0
		return nil
	}
	changed := r.changed(r.since(r.turn, s))
	r.turn = s
	r.periods++
	if r.writing || r.periods < r.length && !changed {
		return nil
	}
	r.grow(r.since(r.first, s), changed)
	return r.end(s)
}

// changed says whether the last period is unlike the window so far or, where it is the first, unlike the window before.
func (r *running) changed(period agent.Window) bool {
	if r.periods > 0 {
		return differ(r.since(r.first, r.turn), period)
	}
	return r.before != nil && differ(*r.before, period)
}

// grow decides how long the next window is to be, at the end of one.
func (r *running) grow(w agent.Window, changed bool) {
	r.windows = min(firstWindows, r.windows+1)
	switch {
	case changed || r.before != nil && differ(*r.before, w):
		r.length = 1
	case r.windows == firstWindows:
		r.length = min(mostPeriods, 2*r.length)
	}
	r.before = &w
}

// end ends the window at a look, and begins the next one there.
func (r *running) end(to sight) *v1alpha1.Window {
	w := r.window(to)
	first := r.first
	r.unsaid, r.writing = &first, true
	r.first, r.turn, r.periods = to, to, 0
	return w
}

func (r *running) since(from, to sight) agent.Window {
	return to.job.Since(from.job, to.at.Sub(from.at))
}

// active says whether anything happened in the window so far.
func (r *running) active(to sight) bool {
	w := r.since(r.first, to)
	return w.Wait > 0 || w.Stall > 0 || w.Held > 0 || w.Used > 0 || w.Iterations > 0
}

// window is what is said of the running window, were it to end at a look.
func (r *running) window(to sight) *v1alpha1.Window {
	w := r.since(r.first, to)
	var peak unit.Bytes
	for _, m := range to.job.Memory {
		peak = max(peak, m.Peak)
	}
	return &v1alpha1.Window{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Window"},
		End:      metav1.NewMicroTime(to.at), Seconds: w.Length.Seconds(), Age: to.job.Oldest,
		Wait: w.Wait.Seconds(), Stall: w.Stall.Seconds(), Held: w.Held.Seconds(), Used: w.Used.Seconds(),
		Iterations: int64(min(w.Iterations, math.MaxInt64)), Utilisation: min(1, max(0, (to.busy-r.first.busy)/w.Length.Seconds())),
		Beside: len(r.with.jobs) + len(r.with.foreign), Peak: *resource.NewQuantity(int64(peak), resource.BinarySI),
	}
}

// differ says whether two windows of a worker are not alike. One iteration more or less in each tells nothing.
func differ(a, b agent.Window) bool {
	lost := func(w agent.Window) float64 { return (w.Wait + w.Stall).Seconds() / w.Length.Seconds() }
	longer := b.Length.Seconds() / a.Length.Seconds()
	expected := longer * float64(a.Iterations)
	return math.Abs(lost(a)-lost(b)) > alike || math.Abs(float64(b.Iterations)-expected) > alike*expected+1+longer
}
