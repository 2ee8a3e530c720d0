package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
)

// nodes are the nodes in order of their names, with what their Pods ask of them.
type nodes struct {
	list  []*corev1.Node
	at    map[string]int
	pods  map[types.UID]*corev1.Pod
	asked []corev1.ResourceList // of each node, by the Pods that are there or pinned there
	count []int                 // of those Pods
	pins  map[types.UID]string  // node of a Pod that is not bound yet
	cache map[string]*dispatch.Nodes
	only  map[string]*dispatch.Nodes // one node alone
	known *Memory
}

func newNodes(c *Cluster, m *Memory) *nodes {
	n := &nodes{known: m, list: slices.Clone(c.Nodes), at: map[string]int{}, pods: map[types.UID]*corev1.Pod{}, pins: map[types.UID]string{},
		cache: map[string]*dispatch.Nodes{}, only: map[string]*dispatch.Nodes{}}
	slices.SortFunc(n.list, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	n.asked, n.count = make([]corev1.ResourceList, len(n.list)), make([]int, len(n.list))
	for i, node := range n.list {
		n.at[node.Name] = i
		n.asked[i] = corev1.ResourceList{}
	}
	for _, p := range c.Pods {
		n.pods[p.UID] = p
		if Done(p) {
			continue
		}
		if i, ok := n.at[p.Spec.NodeName]; ok {
			n.ask(i, p)
		} else if on := pinnedTo(p); on != "" {
			if i, ok := n.at[on]; ok {
				n.ask(i, p)
			}
		}
	}
	return n
}

// ask counts a Pod with a node.
func (n *nodes) ask(i int, p *corev1.Pod) {
	n.count[i]++
	for name, quantity := range n.known.pod(p).requests {
		sum := n.asked[i][name]
		sum.Add(quantity)
		n.asked[i][name] = sum
	}
}

// index is the number of a node; one beyond all for a node that there is not.
func (n *nodes) index(name string) int {
	if i, ok := n.at[name]; ok {
		return i
	}
	return len(n.list)
}

// fault is why a node takes no Pods; "" where it does.
func (n *nodes) fault(name string) string {
	i, ok := n.at[name]
	if !ok {
		return "the node is gone"
	}
	node := n.list[i]
	switch {
	case node.DeletionTimestamp != nil:
		return "the node is being deleted"
	case node.Spec.Unschedulable:
		return "the node is cordoned"
	case node.Labels[kube.LabelServe] == "false":
		return "the node is labelled " + kube.LabelServe + "=false"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return ""
			}
			return "the node is not ready"
		}
	}
	return "the node is not ready"
}

// pinnedTo is the node that weft has confined a Pod to; "" for none.
func pinnedTo(p *corev1.Pod) string {
	required := requiredOf(p)
	if Gated(p) || required == nil || p.Labels[kube.LabelManaged] != "true" {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// requiredOf is what a Pod requires of nodes by affinity; nil for nothing.
func requiredOf(p *corev1.Pod) *corev1.NodeSelector {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// Gated says whether a Pod waits for weft.
func Gated(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kube.Gate })
}

// others are the gates of a Pod that are not weft's.
func others(p *corev1.Pod) []string {
	var list []string
	for _, g := range p.Spec.SchedulingGates {
		if g.Name != kube.Gate {
			list = append(list, g.Name)
		}
	}
	return list
}

// constraints are what of a Pod decides about nodes.
type constraints struct {
	Selector    map[string]string    `json:"selector"`
	Affinity    *corev1.NodeSelector `json:"affinity"`
	Tolerations []corev1.Toleration  `json:"tolerations"`
	Requests    corev1.ResourceList  `json:"requests"`
}

func constraintsOf(p *corev1.Pod, requests corev1.ResourceList) constraints {
	return constraints{Selector: p.Spec.NodeSelector, Affinity: requiredOf(p), Tolerations: p.Spec.Tolerations, Requests: requests}
}

// may are the nodes that a Pod may be on, as far as its node selector, affinity, tolerations and requests go; Pods that are alike in
// these share the answer. nil stands for all.
func (n *nodes) may(p *corev1.Pod) *dispatch.Nodes {
	key := n.known.terms(p)
	if known, ok := n.cache[key]; ok {
		return known
	}
	all, may := true, &dispatch.Nodes{May: make([]bool, len(n.list))}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p)
	for i := range n.list {
		may.May[i] = n.why(i, p, affinity) == ""
		all = all && may.May[i]
	}
	if all {
		may = nil
	}
	n.cache[key] = may
	return may
}

// confined is one node alone.
func (n *nodes) confined(name string) *dispatch.Nodes {
	if n.only[name] == nil {
		one := &dispatch.Nodes{May: make([]bool, len(n.list)+1)}
		one.May[n.index(name)] = true
		n.only[name] = one
	}
	return n.only[name]
}

// why is what keeps a Pod off a node; "" for nothing. What gives way by itself, room, comes last.
func (n *nodes) why(i int, p *corev1.Pod, affinity nodeaffinity.RequiredNodeAffinity) string {
	node := n.list[i]
	if fits, err := affinity.Match(node); err != nil || !fits {
		return n.mismatch(node, p)
	}
	if t, found := untolerated(node.Spec.Taints, p.Spec.Tolerations); found {
		return fmt.Sprintf("it does not tolerate taint %s:%s", t.Key, t.Effect)
	}
	return n.full(i, p)
}

// full is what of a node's room is too little for a Pod; "" for nothing.
func (n *nodes) full(i int, p *corev1.Pod) string {
	room := n.list[i].Status.Allocatable
	if most, ok := room[corev1.ResourcePods]; ok && int64(n.count[i]) >= most.Value() {
		return fmt.Sprintf("%d Pods are there, at most %d", n.count[i], most.Value())
	}
	asks := n.known.pod(p).requests
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		wants, free := asks[name], room[name]
		if name == kube.ExtendedResource || wants.IsZero() {
			continue
		}
		if free.Sub(n.asked[i][name]); wants.Cmp(free) > 0 {
			return fmt.Sprintf("it asks %s %s, %s is free", wants.String(), name, positive(free))
		}
	}
	return ""
}

func positive(q resource.Quantity) string {
	if q.Sign() < 0 {
		return "0"
	}
	return q.String()
}

// mismatch names the part of a Pod that does not match a node.
func (n *nodes) mismatch(node *corev1.Node, p *corev1.Pod) string {
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if value := p.Spec.NodeSelector[key]; node.Labels[key] != value {
			return fmt.Sprintf("nodeSelector %s=%s does not match", key, value)
		}
	}
	return "its node affinity does not match"
}

// both are the nodes of two answers of may.
func (n *nodes) both(a, b *dispatch.Nodes) *dispatch.Nodes {
	switch {
	case a == b || b == nil:
		return a
	case a == nil:
		return b
	}
	key := fmt.Sprintf("%p %p", a, b)
	if known, ok := n.cache[key]; ok {
		return known
	}
	may := &dispatch.Nodes{May: make([]bool, len(n.list))}
	for i := range may.May {
		may.May[i] = a.May[i] && b.May[i]
	}
	n.cache[key] = may
	return may
}

// untolerated is the first taint of a node that keeps Pods off it and that no toleration is for. That the node is cordoned is told
// of the node itself.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
}
