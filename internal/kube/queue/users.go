package queue

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
)

// nativeUser is whom Pods that did not opt in are counted with: the quota of shared Pods is not theirs.
func nativeUser(namespace string) string { return namespace + " native" }

// users are the namespaces, with what their Pods had of GPUs lately: as far as these Pods are still there, so that every controller
// counts alike.
func (q *Queue) users() map[string]dispatch.User {
	users := map[string]dispatch.User{}
	for i := range q.State.Jobs {
		name := q.Jobs[q.State.Jobs[i].ID].Members[0].Pod.Namespace
		t := q.spec().In(name)
		u := dispatch.User{Weight: 1}
		if t.Weight != nil {
			u.Weight = float64(*t.Weight)
		}
		users[nativeUser(name)] = u
		if t.Quota != nil {
			u.MaxGPUs = int(*t.Quota)
		}
		users[name] = u
	}
	for _, p := range q.cluster.Pods {
		if u, known := users[p.Namespace]; known && kube.Managed(p.Labels) && p.Annotations[kube.AnnotationGPU] != "" {
			from, to := ran(p, q.cluster.Now)
			u.Used += used(float64(gpusNamed(p)), q.cluster.Now.Sub(from), q.cluster.Now.Sub(to))
			users[p.Namespace] = u
		}
	}
	return users
}

// used is what is left of the GPU time of a stay that began and ended so long ago.
func used(gpus float64, began, ended time.Duration) float64 {
	steady := dispatch.Grow(0, 1, math.MaxInt64)
	return max(0, gpus*(dispatch.Decay(steady, ended)-dispatch.Decay(steady, began)))
}

// ran is when a Pod began and ended; a Pod that runs ends now.
func ran(p *corev1.Pod, now time.Time) (from, to time.Time) {
	from, to = startOf(p), now
	if p.Status.StartTime == nil {
		from = now
	}
	if !Done(p) {
		return from, to
	}
	to = from
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(to) {
			to = t.FinishedAt.Time
		}
	}
	return from, to
}

// gpusNamed is how many GPUs a Pod was placed on.
func gpusNamed(p *corev1.Pod) int {
	n := 1
	for _, c := range p.Annotations[kube.AnnotationGPU] {
		if c == ',' {
			n++
		}
	}
	return n
}
