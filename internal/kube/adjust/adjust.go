// Package adjust makes of what agents observed what is to be done in a cluster while jobs run: what each keeps of its speed, which
// floors are not held, who leaves a GPU for that, and what is learned of a kind of job. It is pure but for the book that it corrects:
// time and objects come in by the question of internal/kube/queue, and whoever asks acts.
package adjust

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
)

// Adjuster remembers from one look to the next what was seen. What another one needs that takes over is in the cluster: the last window of
// each claim, and on Pods when they were moved. It is for one goroutine.
type Adjuster struct {
	views    map[types.UID]*view // by the first Pod of a job
	heard    map[types.UID]mark  // of each claim
	moves    []move
	lessons  map[string]*lesson // by key
	reviewed time.Time
	known    time.Time // windows that ended before are in the book already
	latest   time.Time // that a window ended that was heard
}

// New is one that has seen nothing.
func New() *Adjuster {
	return &Adjuster{views: map[types.UID]*view{}, heard: map[types.UID]mark{}, lessons: map[string]*lesson{}}
}

// Resume is told until when windows are in a book that another one began: they are not taken for news.
func (a *Adjuster) Resume(known time.Time) { a.known, a.latest = known, known }

// Latest is until when windows are in the book.
func (a *Adjuster) Latest() time.Time { return a.latest }

// mark tells a window that was taken from the next one.
type mark struct {
	version string // of the claim
	end     time.Time
}

// view is what was seen of a job since it was placed.
type view struct {
	rate    float64 // of the last window, as a share of the speed alone
	mean    float64
	windows int
	below   time.Duration // that it has been below its floor without a break
	spent   time.Duration // below its floor in all
}

// Findings are what follows from a look.
type Findings struct {
	News     float64 // the largest change of a safe rate: from estimate.News on it is worth asking anew
	Told     []Told
	Moves    []queue.Eviction // of migratable Pods, whose owners make them anew
	Profiles []Learned
}

// Told is what Pods are to be told of their floor, or of their move.
type Told struct {
	Pods []*corev1.Pod
	Word queue.Word
}

// Reasons of words on floors and moves.
const (
	Held       = "Held"       // a condition alone
	BelowFloor = "BelowFloor" // Warning
	Resumed    = "Resumed"    // Normal, of a Pod that takes the place of one that was moved
)

// Rate is what a Pod keeps of its speed alone by the last window of its job, for any Pod of a job that is placed; false where nothing
// was observed.
func (a *Adjuster) Rate(j *queue.Job) (float64, bool) {
	if v := a.views[viewOf(j)]; v != nil && v.windows > 0 {
		return v.rate, true
	}
	return 0, false
}

// Below is how long a job has been below its floor in all.
func (a *Adjuster) Below(j *queue.Job) time.Duration {
	if v := a.views[viewOf(j)]; v != nil {
		return v.spent
	}
	return 0
}

func viewOf(j *queue.Job) types.UID { return j.Members[0].Pod.UID }

// Seen is what a question for this time is to take into account.
func (a *Adjuster) Seen(pods []*corev1.Pod, policy *v1alpha1.SharingPolicy, now time.Time) queue.Seen {
	s := queue.Seen{Rates: map[types.UID]float64{}, Resting: a.resting(pods, budgetOf(policy), now)}
	for uid, v := range a.views {
		if v.windows > 0 {
			s.Rates[uid] = v.mean
		}
	}
	return s
}

// look is one look at a question.
type look struct {
	*Adjuster
	q     *queue.Queue
	book  *estimate.Book
	found Findings
	fresh []*seen         // jobs with a new window
	notes map[box.ID]note // of jobs that are believed below their floor
}

// seen is a job that is placed, with what its agent newly said of it.
type seen struct {
	job    *queue.Job
	state  *dispatch.Job
	others []box.ID // on the GPUs of the worker that tells its rate
	claim  *resourcev1.ResourceClaim
	window *v1alpha1.Window
}

