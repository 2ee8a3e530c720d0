package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// Times of the loop.
const (
	offerLasts = 10 * time.Second // for the scheduler to place a native Pod where there is room: then others may have it
	offerAgain = 5 * time.Minute  // after which a GPU is kept for it once more
	demandEach = 5 * time.Second  // between two looks at what the queue wants
	sayAfter   = 2 * time.Second  // of a Pod's life, that it waits: most are placed before
)

// turn plans once and has done what follows, and says when to look again though nothing changed.
func (c *Controller) turn(ctx context.Context, now time.Time) time.Duration {
	s, err := c.cache.cluster(now)
	if err != nil {
		c.o.Log.Error("the informers cannot be read", "error", err)
		return firstHold
	}
	s.Claims = c.assumed.overClaims(s.Claims, now)
	s.Pods = c.assumed.overPods(s.Pods)
	c.seeTravellers(s.Pods)
	held, next := c.assumed.held(now)
	s.Held, s.Passed, s.Memory = held, c.passed(now), &c.memory
	began := time.Now()
	q, found := c.look(s)
	d := dispatch.Plan(&q.State)
	c.figures.planned(q, &d, time.Since(began))
	if now.Sub(c.demanded) >= demandEach {
		c.demanded = now
		c.figures.wanted.Set(float64(q.Demand(&d)))
	}
	c.lift(ctx, q)
	c.undo(ctx, q.Undo)
	for _, e := range slices.Concat(q.Evict, q.Stuck(&d), found.Moves) {
		c.evict(ctx, e)
	}
	c.hold(ctx, q, &found)
	c.start(ctx, q, &d, now)
	if now.Sub(c.remembered) >= c.o.Remember {
		c.remembered = now
		c.remember(ctx)
	}
	unsaid := c.say(q, &d, now)
	wait := idle
	if !next.IsZero() {
		wait = min(wait, max(pause, next.Sub(now)))
	}
	if unsaid {
		wait = min(wait, sayAfter/2)
	}
	return wait
}

// look makes the question with what agents have observed, and makes it anew where that changes what may be together.
func (c *Controller) look(s *queue.Cluster) (*queue.Queue, adjust.Findings) {
	s.Seen = c.adjust.Seen(s.Pods, s.Policy, s.Now)
	q := queue.Build(s, c.book)
	found := c.adjust.Look(q, c.book, s.Policy)
	if found.News <= estimate.News {
		return q, found
	}
	s.Seen = c.adjust.Seen(s.Pods, s.Policy, s.Now)
	return queue.Build(s, c.book), found
}

// hold tells Pods of their floors, and writes what was learned.
func (c *Controller) hold(ctx context.Context, q *queue.Queue, found *adjust.Findings) {
	for _, t := range found.Told {
		of := floor
		if t.Word.Reason == adjust.Resumed {
			of = aside
		}
		for _, p := range t.Pods {
			c.voice.tell(p, t.Word, of)
		}
	}
	for _, l := range found.Profiles {
		c.teach(ctx, l)
	}
	c.figures.rated(q, c.adjust)
}

// passed are the native Pods whose offer ran out.
func (c *Controller) passed(now time.Time) map[types.UID]bool {
	passed := map[types.UID]bool{}
	for uid, since := range c.offers {
		if now.Sub(since) > offerLasts {
			passed[uid] = true
		}
	}
	return passed
}

// start has what starts placed. Native jobs are the scheduler's: their GPUs were kept free in this plan.
func (c *Controller) start(ctx context.Context, q *queue.Queue, d *dispatch.Decision, now time.Time) {
	with := map[int][]box.ID{}
	for _, s := range d.Starts {
		for _, g := range s.GPUs {
			with[g] = append(with[g], s.Job)
		}
	}
	offered := map[types.UID]time.Time{}
	for _, s := range d.Starts {
		j := q.Jobs[s.Job]
		if !j.Native {
			c.place(ctx, q, s, with, now)
			continue
		}
		uid := j.Members[0].Pod.UID
		if offered[uid] = now; !c.offers[uid].IsZero() {
			offered[uid] = c.offers[uid]
		}
	}
	for uid, since := range c.offers { // those that ran out are remembered for a while, as long as their Pods wait
		if age := now.Sub(since); age > offerLasts && age < offerAgain && q.Waits(uid) {
			offered[uid] = since
		}
	}
	c.offers = offered
}

