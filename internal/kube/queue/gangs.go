package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/kube/pod"
)

// gangOf names the gangs that a member is of; "" for a Pod on its own. Pods of one owner and number are of the same gangs, those of an
// indexed Job by their index. Pods that nobody owns are with those of their namespace. A ReplicaSet replaces its Pods one by one, and
// the next comes only when the one before is ready: each of them starts by itself.
func gangOf(m *Member) string {
	if m.Request.Gang <= 1 || m.Pod.DeletionTimestamp != nil {
		return ""
	}
	key := m.Pod.Namespace + "/"
	if owner := metav1.GetControllerOf(m.Pod); owner != nil {
		if owner.Kind == "ReplicaSet" {
			return ""
		}
		key += string(owner.UID)
		index, err := strconv.Atoi(m.Pod.Annotations[batchv1.JobCompletionIndexAnnotation])
		if err == nil && index >= 0 {
			key += "/" + strconv.Itoa(index/m.Request.Gang)
		}
	}
	return key + "/" + strconv.Itoa(m.Request.Gang)
}

// broken is a gang that has started and lacks members. What it holds is of no use until they are there, so they go before all that wait:
// before another gang above all, which would wait for what this one holds as this one for what is kept for it.
type broken struct {
	key   string
	since time.Time // when its oldest member was created
}

// outranks is a priority above all others, their age included.
const outranks = 1000

// rank gives each broken gang a priority of its own, the oldest the highest: two of them do not get half each of what both need.
func rank(jobs []*Job) map[*broken]int {
	gangs := map[*broken]int{}
	for _, j := range jobs {
		if j.rejoins != nil {
			gangs[j.rejoins] = 0
		}
	}
	youngest := slices.SortedFunc(maps.Keys(gangs), func(a, b *broken) int { return cmp.Or(b.since.Compare(a.since), cmp.Compare(b.key, a.key)) })
	for i, g := range youngest {
		gangs[g] = outranks + i
	}
	return gangs
}

// split makes jobs of members of the same gangs, which come by age. A gang that has started and lost members is joined by others, each on
// what fits, before all that wait; the rest wait until a gang of them is there. A gang that was left half with claims begins anew.
func (q *Queue) split(key string, members []*Member) []*Job {
	size, whole := members[0].Request.Gang, &broken{key, members[0].Pod.CreationTimestamp.Time}
	var jobs []*Job
	var running, waiting []*Member
	for _, m := range members {
		switch m.standing() {
		case started:
			if q.ousted(m) {
				jobs = append(jobs, q.alone(m)...)
			} else {
				running = append(running, m)
			}
		case lost:
			jobs = append(jobs, q.lost(m)...)
		case bare, partial, claimed:
			waiting = append(waiting, m)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *Member) int { return cmp.Compare(b.standing(), a.standing()) })
	begun := len(running) + len(jobs)
	missing := min(len(waiting), (size-begun%size)%size)
	if begun == 0 {
		missing = 0
	}
	for _, m := range waiting[:missing] {
		if m.standing() == claimed {
			running = append(running, m)
			q.Lift = append(q.Lift, m)
		} else {
			jobs = append(jobs, q.alone(m)...)
		}
	}
	for _, j := range jobs {
		j.rejoins = whole
	}
	for gang := range slices.Chunk(waiting[missing:], size) {
		if len(gang) == size && gang[size-1].standing() == claimed {
			running = append(running, gang...)
			q.Lift = append(q.Lift, gang...)
			continue
		}
		jobs = append(jobs, q.gather(gang, size))
	}
	for gang := range slices.Chunk(running, size) {
		jobs = append(jobs, &Job{Members: gang})
	}
	return jobs
}

// gather is a gang that waits.
func (q *Queue) gather(gang []*Member, size int) *Job {
	j := &Job{Members: slices.SortedFunc(slices.Values(gang), byAge)}
	for _, m := range gang {
		if m.standing() != bare {
			q.undo(m)
			j.waits = "its claims are made anew"
		}
	}
	if len(gang) < size {
		j.waits = fmt.Sprintf("%d of its %d Pods are there", len(gang), size)
	}
	each := gpusOf(gang[0])
	for _, m := range gang[1:] {
		if n := gpusOf(m); n != each {
			j.bad = fmt.Sprintf("the Pods of a gang ask for as many GPUs each: %s for %d, %s for %d", gang[0].Pod.Name, each, m.Pod.Name, n)
		}
	}
	return j
}

func byAge(a, b *Member) int {
	return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.Name, b.Pod.Name))
}

// gpusOf is how many GPUs a member is on.
func gpusOf(m *Member) int {
	if m.Request == nil {
		return pod.WholeGPUs(m.Pod)
	}
	n := 0
	for _, w := range m.Request.Workers {
		n += w.GPUs
	}
	return n
}
