package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/test/kube/site"
)

// TestJobsShare: two training Jobs share a GPU, each sees its own limit, runs under the library and keeps its floor. A third that
// cannot keep its floor waits, an Event says why, and it starts when there is room.
func TestJobsShare(t *testing.T) {
	s := at(t)
	n := s.namespace(t, shares)
	s.namespace(t).fill(t, 1)
	for _, name := range []string{"a", "b"} {
		n.apply(t, job{name: name, floor: "0.6", memory: "5Gi", profile: "resnet:64", seconds: 600}.yaml())
	}
	a, b := n.running(t, "a"), n.running(t, "b")
	if on(a) == "" || on(a) != on(b) {
		t.Fatalf("a is on %q, b on %q: want one GPU for both", on(a), on(b))
	}
	for _, p := range []*corev1.Pod{a, b} {
		n.says(t, p, "", `"type": "rate"`)
		n.heard(t, p.Labels["batch.kubernetes.io/job-name"], "Placed", "floor 0.60")
		n.holds(t, p, "True")
	}
	if top := s.weft(t, "top", "pods", "--once", "-n", n.name); !regexp.MustCompile(`(?m)a-\S+ +running .* \d+ % `).MatchString(top) {
		t.Errorf("no rate of a in\n%s", top)
	}
	for name, limit := range map[string]uint64{"one": 1 << 30, "two": 2 << 30} {
		n.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, annotations: {weft.dev/class: besteffort, weft.dev/floor: "0.1", weft.dev/profile: "resnet:64",
  weft.dev/memory: %dMi}}, spec: {restartPolicy: Never, containers: [{name: probe, image: %q, imagePullPolicy: Never, command: [/usr/bin/weft-probe, memory],
  resources: {limits: {nvidia.com/gpu: 1}}}]}}`, name, limit>>20, site.TrainImage))
		if got := n.memory(t, name); got.Total != limit || got.Allocated > limit || got.Allocated < limit*3/4 {
			t.Errorf("%s sees %d bytes and can have %d, its limit is %d", name, got.Total, got.Allocated, limit)
		}
	}
	n.apply(t, job{name: "c", floor: "0.99", memory: "5Gi", profile: "resnet:64", seconds: 600}.yaml())
	n.heard(t, "c", "Waiting", "Floor")
	if p := n.pod(t, "c"); len(p.Spec.SchedulingGates) == 0 || p.Spec.NodeName != "" {
		t.Errorf("c is on %q although it waits", p.Spec.NodeName)
	}
	n.remove(t, "a", "b")
	n.running(t, "c")
}

// memory is what a Pod's program says that it sees of its GPU's, and that it was given of it.
func (n *namespace) memory(t *testing.T, pod string) (m struct {
	Total     uint64 `json:"total_bytes"`
	Allocated uint64 `json:"allocated_bytes"`
}) {
	t.Helper()
	eventually(t, pod+" has looked", func(ctx context.Context) string {
		p, err := n.api.CoreV1().Pods(n.name).Get(ctx, pod, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodSucceeded {
			return fmt.Sprint(err, p.Status.Phase, p.Status.Conditions)
		}
		out, err := n.api.CoreV1().Pods(n.name).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(out, &m)
		}
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	return m
}

// TestNativePodIsAlone: a Pod that did not opt in has a whole GPU, whichever comes first, and nothing of weft in its container.
func TestNativePodIsAlone(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.apply(t, job{name: "first", seconds: 600}.yaml())
	first := plain.running(t, "first")
	var names []string
	for i := range 2 * gpus {
		names = append(names, fmt.Sprintf("shared-%d", i))
		n.apply(t, job{name: names[i], floor: "0.3", memory: "4Gi", profile: "resnet:64", class: "besteffort", seconds: 600}.yaml())
	}
	var sharing []corev1.Pod
	eventually(t, "Pods that share are on all GPUs that are left", func(context.Context) string {
		sharing = nil
		used := map[string]bool{}
		for _, name := range names {
			for _, p := range n.pods(t, name) {
				if p.Status.Phase == corev1.PodRunning {
					sharing, used[on(&p)] = append(sharing, p), true
				}
			}
		}
		if len(used) < gpus-1 {
			return fmt.Sprintf("%d run, on %v", len(sharing), used)
		}
		return ""
	})
	for i := range sharing {
		if p := &sharing[i]; s.device(t, p) == s.device(t, first) {
			t.Errorf("%s is on %s, which %s has whole", p.Name, on(p), first.Name)
		}
	}
	if strings.Contains(environment(t, first), "WEFT_SOCKET") {
		t.Errorf("the container of a native Pod is given weft's library")
	}
	plain.apply(t, job{name: "second", seconds: 600}.yaml())
	plain.waits(t, "second")
	n.remove(t, names...)
	second := plain.running(t, "second")
	if s.device(t, second) == s.device(t, first) {
		t.Errorf("two native Pods are on one GPU")
	}
}

// TestGang: a gang starts whole or not at all, and two that fit alone do not hold each other up.
func TestGang(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.apply(t, job{name: "native", seconds: 600}.yaml())
	plain.running(t, "native")
	n.apply(t, job{name: "whole", gang: gpus, floor: "0.9", seconds: 600}.yaml())
	n.heard(t, "whole", "Waiting", "Native")
	if pods := n.pods(t, "whole"); len(pods) != gpus {
		t.Fatalf("%d Pods of the gang", len(pods))
	}
	for _, p := range n.pods(t, "whole") {
		if p.Spec.NodeName != "" {
			t.Errorf("%s of a gang that waits runs", p.Name)
		}
	}
	plain.remove(t, "native")
	n.runs(t, "whole", gpus)
	n.remove(t, "whole")
	n.apply(t, job{name: "one", gang: 3, floor: "0.9", seconds: 600}.yaml(), job{name: "two", gang: 3, floor: "0.9", seconds: 600}.yaml())
	eventually(t, "one gang runs whole and the other not at all", func(ctx context.Context) string {
		one, two := n.started(t, "one"), n.started(t, "two")
		if one+two == 3 && one*two == 0 {
			return ""
		}
		return fmt.Sprintf("%d and %d Pods run", one, two)
	})
	first, second := "one", "two"
	if n.started(t, "two") == 3 {
		first, second = second, first
	}
	n.remove(t, first)
	n.runs(t, second, 3)
}
