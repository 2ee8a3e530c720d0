package controller

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
)

// matters says whether a change may change a decision; old is nil for what is new, now for what is gone. What this controller
// writes itself comes back to it, nodes report themselves every few seconds, and Pods tell of each step of their lives: planning
// for all of that would be most of the work. What is missed here is seen by the next plan, at the latest after idle.
func matters(old, now any) bool {
	switch x := or(now, old).(type) {
	case *corev1.Pod:
		return podMatters(as[corev1.Pod](old), as[corev1.Pod](now))
	case *resourcev1.ResourceClaim:
		return claimMatters(as[resourcev1.ResourceClaim](old), as[resourcev1.ResourceClaim](now))
	case *corev1.Node:
		a, b := as[corev1.Node](old), as[corev1.Node](now)
		return a == nil || b == nil || nodeMatters(a, b)
	case *resourcev1.ResourceSlice:
		return x.Spec.Driver == kube.Driver
	}
	return true
}

func or(a, b any) any {
	if a != nil {
		return a
	}
	return b
}

// as is an object of a kind, nil for none.
func as[T any](o any) *T {
	t, _ := o.(*T)
	return t
}

func podMatters(old, now *corev1.Pod) bool {
	switch {
	case old == nil:
		return queue.Concerns(now)
	case now == nil:
		return true
	case (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil), queue.Done(old) != queue.Done(now):
		return true
	case !queue.Concerns(now):
		return false
	}
	return queue.Gated(now) && (len(old.Spec.SchedulingGates) != len(now.Spec.SchedulingGates) || !maps.Equal(old.Annotations, now.Annotations) ||
		!maps.Equal(old.Labels, now.Labels))
}

func claimMatters(old, now *resourcev1.ResourceClaim) bool {
	var before, after []claim.Device
	managed := false
	if old != nil {
		before, managed = claim.Devices(old), claim.Managed(old)
	}
	if now != nil {
		after, managed = claim.Devices(now), claim.Managed(now)
	}
	if managed { // what it is given is where it was pinned
		return len(after) < len(before)
	}
	return !slices.Equal(before, after)
}

func nodeMatters(a, b *corev1.Node) bool {
	same := func(x, y corev1.Taint) bool { return x.MatchTaint(&y) && x.Value == y.Value }
	return a.Spec.Unschedulable != b.Spec.Unschedulable || !slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, same) ||
		ready(a) != ready(b) || !maps.Equal(a.Labels, b.Labels) || !sameRoom(a, b)
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func sameRoom(a, b *corev1.Node) bool {
	if len(a.Status.Allocatable) != len(b.Status.Allocatable) {
		return false
	}
	for name, q := range a.Status.Allocatable {
		if q.Cmp(b.Status.Allocatable[name]) != 0 {
			return false
		}
	}
	return true
}
