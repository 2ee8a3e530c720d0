package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/plan"
)

// Invalid is the code of a Pod that cannot be read, or whose claim is somebody else's.
const Invalid plan.Code = "Invalid"

// standing is how far a member has come.
type standing int

const (
	bare    standing = iota // gated, without claims
	partial                 // gated, with some of its claims: a controller ended between them
	claimed                 // gated, with all its claims
	started                 // released, with all its claims
	lost                    // released, not bound, without all its claims: they are to be made anew, on its node
)

// jobs reads all Pods. What is placed by a claim whose Pod is gone counts as well, for as long as it holds its GPUs.
func (q *Queue) jobs() []*Job {
	claims, used := q.claims(), map[types.NamespacedName]bool{}
	var jobs []*Job
	gangs := map[string][]*Member{}
	for _, p := range inOrder(q.cluster.Pods) {
		switch {
		case Done(p), p.DeletionTimestamp != nil && p.Spec.NodeName == "":
		case kube.Managed(p.Labels):
			m := q.member(p, claims)
			if m == nil {
				continue
			}
			for _, c := range m.Claims {
				if c != nil {
					used[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = true
				}
			}
			if key := gangOf(m); key != "" {
				gangs[key] = append(gangs[key], m)
			} else {
				jobs = append(jobs, q.alone(m)...)
			}
		case q.asksWhole(p):
			jobs = append(jobs, &Job{Native: true, Members: []*Member{{Pod: p}}, alone: true})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(gangs)) {
		jobs = append(jobs, q.split(key, gangs[key])...)
	}
	for _, c := range q.cluster.Claims {
		name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		if claim.Managed(c) && !used[name] && claim.Allocated(c) {
			jobs = append(jobs, q.orphan(c)...)
		}
	}
	return jobs
}

// claims are those that count, by name: one that is deleted and has no GPU does not.
func (q *Queue) claims() map[types.NamespacedName]*resourcev1.ResourceClaim {
	claims := map[types.NamespacedName]*resourcev1.ResourceClaim{}
	for _, c := range q.cluster.Claims {
		if !claim.Ending(c) {
			claims[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
		}
	}
	return claims
}

// inOrder are Pods by their age; those of one age by name.
func inOrder(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	return pods
}

// member reads a Pod with its claims; nil for one that cannot be read, which is noted as a fault.
func (q *Queue) member(p *corev1.Pod, claims map[types.NamespacedName]*resourcev1.ResourceClaim) *Member {
	r, faults := q.known.request(p)
	if len(faults) > 0 {
		q.fault(p, string(Invalid)+": "+faults.ToAggregate().Error())
		return nil
	}
	m := &Member{Pod: p, Request: r}
	for _, w := range r.Workers {
		c := claims[types.NamespacedName{Namespace: p.Namespace, Name: w.Claim}]
		m.Claims = append(m.Claims, c)
		if c == nil {
			continue
		}
		s, err := q.known.share(c)
		if owner, ok := claim.Owner(c); err == nil && (!ok || owner.UID != p.UID || len(s.GPUs) != w.GPUs) {
			err = fmt.Errorf("resource claim %s/%s is not this Pod's", c.Namespace, c.Name)
		}
		if err != nil {
			q.fault(p, fmt.Sprintf("%s: %v: delete it", Invalid, err))
			return nil
		}
		m.Shares = append(m.Shares, s)
	}
	if len(m.Shares) < len(m.Claims) {
		m.Shares = nil
	}
	return m
}

func (q *Queue) fault(p *corev1.Pod, text string) {
	q.Faults[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = Fault{p, text}
}

// asksWhole says whether a Pod that did not opt in waits for whole GPUs of the scheduler.
func (q *Queue) asksWhole(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || q.cluster.Passed[p.UID] {
		return false
	}
	return (p.Spec.SchedulerName == "" || p.Spec.SchedulerName == corev1.DefaultSchedulerName) && pod.WholeGPUs(p) > 0
}

// Concerns says whether a Pod shares GPUs or asks for whole ones.
func Concerns(p *corev1.Pod) bool {
	return kube.Managed(p.Labels) || pod.WholeGPUs(p) > 0
}

// standing of a member.
func (m *Member) standing() standing {
	some := slices.ContainsFunc(m.Claims, func(c *resourcev1.ResourceClaim) bool { return c != nil })
	switch open := Gated(m.Pod); {
	case m.Shares != nil && open:
		return claimed
	case m.Shares != nil:
		return started
	case open && some:
		return partial
	case open:
		return bare
	}
	return lost
}

// alone are the jobs of a Pod on its own: none where it cannot be helped.
func (q *Queue) alone(m *Member) []*Job {
	switch m.standing() {
	case claimed:
		q.Lift = append(q.Lift, m)
	case partial:
		q.undo(m)
		return []*Job{{Members: []*Member{m}, waits: "its claims are made anew"}}
	case started:
		if q.ousted(m) {
			q.undo(m)
			return []*Job{{Members: []*Member{m}, waits: "its GPU was taken: another one of its node is looked for", confined: pinnedTo(m.Pod)}}
		}
	case lost:
		return q.lost(m)
	case bare:
	}
	return []*Job{{Members: []*Member{m}}}
}

// lost is the job of a released Pod without its claims. A Pod that is bound cannot be helped: its claims were there when it was.
func (q *Queue) lost(m *Member) []*Job {
	if m.Pod.Spec.NodeName != "" {
		return nil
	}
	q.undo(m)
	j := &Job{Members: []*Member{m}, confined: pinnedTo(m.Pod)}
	if slices.ContainsFunc(m.Claims, func(c *resourcev1.ResourceClaim) bool { return c != nil }) {
		j.waits = "its claims are made anew"
	}
	return []*Job{j}
}

// undo has the claims of a member deleted that nobody was given anything for yet.
func (q *Queue) undo(m *Member) {
	for _, c := range m.Claims {
		if c != nil && !claim.Allocated(c) && c.DeletionTimestamp == nil {
			q.Undo = append(q.Undo, c)
		}
	}
	m.Shares = nil
}

// ousted says whether a released Pod can never be bound: a GPU that it is pinned to was taken whole, or broke, before the
// scheduler came to it.
func (q *Queue) ousted(m *Member) bool {
	if m.Pod.Spec.NodeName != "" || slices.ContainsFunc(m.Claims, claim.Allocated) {
		return false
	}
	for _, s := range m.Shares {
		for _, uuid := range s.GPUs {
			g, ok := q.at[uuid]
			if !ok {
				continue // a slice that is being replaced
			}
			if code := q.State.GPUs[g].Closed; code == plan.Native || code == plan.GPUUnhealthy {
				return true
			}
		}
	}
	return false
}

// orphan is what a claim holds whose Pod is not there any more, or cannot be read. A claim that is not as weft writes them closes its GPUs.
func (q *Queue) orphan(c *resourcev1.ResourceClaim) []*Job {
	s, err := q.known.share(c)
	if err == nil {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: s.Pod.Name, UID: s.UID, CreationTimestamp: c.CreationTimestamp}}
		r := &pod.Request{Floor: s.Floor, Class: s.Class, Peak: s.Peak, Gang: 1}
		m := &Member{Pod: p, Request: r, Claims: []*resourcev1.ResourceClaim{c}, Shares: []claim.Share{s}}
		return []*Job{{Members: []*Member{m}, alone: true}}
	}
	for i := range q.GPUs {
		if slices.Contains(claim.Devices(c), claim.Device{Pool: q.GPUs[i].Node, Name: q.GPUs[i].Device}) {
			q.State.GPUs[i].Closed = cmp.Or(q.State.GPUs[i].Closed, plan.Native)
			q.native[i] = append(q.native[i], claim.User{Name: "resource claim " + c.Namespace + "/" + c.Name})
		}
	}
	return nil
}