// Look takes the windows that are new, corrects the book by them, and finds what is to be done.
func (a *Adjuster) Look(q *queue.Queue, b *estimate.Book, policy *v1alpha1.SharingPolicy) Findings {
	l := &look{Adjuster: a, q: q, book: b, notes: map[box.ID]note{}}
	placed := l.placed()
	for _, s := range placed {
		if l.hear(s) {
			l.observe(s)
		}
	}
	l.review()
	a.settle(q)
	l.relieve(budgetOf(policy))
	for _, s := range l.fresh {
		l.tell(s)
	}
	l.teach()
	return l.found
}

// placed are the jobs on GPUs, and forgets what is known of others.
func (l *look) placed() []*seen {
	var list []*seen
	views, claims := make(map[types.UID]bool, len(l.views)), make(map[types.UID]bool, len(l.heard))
	for i := range l.q.State.Jobs {
		d := &l.q.State.Jobs[i]
		j := l.q.Jobs[d.ID]
		if j.Native || len(d.On) == 0 {
			continue
		}
		views[viewOf(j)] = true
		s := &seen{job: j, state: d}
		s.claim, s.others = l.telling(j)
		claims[s.claim.UID] = true
		list = append(list, s)
	}
	maps.DeleteFunc(l.views, func(uid types.UID, _ *view) bool { return !views[uid] })
	maps.DeleteFunc(l.heard, func(uid types.UID, _ mark) bool { return !claims[uid] })
	return list
}

// telling is the claim of the worker that tells the rate of a job, with the jobs beside it: a job runs at the speed of its slowest
// worker, which is taken for the one with the most beside it.
func (l *look) telling(j *queue.Job) (tells *resourcev1.ResourceClaim, others []box.ID) {
	for _, m := range j.Members {
		for i, s := range m.Shares {
			var beside []box.ID
			for _, g := range l.q.Numbers(s) {
				for _, id := range l.q.Residents(g) {
					if id != j.ID && !slices.Contains(beside, id) {
						beside = append(beside, id)
					}
				}
			}
			if tells == nil || len(beside) > len(others) {
				tells, others = m.Claims[i], beside
			}
		}
	}
	return tells, others
}

// hear takes the window of a job's claim; false where it is none or not a new one.
func (l *look) hear(s *seen) bool {
	last := l.heard[s.claim.UID]
	if last.version == s.claim.ResourceVersion && last.version != "" {
		return false
	}
	w, ok := claim.Window(s.claim)
	if !ok || !w.End.After(last.end) {
		last.version = s.claim.ResourceVersion
		l.heard[s.claim.UID] = last
		return false
	}
	l.heard[s.claim.UID] = mark{s.claim.ResourceVersion, w.End.Time}
	s.window = w
	if end := earlier(w.End.Time, l.q.State.Now); end.After(l.latest) { // a node's clock may be ahead
		l.latest = end
	}
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// review has the book see to bans and trials, after windows and every so often. Only jobs that can leave again are tried out beside
// others that are not known.
func (l *look) review() {
	now := l.q.State.Now
	if len(l.fresh) == 0 && now.Sub(l.reviewed) < reviewPeriod {
		return
	}
	l.reviewed = now
	if l.book.Review(now, l.counts()) {
		l.found.News = max(l.found.News, 1)
	}
}

const reviewPeriod = 20 * time.Second

// counts are the jobs of each kind of which all can be moved.
func (l *look) counts() []estimate.Count {
	counts, fixed := map[estimate.Kind]*estimate.Count{}, map[estimate.Kind]bool{}
	for i := range l.q.State.Jobs {
		d := &l.q.State.Jobs[i]
		k := l.q.Jobs[d.ID].Kind
		fixed[k] = fixed[k] || !d.Migratable
		if counts[k] == nil {
			counts[k] = &estimate.Count{Kind: k, Floor: 1}
		}
		counts[k].Jobs++
		counts[k].Floor = min(counts[k].Floor, d.Floor)
	}
	var list []estimate.Count
	for k, c := range counts {
		if !fixed[k] && k != (estimate.Kind{}) {
			list = append(list, *c)
		}
	}
	slices.SortFunc(list, func(a, b estimate.Count) int {
		return cmp.Or(cmp.Compare(a.Kind.Key, b.Kind.Key), cmp.Compare(a.Kind.Class, b.Kind.Class))
	})
	return list
}