// task is one job, or one Pod, that is being placed.
type task struct {
	members []*queue.Member
	claims  [][]*resourcev1.ResourceClaim // of each member; those that are there already are left out
	nodes   []string                      // of each member
	notes   []map[string]string           // of each member, what is written on it
	uuids   [][]string                    // of each member, its GPUs
	words   []queue.Word
	waited  bool // it is a job that was planned now
}

func (t *task) pods() []*corev1.Pod {
	var list []*corev1.Pod
	for _, m := range t.members {
		list = append(list, m.Pod)
	}
	return list
}

// place has the claims of a job written, and its Pods released.
func (c *Controller) place(ctx context.Context, q *queue.Queue, s dispatch.Start, with map[int][]box.ID, now time.Time) {
	j := q.Jobs[s.Job]
	places, err := q.Place(s)
	if err != nil {
		c.o.Log.Error("a plan cannot be carried out", "job", j.Name, "error", err)
		return
	}
	t := task{members: j.Members, waited: true}
	for i, m := range j.Members {
		var claims []*resourcev1.ResourceClaim
		for _, share := range places[i] {
			claims = append(claims, claim.New(share))
		}
		t.claims = append(t.claims, claims)
		c.describe(&t, q, j, m, places[i], with)
	}
	c.do(ctx, t, now)
}

// describe adds where a member goes.
func (c *Controller) describe(t *task, q *queue.Queue, j *queue.Job, m *queue.Member, shares []claim.Share, with map[int][]box.ID) {
	var names, uuids []string
	node := ""
	for _, s := range shares {
		uuids = append(uuids, s.GPUs...)
	}
	for _, g := range q.On(shares) {
		names, node = append(names, g.String()), g.Node
	}
	t.nodes = append(t.nodes, node)
	notes := map[string]string{kube.AnnotationGPU: strings.Join(names, ",")}
	if at := c.adjust.Replaces(m.Pod); !at.IsZero() {
		notes[kube.AnnotationMoved] = at.UTC().Format(time.RFC3339)
	}
	t.notes = append(t.notes, notes)
	t.uuids = append(t.uuids, uuids)
	t.words = append(t.words, q.Placed(j, m, shares, with))
}

// lift has Pods released whose claims are there.
func (c *Controller) lift(ctx context.Context, q *queue.Queue) {
	of := map[types.UID]*queue.Job{}
	if len(q.Lift) > 0 {
		for _, j := range q.Jobs {
			for _, m := range j.Members {
				of[m.Pod.UID] = j
			}
		}
	}
	for _, m := range q.Lift {
		j := of[m.Pod.UID]
		if j == nil || slices.ContainsFunc(m.Claims, func(c *resourcev1.ResourceClaim) bool { return c.UID == "" }) {
			continue // its GPUs are gone, or its claims are being written
		}
		t := task{members: []*queue.Member{m}, claims: [][]*resourcev1.ResourceClaim{nil}}
		c.describe(&t, q, j, m, m.Shares, nil)
		c.do(ctx, t, time.Now())
	}
}

// say tells Pods why they wait, where that is news. It is true where a Pod waits that is too young to be told.
func (c *Controller) say(q *queue.Queue, d *dispatch.Decision, now time.Time) (unsaid bool) {
	for _, w := range d.Waits {
		j := q.Jobs[w.Job]
		if now.Sub(j.Members[0].Pod.CreationTimestamp.Time) < sayAfter {
			unsaid = true
			continue
		}
		if j.Native {
			p := j.Members[0].Pod
			if !c.voice.isNews(p, queue.Word{Reason: queue.Waiting, Code: plan.Native}, aside) {
				continue
			}
			if word, ok := q.Native(j); ok {
				c.voice.tell(p, word, aside)
			}
			continue
		}
		news, word := q.News(w), queue.Word{}
		for _, m := range j.Members {
			if _, refused := q.Held(m); refused || !c.voice.isNews(m.Pod, news, placement) {
				continue
			}
			if word.Text == "" {
				word = q.Wait(w)
			}
			c.voice.tell(m.Pod, word, placement)
		}
	}
	for _, f := range q.Faults {
		c.voice.tell(f.Pod, queue.Word{Reason: queue.CannotFit, Code: queue.Invalid, Text: f.Text, Warning: true}, placement)
	}
	return unsaid
}
