package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
)

// writeTime bounds one write.
const writeTime = 30 * time.Second

// do carries a task out beside others. What it is about to write counts as written from now on.
func (c *Controller) do(ctx context.Context, t task, now time.Time) {
	var claims []*resourcev1.ResourceClaim
	for _, list := range t.claims {
		claims = append(claims, list...)
	}
	if !c.assumed.intend(t.pods(), claims, now) {
		return
	}
	c.work.Go(func() {
		failed := false
		defer func() {
			if c.assumed.finish(t.pods(), claims); failed {
				c.wake()
			}
		}()
		if err := c.carry(ctx, t); err != nil {
			failed = true
			c.fail(t, err)
			return
		}
		c.assumed.free(t.pods())
	})
}

// carry writes all claims of a job, then releases its Pods, each when nobody else is on the way to its GPUs. Where a claim cannot be
// written none is left.
func (c *Controller) carry(ctx context.Context, t task) error {
	select {
	case c.writes <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := sync.OnceFunc(func() { <-c.writes })
	defer done()
	if err := c.claim(ctx, t); err != nil {
		return err
	}
	var first error
	for i, m := range t.members {
		if !c.gated(m.Pod) {
			continue // the plan was made before this was known
		}
		d, free := c.lanes.enter(m.Pod.UID, traveller{nameOf(m.Pod), t.uuids[i]})
		if !free {
			done() // there are no more that waited than Pods that were just bound
			if err := c.lanes.wait(ctx, d); err != nil {
				return err
			}
		}
		if err := c.release(ctx, m, t.nodes[i], t.notes[i]); err != nil {
			c.lanes.leave(m.Pod.UID)
			first = errors.Join(first, err)
			continue
		}
		if t.waited {
			c.figures.placed(m, time.Now())
		}
		c.voice.tell(m.Pod, t.words[i], placement)
	}
	return first
}

// gated says whether a Pod waits for weft, by all that is known now.
func (c *Controller) gated(p *corev1.Pod) bool {
	now := c.assumed.pod(p.UID)
	if now == nil {
		now = c.cache.pod(nameOf(p), p.UID)
	}
	return now == nil || queue.Gated(now) // of one that is gone the API server tells
}

// claim writes all claims of a job, or none.
func (c *Controller) claim(ctx context.Context, t task) error {
	if err := c.still(t); err != nil {
		return err
	}
	var written []*resourcev1.ResourceClaim
	for i := range t.claims {
		for _, want := range t.claims[i] {
			got, err := c.create(ctx, want)
			if err != nil {
				c.take(context.WithoutCancel(ctx), written)
				return err
			}
			written = append(written, got)
		}
	}
	return nil
}

// still checks a task against what is known now: the Pods are there and gated, and nobody else has taken their GPUs.
func (c *Controller) still(t task) error {
	for _, m := range t.members {
		p := c.cache.pod(nameOf(m.Pod), m.Pod.UID)
		if p == nil || p.DeletionTimestamp != nil {
			return fmt.Errorf("%w: Pod %s/%s", errGone, m.Pod.Namespace, m.Pod.Name)
		}
	}
	for _, list := range t.claims {
		for _, want := range list {
			if who := c.cache.takenFrom(want); who != "" {
				return fmt.Errorf("%w: %s", errTaken, who)
			}
		}
	}
	return nil
}

// What a task finds changed: it is planned anew, without a word.
var (
	errGone  = errors.New("it is gone")
	errTaken = errors.New("its GPU is taken")
)

// refusal is an answer of the API that says no, with its own words.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// create writes a claim. One that is there and says the same is it.
func (c *Controller) create(ctx context.Context, want *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	claims := c.client.ResourceV1().ResourceClaims(want.Namespace)
	got, err := claims.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		got, err = claims.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case err != nil:
		case claim.Ending(got):
			return nil, fmt.Errorf("resource claim %s/%s is being deleted", want.Namespace, want.Name)
		case !claim.Same(got, want):
			if owner, ok := claim.Owner(got); ok && owner.UID == want.OwnerReferences[0].UID {
				return nil, fmt.Errorf("%w: claim %s was written by another controller", errTaken, want.Name)
			}
			return nil, refusal{fmt.Sprintf("resource claim %s/%s exists and is not this Pod's: delete it", want.Namespace, want.Name)}
		}
	}
	switch {
	case err == nil:
		c.assumed.created(got, time.Now())
		return got, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, refusal{err.Error()}
	}
	return nil, fmt.Errorf("resource claim %s/%s: %w", want.Namespace, want.Name, err)
}

