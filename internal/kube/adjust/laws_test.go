package adjust_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/kube/world"
)

// closed is a bed whose Pods keep of their speed what the truth leaves them, and whose owners make anew what is evicted.
type closed struct {
	*bed
	truth map[[2]string]float64 // slowdown that the second job adds to the first
	asks  map[string]string
	moved map[string][]time.Time
	made  int
}

// jobOf is the job that a Pod is of.
func jobOf(p *corev1.Pod) string { return queue.OwnerOf(p).Name }

// make has the owner of a job make a Pod.
func (c *closed) make(job string) {
	c.made++
	c.Shared(fmt.Sprintf("ml/%s-%d", job, c.made), 1, 0, c.asks[job], world.Owned("Job", job))
}

// place has the planner place who waits.
func (c *closed) place() {
	cluster := c.Cluster
	cluster.Seen = c.adjust.Seen(c.Pods, c.Policy, c.Now)
	q := queue.Build(&cluster, c.book)
	for _, s := range dispatch.Plan(&q.State).Starts {
		p := q.Jobs[s.Job].Members[0].Pod
		if at := c.adjust.Replaces(p); !at.IsZero() {
			p.Annotations[kube.AnnotationMoved] = at.Format(time.RFC3339)
		}
		g := q.GPUs[s.GPUs[0]]
		c.Place(p, fmt.Sprintf("%s/%d", g.Node, g.Index), "1Gi")
		p.Status.StartTime.Time = c.Now
	}
}

// pass lets a window pass: who waits is placed, and agents tell what Pods keep of their speed in truth.
func (c *closed) pass() {
	c.place()
	cluster := c.Cluster
	q := queue.Build(&cluster, c.book)
	c.Now = c.Now.Add(window)
	for i := range q.State.Jobs {
		d := &q.State.Jobs[i]
		if len(d.On) == 0 {
			continue
		}
		p, slowdown, beside := q.Jobs[d.ID].Members[0].Pod, 1.0, 0
		for _, id := range q.Residents(d.On[0]) {
			if id != d.ID {
				beside++
				slowdown += c.truth[[2]string{jobOf(p), jobOf(q.Jobs[id].Members[0].Pod)}]
			}
		}
		c.tell(p, seen{lost: 1 - 1/slowdown, beside: beside, used: 0.3 / slowdown})
	}
}

// TestLaws: whatever jobs do to each other, only who may be is moved, within the budget and its rest, and a conflict of two kinds moves
// nobody twice in an hour.
func TestLaws(t *testing.T) {
	all := 0
	rapid.Check(t, func(r *rapid.T) {
		c := &closed{bed: at(t), truth: map[[2]string]float64{}, asks: map[string]string{}, moved: map[string][]time.Time{}}
		for n := range rapid.IntRange(1, 2).Draw(r, "nodes") {
			c.Node(fmt.Sprintf("node-%d", n), rapid.IntRange(1, 3).Draw(r, "GPUs"), "24Gi")
		}
		budget, rest := int32(rapid.IntRange(0, 4).Draw(r, "moves")), int32(rapid.SampledFrom([]int{0, 100, 600}).Draw(r, "rest"))
		c.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Migration: v1alpha1.Migration{Moves: &budget, CooldownSeconds: &rest}}}
		var jobs []string
		for i := range rapid.IntRange(2, 7).Draw(r, "jobs") {
			jobs = append(jobs, fmt.Sprintf("j%d", i))
			c.asks[jobs[i]] = fmt.Sprintf("memory=1Gi class=%s floor=%s migratable=%v", rapid.SampledFrom([]string{"besteffort", "burstable"}).Draw(r, "class"),
				rapid.SampledFrom([]string{"0.1", "0.3", "0.5"}).Draw(r, "floor"), rapid.Bool().Draw(r, "migratable"))
			c.book.Tell("ml/Job/"+jobs[i], estimate.Alone{Busy: 0.2, Rate: 10, Source: estimate.Declared}) // as if they were light
		}
		for _, a := range jobs {
			for _, b := range jobs {
				c.truth[[2]string{a, b}] = rapid.SampledFrom([]float64{0.05, 0.5, 4, 20}).Draw(r, "slowdown")
			}
			c.make(a)
		}
		for range 60 {
			c.pass()
			f, _ := c.look()
			for _, e := range f.Moves {
				c.moves(r, e, time.Duration(rest)*time.Second)
			}
		}
		total, pairs := 0, len(jobs)*(len(jobs)+1)/2
		for _, list := range c.moved {
			total += len(list)
		}
		if total > int(budget) || total > pairs {
			r.Fatalf("%d moves in 20 minutes of %d kinds: the budget is %d", total, len(jobs), budget)
		}
		all += total
	})
	if all == 0 {
		t.Error("nobody is ever moved")
	}
}

// moves has a Pod leave.
func (c *closed) moves(r *rapid.T, e queue.Eviction, rest time.Duration) {
	job := jobOf(e.Pod)
	if !strings.Contains(c.asks[job], "migratable=true") {
		r.Fatalf("%s is moved, and is not migratable", e.Pod.Name)
	}
	if list := c.moved[job]; len(list) > 0 && c.Now.Sub(list[len(list)-1]) < rest {
		r.Fatalf("%s is moved again after %v", job, c.Now.Sub(list[len(list)-1]))
	}
	c.moved[job] = append(c.moved[job], c.Now)
	c.remove(e.Pod)
	c.make(job)
}

// TestSameFromAnother: an adjuster that takes over moves nobody that the last one would have left alone.
func TestSameFromAnother(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	best.Annotations[kube.AnnotationMoved] = b.Now.Add(-time.Minute).Format(time.RFC3339)
	for range 5 {
		b.passes(map[*corev1.Pod]seen{best: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {beside: 1, used: 0.9}})
		if f, _ := b.look(); f.Moves != nil {
			t.Fatalf("moved within the cooldown of a move of another controller: %s", moves(f))
		}
	}
	one := int32(1)
	b.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Migration: v1alpha1.Migration{Moves: &one, CooldownSeconds: new(int32)}}}
	b.passes(map[*corev1.Pod]seen{best: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {beside: 1, used: 0.9}})
	if f, _ := b.look(); f.Moves != nil {
		t.Fatalf("moved although a Pod tells of the one move of this hour: %s", moves(f))
	}
}
