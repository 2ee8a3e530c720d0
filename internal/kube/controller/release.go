package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/kube"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// release is the JSON patch that lets a gated Pod go to the scheduler, confined to a node, with annotations. It applies only to this very Pod with the gates and the affinity that it is known to have.
func release(p *corev1.Pod, node string, notes map[string]string) ([]byte, error) {
	left := slices.DeleteFunc(slices.Clone(p.Spec.SchedulingGates), func(g corev1.PodSchedulingGate) bool { return g.Name == kube.Gate })
	if len(left) == len(p.Spec.SchedulingGates) {
		return nil, fmt.Errorf("no gate %[3]s on Pod %[1]s/%[2]s", p.Namespace, p.Name, kube.Gate)
	}
	patch := []operation{
		{"test", "/metadata/uid", p.UID},
		{"test", "/spec/schedulingGates", p.Spec.SchedulingGates},
	}
	if len(left) > 0 {
		patch = append(patch, operation{"replace", "/spec/schedulingGates", left})
	} else {
		patch = append(patch, operation{Op: "remove", Path: "/spec/schedulingGates"})
	}
	if p.Spec.Affinity != nil {
		patch = append(patch, operation{"test", "/spec/affinity", p.Spec.Affinity})
	}
	patch = append(patch, operation{"add", "/spec/affinity", confine(p.Spec.Affinity, node)})
	if len(p.Annotations) == 0 {
		return json.Marshal(append(patch, operation{"add", "/metadata/annotations", notes}))
	}
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		patch = append(patch, operation{"add", "/metadata/annotations/" + escaped(key), notes[key]})
	}
	return json.Marshal(patch)
}

// confine adds to every alternative of an affinity that the node is this one. That is the only change of it that a gated Pod takes.
func confine(a *corev1.Affinity, node string) *corev1.Affinity {
	out := a.DeepCopy()
	if out == nil {
		out = &corev1.Affinity{}
	}
	if out.NodeAffinity == nil {
		out.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil || len((*required).NodeSelectorTerms) == 0 {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
			Values: []string{node}})
	}
	return out
}

// escaped is a key in a JSON pointer.
func escaped(key string) string {
	var out []rune
	for _, r := range key {
		switch r {
		case '~':
			out = append(out, '~', '0')
		case '/':
			out = append(out, '~', '1')
		default:
			out = append(out, r)
		}
	}
	return string(out)
}

// condition is the patch of a Pod's status that sets one condition.
func condition(p *corev1.Pod, c corev1.PodCondition) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
}

// keep is what of a Pod the controller keeps in memory: what places it, and what it asks of its node.
func keep(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	p.ManagedFields = nil
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return key == corev1.LastAppliedConfigAnnotation })
	p.Spec.Volumes, p.Spec.ImagePullSecrets, p.Spec.HostAliases, p.Spec.EphemeralContainers = nil, nil, nil, nil
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i, c := range list {
			list[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
	return p, nil
}
