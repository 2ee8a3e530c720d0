package controller

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// assumed is what this controller wrote, or is about to write, and the informers have not shown yet: without it the next plan would
// place a Pod twice, or give a GPU away twice.
type assumed struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]assumption
	gone   map[types.UID]time.Time // claims that were deleted
	pods   map[types.UID]*corev1.Pod
	busy   map[types.UID]bool // Pods that something is being written for
	holds  map[types.UID]hold
}

// assumption is a claim: without a version it is not created yet.
type assumption struct {
	claim *resourcev1.ResourceClaim
	since time.Time
}

// hold is a Pod that is left alone for a while.
type hold struct {
	until time.Time
	times int
	text  string
}

// longestLag is after how long an object that the informers do not show is believed to be gone.
const longestLag = time.Minute

func newAssumed() *assumed {
	return &assumed{claims: map[types.NamespacedName]assumption{}, gone: map[types.UID]time.Time{}, pods: map[types.UID]*corev1.Pod{},
		busy: map[types.UID]bool{}, holds: map[types.UID]hold{}}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// version orders the states of one object.
func version(o metav1.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// overClaims is what the informers show of claims, with what is assumed.
func (a *assumed) overClaims(seen []*resourcev1.ResourceClaim, now time.Time) []*resourcev1.ResourceClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*resourcev1.ResourceClaim, 0, len(seen)+len(a.claims))
	shown := map[types.UID]bool{}
	for _, c := range seen {
		if _, deleted := a.gone[c.UID]; deleted {
			shown[c.UID] = true
			continue
		}
		x, ok := a.claims[nameOf(c)]
		if ok && version(x.claim) > version(c) {
			continue // it is taken below
		}
		if ok && version(x.claim) > 0 {
			delete(a.claims, nameOf(c))
		} else if ok {
			continue // about to be written, and found there: the writer sorts that out
		}
		list = append(list, c)
	}
	for name, x := range a.claims {
		if version(x.claim) > 0 && now.Sub(x.since) > longestLag {
			delete(a.claims, name)
			continue
		}
		list = append(list, x.claim)
	}
	for uid, at := range a.gone {
		if !shown[uid] && now.Sub(at) > longestLag {
			delete(a.gone, uid)
		}
	}
	return list
}

// overPods is what the informers show of Pods, with what is assumed. What is known of Pods that are gone is forgotten.
func (a *assumed) overPods(seen []*corev1.Pod) []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, there := make([]*corev1.Pod, 0, len(seen)), make(map[types.UID]bool, len(seen))
	for _, p := range seen {
		there[p.UID] = true
		if x := a.pods[p.UID]; x != nil && version(x) > version(p) {
			list = append(list, x)
			continue
		}
		delete(a.pods, p.UID)
		list = append(list, p)
	}
	for uid := range a.pods {
		if !there[uid] {
			delete(a.pods, uid)
		}
	}
	for uid := range a.holds {
		if !there[uid] {
			delete(a.holds, uid)
		}
	}
	return list
}

// intend reserves what is about to be written for Pods; false where something is being written for one of them.
func (a *assumed) intend(pods []*corev1.Pod, claims []*resourcev1.ResourceClaim, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		if a.busy[p.UID] {
			return false
		}
	}
	for _, p := range pods {
		a.busy[p.UID] = true
	}
	for _, c := range claims {
		a.claims[nameOf(c)] = assumption{c, now}
	}
	return true
}

// created notes a claim that is there now.
func (a *assumed) created(c *resourcev1.ResourceClaim, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims[nameOf(c)] = assumption{c, now}
}

// deleted notes a claim that is gone.
func (a *assumed) deleted(c *resourcev1.ResourceClaim, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone[c.UID] = now
	if x, ok := a.claims[nameOf(c)]; ok && x.claim.UID == c.UID {
		delete(a.claims, nameOf(c))
	}
}

// patched notes a Pod as it is now.
func (a *assumed) patched(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[p.UID] = p
}

// pod is a Pod as it was patched, until the informers show it; nil for none.
func (a *assumed) pod(uid types.UID) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[uid]
}

// finish ends the writing for Pods. Claims that were not written after all are forgotten.
func (a *assumed) finish(pods []*corev1.Pod, claims []*resourcev1.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		delete(a.busy, p.UID)
	}
	for _, c := range claims {
		if x, ok := a.claims[nameOf(c)]; ok && version(x.claim) == 0 {
			delete(a.claims, nameOf(c))
		}
	}
}

// Times that a Pod is left alone after a failure: it doubles from the first to the last.
const (
	firstHold = time.Second
	lastHold  = 2 * time.Minute
)

// hold leaves Pods alone for a while that grows with every failure.
func (a *assumed) hold(pods []*corev1.Pod, text string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		h := a.holds[p.UID]
		h.until = now.Add(min(lastHold, firstHold<<min(h.times, 10)))
		h.times++
		h.text = text
		a.holds[p.UID] = h
	}
}

// free ends what was held against Pods.
func (a *assumed) free(pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		delete(a.holds, p.UID)
	}
}

// held are the Pods that are left alone now, with why, and when the first of them is tried again; zero for never.
func (a *assumed) held(now time.Time) (texts map[types.UID]string, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts = map[types.UID]string{}
	for uid, h := range a.holds {
		if !h.until.After(now) {
			continue
		}
		texts[uid] = h.text
		if next.IsZero() || h.until.Before(next) {
			next = h.until
		}
	}
	return texts, next
}
