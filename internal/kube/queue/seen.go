package queue

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/profile"
)

// Lacks is what keeps a job off the GPU that a refusal is of, with its numbers; "" where the code says it all.
func (q *Queue) Lacks(id box.ID, r dispatch.Refusal) string {
	j := q.Jobs[id]
	if j == nil || r.GPU < 0 || r.GPU >= len(q.GPUs) {
		return ""
	}
	return q.lacks(j, dispatch.Wait{Job: id, Reason: r.Reason, GPU: r.GPU, Resident: r.Resident, After: r.After})
}

// Name is a job as people read it.
func (q *Queue) Name(id box.ID) string { return q.name(id) }

// Why is what a job waits for apart from GPUs, or why it can never start as it is; "" for neither.
func (j *Job) Why() string {
	if j.bad != "" {
		return j.bad
	}
	return j.waits
}

// Predict is the rate of a job where it is, as a share of its speed alone, with its 80 % range and what it rests on: the least of its
// GPUs. It is false for a job without GPUs.
func (q *Queue) Predict(id box.ID) (mean, low, high float64, basis string, ok bool) {
	i := slices.IndexFunc(q.State.Jobs, func(j dispatch.Job) bool { return j.ID == id })
	if i < 0 {
		return 0, 0, 0, "", false
	}
	for _, g := range q.State.Jobs[i].On {
		var others []estimate.Kind
		for _, other := range q.reside[g] {
			if other != id {
				others = append(others, q.Jobs[other].Kind)
			}
		}
		if m, l, h, b := q.book.Predict(q.Jobs[id].Kind, others); !ok || m < mean {
			mean, low, high, basis, ok = m, l, h, b, true
		}
	}
	return mean, low, high, basis, ok
}

// Memory is what a Pod needs of each GPU by what it asks and its profile. It is false where nothing is known: it then shares with nobody.
func (q *Queue) Memory(p *corev1.Pod, r *pod.Request) (profile.Profile, bool) {
	m := &Member{Pod: p, Request: r}
	j := &Job{Members: []*Member{m}}
	f, _ := q.figuresOf(m)
	j.need(f)
	if j.alone {
		return profile.Profile{}, false
	}
	return q.memory(j), true
}

// Residents are the jobs on a GPU by their claims, by ID.
func (q *Queue) Residents(gpu int) []box.ID { return q.reside[gpu] }

// Numbers are the GPUs of a worker, those that are gone left out.
func (q *Queue) Numbers(s claim.Share) []int {
	var list []int
	for _, uuid := range s.GPUs {
		if g, ok := q.at[uuid]; ok {
			list = append(list, g)
		}
	}
	return list
}

// Stays says whether a Pod is there and was not asked to go.
func (q *Queue) Stays(uid types.UID) bool {
	p := q.nodes.pods[uid]
	return p != nil && p.DeletionTimestamp == nil && !Done(p)
}
