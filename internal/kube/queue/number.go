package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// number gives jobs their IDs, in order of age, and makes of each what dispatch decides on.
func (q *Queue) number(jobs []*Job) {
	slices.SortFunc(jobs, func(a, b *Job) int {
		x, y := a.Members[0].Pod, b.Members[0].Pod
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
			strings.Compare(string(x.UID), string(y.UID)))
	})
	for _, j := range jobs {
		q.know(j)
	}
	id, ranks := box.ID(0), rank(jobs)
	for _, j := range jobs {
		d, ok := q.dispatch(j)
		if !ok {
			continue
		}
		if j.rejoins != nil {
			d.Priority = ranks[j.rejoins]
		}
		id++
		j.ID, d.ID = id, id
		j.Name = nameOf(j)
		q.Jobs[id] = j
		q.State.Jobs = append(q.State.Jobs, d)
		for _, g := range d.On {
			q.reside[g] = append(q.reside[g], id)
		}
	}
}

// nameOf is a job as people read it.
func nameOf(j *Job) string {
	p := j.Members[0].Pod
	if n := len(j.Members); n > 1 {
		return fmt.Sprintf("%s/%s and %d more", p.Namespace, p.Name, n-1)
	}
	return p.Namespace + "/" + p.Name
}

// placed says whether a job has its GPUs.
func (j *Job) placed() bool {
	return !slices.ContainsFunc(j.Members, func(m *Member) bool { return m.Shares == nil })
}

// dispatch is a job as dispatch sees it. It is false for one on GPUs that are all gone: it neither waits nor is in the way.
func (q *Queue) dispatch(j *Job) (dispatch.Job, bool) {
	first := j.Members[0].Pod
	d := dispatch.Job{User: first.Namespace, Submitted: first.CreationTimestamp.Time, Floor: 1, Config: q.book.Config(j.Kind),
		Cooperates: j.cooperates,
		Memory:     profile.Flat(max(1, j.peak)), Class: cluster.Burstable, Pause: movePause}
	if j.Native {
		d.User = nativeUser(first.Namespace)
	}
	for _, m := range j.Members {
		d.GPUs += gpusOf(m)
		d.Priority = max(d.Priority, Priority(m.Pod.Spec.Priority))
	}
	d.Together = d.GPUs / len(j.Members)
	if !j.Native {
		q.ask(j, &d)
	}
	if j.placed() && !j.Native {
		if d.On = q.placesOf(j); len(d.On) == 0 {
			return d, false
		}
		d.GPUs, d.Together = len(d.On), 0
		d.Stopping = first.DeletionTimestamp != nil
		if d.Started = startOf(first); first.Spec.NodeName == "" {
			d.Started = j.Members[0].Claims[0].CreationTimestamp.Time
		}
		d.Ran = max(0, q.cluster.Now.Sub(d.Started))
		return d, true
	}
	d.Nodes = q.mayOf(j)
	d.Waits = q.waitsFor(j)
	return d, true
}

// movePause is how long a moved job makes no progress, until more is known.
const movePause = 10 * time.Second

// ask takes what the Pods of a job ask: the most of it, where they differ. A job has a limit of time where all its Pods have.
func (q *Queue) ask(j *Job, d *dispatch.Job) {
	d.Floor, d.Migratable, d.Class, d.Rate = 0, true, j.Members[0].Request.Class, q.cluster.Seen.Rates[j.Members[0].Pod.UID]
	limited := true
	for _, m := range j.Members {
		d.Floor = max(d.Floor, m.Request.Floor)
		d.Class = stricter(d.Class, m.Request.Class)
		d.Migratable = d.Migratable && m.Request.Migratable && OwnerOf(m.Pod).Kind != "Pod" // somebody makes it anew
		d.NoMove = d.NoMove || q.cluster.Seen.Resting[m.Pod.UID]
		if s := m.Pod.Spec.ActiveDeadlineSeconds; s != nil {
			d.MaxTime = max(d.MaxTime, time.Duration(*s)*time.Second)
		} else {
			limited = false
		}
	}
	if !limited {
		d.MaxTime = 0
	}
	d.Memory = q.memory(j)
}

// stricter is the class that shares with fewer.
func stricter(a, b cluster.Class) cluster.Class {
	if a == cluster.Guaranteed || b == cluster.Guaranteed {
		return cluster.Guaranteed
	}
	return min(a, b)
}

