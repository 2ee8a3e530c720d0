// Package look answers what people ask of a cluster: why a Pod waits or where it is, what is on each GPU and node, whether all is well,
// and what sharing would save. It is pure: it is handed the objects of the API, and reaches its answers as the controller does.
package look

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/learned"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/kube/queue"
)

// Cluster is what is looked at.
type Cluster struct {
	queue.Cluster
	Wrong   []string          // what is wrong with the cluster as a whole, for people
	Learned *corev1.ConfigMap // kube.Learned; nil where it is not there, or whoever asks may not read it
}

// Look is a cluster at one time, with what the controller makes of it.
type Look struct {
	c        *Cluster
	q        *queue.Queue
	decision dispatch.Decision
	starts   map[box.ID]dispatch.Start
	waits    map[box.ID]dispatch.Wait
	jobs     map[box.ID]*dispatch.Job
	members  map[types.UID]member // Pods of jobs
	places   map[types.UID][]int  // GPUs of Pods, by their numbers
	on       [][]holder           // of each GPU, by name
	rates    map[box.ID]float64   // observed
}

// member is a Pod as a part of its job.
type member struct {
	job *queue.Job
	*queue.Member
}

// jobID is that of its job, 0 for none.
func (m member) jobID() box.ID {
	if m.job == nil {
		return 0
	}
	return m.job.ID
}

// holder is who has a GPU, or a part of it.
type holder struct {
	name string      // "ml/bert-0"; of a claim that no Pod uses "resource claim ml/x"
	pod  *corev1.Pod // nil where that is not known
	job  *queue.Job  // nil where it holds the GPU whole by a claim that is not weft's
}

// New looks at a cluster. Its objects are only read.
func New(c *Cluster, o estimate.Options) *Look {
	book := estimate.New(o)
	if c.Learned != nil {
		_, _ = learned.Restore(book, c.Learned) // what cannot be read is begun anew, as the controller does
	}
	q := queue.Build(&c.Cluster, book)
	l := &Look{c: c, q: q, decision: dispatch.Plan(&q.State), starts: map[box.ID]dispatch.Start{}, waits: map[box.ID]dispatch.Wait{},
		jobs: map[box.ID]*dispatch.Job{}, members: map[types.UID]member{}, places: map[types.UID][]int{}, on: make([][]holder, len(q.GPUs))}
	for _, s := range l.decision.Starts {
		l.starts[s.Job] = s
	}
	for _, w := range l.decision.Waits {
		l.waits[w.Job] = w
	}
	for i := range q.State.Jobs {
		l.jobs[q.State.Jobs[i].ID] = &q.State.Jobs[i]
	}
	l.rates = adjust.Rates(q, book)
	l.takeShared()
	l.takeWhole()
	for _, list := range l.on {
		slices.SortStableFunc(list, func(a, b holder) int { return strings.Compare(a.name, b.name) })
	}
	return l
}

// takeShared notes who has GPUs by weft's claims.
func (l *Look) takeShared() {
	at := map[string]int{}
	for g := range l.q.GPUs {
		at[l.q.GPUs[g].UUID] = g
	}
	for _, j := range l.q.Jobs {
		for _, m := range j.Members {
			l.members[m.Pod.UID] = member{j, m}
			for _, gpu := range l.q.On(m.Shares) {
				g := at[gpu.UUID]
				l.places[m.Pod.UID] = appendNew(l.places[m.Pod.UID], g)
				l.on[g] = append(l.on[g], holder{nameOf(m.Pod), m.Pod, j})
			}
		}
	}
}

// takeWhole notes who has GPUs by claims that are not weft's.
func (l *Look) takeWhole() {
	at, pods := map[claim.Device]int{}, map[types.UID]*corev1.Pod{}
	for i := range l.q.GPUs {
		at[claim.Device{Pool: l.q.GPUs[i].Node, Name: l.q.GPUs[i].Device}] = i
	}
	for _, p := range l.c.Pods {
		pods[p.UID] = p
	}
	for _, c := range l.c.Claims {
		if claim.Managed(c) {
			continue
		}
		for _, d := range claim.Devices(c) {
			g, ok := at[d]
			if !ok {
				continue
			}
			users := claim.Users(c)
			for _, u := range users {
				l.places[u.UID] = appendNew(l.places[u.UID], g)
				l.on[g] = append(l.on[g], holder{c.Namespace + "/" + u.Name, pods[u.UID], nil})
			}
			if len(users) == 0 {
				l.on[g] = append(l.on[g], holder{"resource claim " + c.Namespace + "/" + c.Name, nil, nil})
			}
		}
	}
}

func appendNew[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

// Mode is how a Pod asks for GPUs.
type Mode string

// The modes of a Pod.
const (
	Shared Mode = "shared" // it opted in
	Native Mode = "native" // it asks for whole GPUs
	None   Mode = "none"   // it asks for none
)

// State is how far a Pod has come.
type State string

// The states of a Pod.
const (
	Waiting  State = "waiting"  // for a GPU
	Placed   State = "placed"   // it has its claims, and no node yet
	Running  State = "running"  // it is bound to a node
	Stopping State = "stopping" // it is being deleted
	Ended    State = "ended"
	Invalid  State = "invalid" // weft cannot read it
)

// modeOf a Pod.
func modeOf(p *corev1.Pod) Mode {
	switch {
	case kube.Managed(p.Labels):
		return Shared
	case pod.WholeGPUs(p) > 0:
		return Native
	}
	return None
}

// stateOf a Pod.
func (l *Look) stateOf(p *corev1.Pod) State {
	_, bad := l.q.Faults[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
	switch {
	case queue.Done(p):
		return Ended
	case p.DeletionTimestamp != nil:
		return Stopping
	case bad:
		return Invalid
	case p.Spec.NodeName != "":
		return Running
	case len(l.places[p.UID]) > 0:
		return Placed
	}
	return Waiting
}

// gpus are GPUs as people read them.
func (l *Look) gpus(list []int) []string {
	names := []string{}
	for _, g := range list {
		names = append(names, l.q.GPUs[g].String())
	}
	return names
}

// holders are who is on a GPU, each once.
func (l *Look) holders(g int) []string {
	names := []string{}
	for _, h := range l.on[g] {
		names = appendNew(names, h.name)
	}
	return names
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// since is how a Pod has been where it is, from its creation or its start on.
func since(p *corev1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// scheduler is what the scheduler last said of a Pod that it has not bound; "" for nothing.
func scheduler(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

// sortedPods are those of a namespace, "" for all, by name.
func (l *Look) sortedPods(namespace string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, p := range l.c.Pods {
		if namespace == "" || p.Namespace == namespace {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list
}

// several is a number with what it counts.
func several(n int, one, many string) string {
	return strconv.Itoa(n) + " " + form(n, one, many)
}

// form is the form of a word that goes with a number.
func form(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// policy is the one in force; nil for none.
func (l *Look) policy() *v1alpha1.SharingPolicySpec {
	if l.c.Policy == nil {
		return nil
	}
	return &l.c.Policy.Spec
}
