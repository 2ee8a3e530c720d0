package queue

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"weft.dev/weft/internal/kube"
)

func TestNodes(t *testing.T) {
	for name, c := range map[string]struct {
		node func(*corev1.Node)
		pod  func(*corev1.Pod)
		want string // reason
		text string
	}{
		"cordoned": {node: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: "Drained", text: "the node is cordoned"},
		"not ready": {node: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, want: "Drained",
			text: "the node is not ready"},
		"not weft's": {node: func(n *corev1.Node) { n.Labels[kube.LabelServe] = "false" }, want: "Drained",
			text: "the node is labelled weft.dev/serve=false"},
		"selector": {pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "nowhere"} }, want: "NodeMismatch",
			text: "nodeSelector zone=nowhere does not match"},
		"affinity": {pod: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gen", Operator: "Gt",
					Values: []string{"5"}}}}}}}}
		}, want: "NodeMismatch", text: "its node affinity does not match"},
		"taint": {node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: "NoSchedule"}} }, want: "NodeMismatch",
			text: "it does not tolerate taint team:NoSchedule"},
		"tolerated": {node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: "NoSchedule"}} },
			pod: func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: "Exists"}} }},
		"a wish only": {node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "team", Effect: "PreferNoSchedule"}} }},
		"processors": {pod: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("65")}
		}, want: "NodeMismatch", text: "it asks 65 cpu, 64 is free"},
		"Pods": {node: func(n *corev1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("0") }, want: "NodeMismatch",
			text: "0 Pods are there, at most 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node("n1", 1, "24Gi")
			if c.node != nil {
				c.node(n)
			}
			if c.pod == nil {
				c.pod = func(*corev1.Pod) {}
			}
			w.add("ml/a", 1, ask("memory=1Gi"), c.pod)
			q, d := w.plan()
			if c.want == "" {
				if len(d.Starts) != 1 {
					t.Fatal(outcome(q, d))
				}
				return
			}
			if len(d.Waits) != 1 || string(d.Waits[0].Reason.Code) != c.want {
				t.Fatal(outcome(q, d))
			}
			if got := q.Wait(d.Waits[0]).Text; !strings.Contains(got, "nearest n1/gpu0 "+c.text) {
				t.Errorf("it says %q, want %q", got, c.text)
			}
			w.node("n2", 1, "24Gi").Labels["zone"] = "nowhere"
			w.c.Nodes[1].Labels["gen"] = "6"
			w.c.Nodes[1].Status.Allocatable["cpu"] = resource.MustParse("128")
			expect(t, w, "ml/a on n2/gpu0")
		})
	}
}

// TestRoomOfNodes: what Pods ask besides GPUs counts, also of those that are pinned and not bound yet.
func TestRoomOfNodes(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 4, "24Gi")
	w.node("n2", 4, "24Gi")
	half := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("40")}
	}
	for i := range 3 {
		w.add(fmt.Sprintf("ml/p%d", i), 1, ask("memory=1Gi"), half)
		w.turn()
	}
	if a, b := pinnedTo(w.c.Pods[0]), pinnedTo(w.c.Pods[1]); a == "" || b == "" || a == b {
		t.Errorf("two Pods of 40 processors each are on %q and %q of 64", a, b)
	}
	expect(t, w, "ml/p2: NodeMismatch")
}
