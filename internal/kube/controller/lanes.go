package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
)

// lanes let one Pod at a time go to the scheduler for each GPU. For a moment, while the scheduler writes down which GPU a claim has, it
// counts that claim twice; a second claim of the GPU then seems not to fit, and its Pod would not be looked at again for five minutes
// (decision 24).
type lanes struct {
	mu      sync.Mutex
	on      map[string]types.UID // who is on its way to a GPU, by its UUID
	pods    map[types.UID]traveller
	waiting map[string][]*departure // for a GPU, in order
}

// traveller is a Pod that was released and is not bound yet.
type traveller struct {
	name types.NamespacedName
	gpus []string
}

// departure is a Pod that waits until nobody is on the way to its GPUs.
type departure struct {
	pod   types.UID
	who   traveller
	ready chan struct{} // closed when it may go
}

// longestLane is how long a Pod waits for others, which a scheduler may have reasons to hold for longer.
const longestLane = 2 * time.Minute

func newLanes() *lanes {
	return &lanes{on: map[string]types.UID{}, pods: map[types.UID]traveller{}, waiting: map[string][]*departure{}}
}

// enter takes the GPUs of a Pod. Where somebody is on the way to one of them, the Pod has to wait.
func (l *lanes) enter(pod types.UID, who traveller) (*departure, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &departure{pod, who, make(chan struct{})}
	if l.admit(d) {
		return d, true
	}
	for _, g := range who.gpus {
		if !slices.Contains(l.waiting[g], d) {
			l.waiting[g] = append(l.waiting[g], d)
		}
	}
	return d, false
}

// admit lets a Pod go if all its GPUs are free.
func (l *lanes) admit(d *departure) bool {
	for _, g := range d.who.gpus {
		if other, taken := l.on[g]; taken && other != d.pod {
			return false
		}
	}
	l.take(d)
	return true
}

// take has a Pod on its way, whoever else is.
func (l *lanes) take(d *departure) {
	for _, g := range d.who.gpus {
		l.on[g] = d.pod
		if l.waiting[g] = slices.DeleteFunc(l.waiting[g], func(x *departure) bool { return x == d }); len(l.waiting[g]) == 0 {
			delete(l.waiting, g)
		}
	}
	l.pods[d.pod] = d.who
	close(d.ready)
}

// wait waits until a Pod may go.
func (l *lanes) wait(ctx context.Context, d *departure) error {
	timer := time.NewTimer(longestLane)
	defer timer.Stop()
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-d.ready:
	default:
		l.take(d)
	}
	return nil
}

// leave frees the GPUs of a Pod that is on its way no longer, and lets the next go.
func (l *lanes) leave(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	who, known := l.pods[pod]
	if !known {
		return
	}
	delete(l.pods, pod)
	for _, g := range who.gpus {
		if l.on[g] == pod {
			delete(l.on, g)
		}
	}
	for _, g := range who.gpus {
		for _, d := range slices.Clone(l.waiting[g]) {
			if l.admit(d) {
				break
			}
		}
	}
}

// travelling is how many Pods are on their way.
func (l *lanes) travelling() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods)
}

// travellers are the Pods on their way.
func (l *lanes) travellers() map[types.UID]types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make(map[types.UID]types.NamespacedName, len(l.pods))
	for uid, who := range l.pods {
		list[uid] = who.name
	}
	return list
}

// travels says whether the scheduler is about to look for a node for a Pod: it may, and has not said that there is none.
func travels(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || p.DeletionTimestamp != nil || queue.Done(p) {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason == corev1.PodReasonSchedulingGated // as it was created
		}
	}
	return true
}

// arrived says whether a Pod that was released is on its way no longer.
func arrived(p *corev1.Pod) bool { return !queue.Gated(p) && !travels(p) }

// moved takes a change of a Pod; now is nil for one that is gone.
func (l *lanes) moved(old, now *corev1.Pod) {
	switch {
	case now != nil && arrived(now):
		l.leave(now.UID)
	case now == nil && old != nil:
		l.leave(old.UID)
	}
}

// seeTravellers lets go whose arrival no informer told, and takes in whom another controller released.
func (c *Controller) seeTravellers(pods []*corev1.Pod) {
	known := c.lanes.travellers()
	for uid, name := range known {
		c.recheck(name, uid)
	}
	for _, p := range pods {
		if _, is := known[p.UID]; is || !travels(p) {
			continue
		}
		if gpus := c.cache.pinned(p); len(gpus) > 0 {
			c.lanes.enter(p.UID, traveller{nameOf(p), gpus})
			c.recheck(nameOf(p), p.UID)
		}
	}
}

func (c *Controller) recheck(name types.NamespacedName, uid types.UID) {
	if p := c.cache.pod(name, uid); p == nil || arrived(p) {
		c.lanes.leave(uid)
	}
}

// pinned are the GPUs that the claims of a Pod are pinned to.
func (c *caches) pinned(p *corev1.Pod) []string {
	var gpus []string
	for _, r := range p.Spec.ResourceClaims {
		if r.ResourceClaimName == nil {
			continue
		}
		x, err := c.claims.ResourceClaims(p.Namespace).Get(*r.ResourceClaimName)
		if err != nil || !claim.Managed(x) {
			continue
		}
		if s, err := claim.Read(x); err == nil {
			gpus = append(gpus, s.GPUs...)
		}
	}
	return gpus
}