// placesOf are the GPUs of a job that has claims, those that are gone left out.
func (q *Queue) placesOf(j *Job) []int {
	var on []int
	for _, m := range j.Members {
		for _, s := range m.Shares {
			for _, uuid := range s.GPUs {
				if g, ok := q.at[uuid]; ok {
					on = append(on, g)
				}
			}
		}
	}
	return on
}

// mayOf are the nodes that all Pods of a job may be on.
func (q *Queue) mayOf(j *Job) *dispatch.Nodes {
	if j.confined != "" {
		return q.nodes.confined(j.confined)
	}
	nodes := q.nodes.may(j.Members[0].Pod)
	for _, m := range j.Members[1:] {
		nodes = q.nodes.both(nodes, q.nodes.may(m.Pod))
	}
	return nodes
}

// waitsFor is why a job is not tried; "" for one that is.
func (q *Queue) waitsFor(j *Job) plan.Code {
	if t := q.spec().In(j.Members[0].Pod.Namespace); !j.Native && t.Quota != nil && *t.Quota == 0 {
		return plan.Quota
	}
	for _, m := range j.Members {
		if gates := others(m.Pod); len(gates) > 0 {
			j.waits = "gated by " + strings.Join(gates, ", ") + " as well"
			return plan.Dependency
		}
		if text, ok := q.cluster.Held[m.Pod.UID]; ok {
			j.waits = text
			return plan.Planning
		}
	}
	switch {
	case j.bad != "":
		return Invalid
	case j.waits != "" && j.Members[0].Request.Gang > 1:
		return plan.Gang
	case j.waits != "":
		return plan.Planning
	}
	return ""
}

// startOf is when a Pod began, as far as that is known.
func startOf(p *corev1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// Priority maps the priority of a Pod, any 32-bit number with 0 for ordinary, to dispatch's 0 to 100 with 50 for ordinary: by its
// logarithm, which keeps the order of priorities and tells 10 from 100 as well as 100,000 from 1,000,000.
func Priority(p *int32) int {
	if p == nil || *p == 0 {
		return ordinary
	}
	const most = 1e9 // that users may give
	level := int(math.Ceil(ordinary * math.Log1p(min(most, math.Abs(float64(*p)))) / math.Log1p(most)))
	if *p < 0 {
		return ordinary - level
	}
	return ordinary + level
}

const ordinary = 50

// Place is what a start means: the claims of each member, in order. It is an error where the GPUs of a worker are on several nodes.
func (q *Queue) Place(s dispatch.Start) ([][]claim.Share, error) {
	j, at := q.Jobs[s.Job], 0
	var places [][]claim.Share
	for _, m := range j.Members {
		var shares []claim.Share
		node := ""
		for _, w := range m.Request.Workers {
			share := claim.Share{Claim: w.Claim, Pod: types.NamespacedName{Namespace: m.Pod.Namespace, Name: m.Pod.Name}, UID: m.Pod.UID,
				Container: w.Container,
				Class:     m.Request.Class, Floor: m.Request.Floor, Cooperates: j.cooperates, Whole: j.alone,
				Part: claim.Part(q.State.Options.MaxResidents, j.alone), Reserved: j.reserved, Peak: j.peak}
			for range w.GPUs {
				if at >= len(s.GPUs) {
					return nil, fmt.Errorf("%s has %d GPUs, it asks for more", j.Name, len(s.GPUs))
				}
				g := &q.GPUs[s.GPUs[at]]
				if at++; node != "" && node != g.Node {
					return nil, fmt.Errorf("%s/%s would be on %s and on %s", m.Pod.Namespace, m.Pod.Name, node, g.Node)
				}
				node = g.Node
				share.GPUs = append(share.GPUs, g.UUID)
				if j.alone {
					share.Reserved = least(share.Reserved, g.Memory)
					share.Peak = share.Reserved
				}
			}
			shares = append(shares, share)
		}
		places = append(places, shares)
	}
	return places, nil
}

// least is the lesser of two amounts, of which 0 is none.
func least(a, b unit.Bytes) unit.Bytes {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// On are the GPUs that shares name.
func (q *Queue) On(shares []claim.Share) []*GPU {
	var list []*GPU
	for _, s := range shares {
		for _, uuid := range s.GPUs {
			if g, ok := q.at[uuid]; ok {
				list = append(list, &q.GPUs[g])
			}
		}
	}
	return list
}