// take deletes claims that nothing uses.
func (c *Controller) take(ctx context.Context, claims []*resourcev1.ResourceClaim) {
	for _, x := range claims {
		if err := c.remove(ctx, x); err != nil {
			c.o.Log.Warn("a claim stays: its Pod's end takes it along", "claim", x.Namespace+"/"+x.Name, "error", err)
		}
	}
}

// remove deletes a claim as it is known: not another one of its name, and not one that has been given its GPUs since.
func (c *Controller) remove(ctx context.Context, x *resourcev1.ResourceClaim) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := c.client.ResourceV1().ResourceClaims(x.Namespace).Delete(ctx, x.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &x.UID, ResourceVersion: &x.ResourceVersion}})
	if err == nil || apierrors.IsNotFound(err) {
		c.assumed.deleted(x, time.Now())
		return nil
	}
	return err
}

// release lets a Pod go to the scheduler. One that went already is no error.
func (c *Controller) release(ctx context.Context, m *queue.Member, node string, notes map[string]string) error {
	p := m.Pod
	if !queue.Gated(p) {
		return nil
	}
	patch, err := release(p, node, notes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	got, err := c.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		if kept, err := keep(got); err == nil {
			c.assumed.patched(kept.(*corev1.Pod))
		}
		if !travels(got) { // others hold it back
			c.lanes.leave(p.UID)
		}
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: Pod %s/%s", errGone, p.Namespace, p.Name)
	case apierrors.IsForbidden(err):
		return refusal{err.Error()}
	}
	return fmt.Errorf("release of Pod %s/%s: %w", p.Namespace, p.Name, err)
}

// fail sees to what a task came to. A refusal is told in the refuser's own words; what is merely out of date is planned anew.
func (c *Controller) fail(t task, err error) {
	var refused refusal
	switch {
	case errors.Is(err, context.Canceled): // this controller ends: the next one goes on from what is written
	case errors.Is(err, errGone), errors.Is(err, errTaken):
		c.o.Log.Debug("planned anew", "pod", t.pods()[0].Name, "reason", err)
		c.figures.count("place", "outdated")
	case errors.As(err, &refused):
		c.figures.count("place", "refused")
		c.assumed.hold(t.pods(), refused.text, time.Now())
		for _, p := range t.pods() {
			c.voice.tell(p, queue.Word{Reason: queue.Refused, Code: queue.Refused, Text: refused.text, Warning: true}, placement)
		}
	default:
		c.figures.count("place", "failed")
		c.assumed.hold(t.pods(), "the API server did not take it: "+err.Error(), time.Now())
		c.o.Log.Warn("a Pod could not be placed, and is tried again", "pod", t.pods()[0].Namespace+"/"+t.pods()[0].Name, "error", err)
	}
}

// undo deletes claims that place nothing.
func (c *Controller) undo(ctx context.Context, claims []*resourcev1.ResourceClaim) {
	for _, x := range claims {
		owner, ok := claim.Owner(x)
		if !ok || x.UID == "" {
			continue
		}
		pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: x.Namespace, Name: owner.Name, UID: owner.UID}}}
		if !c.assumed.intend(pods, nil, time.Now()) {
			continue
		}
		c.work.Go(func() {
			defer c.wake()
			defer c.assumed.finish(pods, nil)
			if err := c.remove(ctx, x); err != nil && ctx.Err() == nil {
				c.assumed.hold(pods, "its claim cannot be made anew: "+err.Error(), time.Now())
			}
		})
	}
}

// evict asks for a Pod to go, as its budget of disruptions allows. A budget that allows none is told, and asked again later.
func (c *Controller) evict(ctx context.Context, e queue.Eviction) {
	pods := []*corev1.Pod{e.Pod}
	if held, _ := c.assumed.held(time.Now()); held[e.Pod.UID] != "" || !c.assumed.intend(pods, nil, time.Now()) {
		return
	}
	c.work.Go(func() {
		defer c.assumed.finish(pods, nil)
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		err := c.client.CoreV1().Pods(e.Pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: e.Pod.Namespace, Name: e.Pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.Pod.UID}},
		})
		word := queue.Word{Reason: queue.Evicted, Code: queue.Evicted, Text: e.Text}
		switch {
		case err == nil:
			c.figures.count("evict", "ok")
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil:
			return
		default:
			c.figures.count("evict", "refused")
			word = queue.Word{Reason: queue.Refused, Code: queue.Refused, Text: "eviction " + e.Text + ": " + err.Error(), Warning: true}
		}
		c.assumed.hold(pods, word.Text, time.Now())
		c.wake() // to look again when it is held no longer
		c.voice.tell(e.Pod, word, aside)
	})
}
