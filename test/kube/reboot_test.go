package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/test/kube/site"
)

// Folders of a node that weft writes to and that a reboot empties.
const (
	socketsDir = "/run/weft"
	cdiDir     = "/var/run/cdi"
)

// inPlace has the Pod of a Job restart its container itself, in place of the Job making another Pod. That excludes a policy of failed Pods.
func inPlace(manifest string) string {
	return regexp.MustCompile(`podFailurePolicy: .*`).ReplaceAllString(strings.Replace(manifest, "restartPolicy: Never", "restartPolicy: OnFailure", 1), "")
}

// TestReboot ends everything of the node at once, as a power cut does, empties what a reboot empties, and starts containerd and the kubelet
// again. Pods that restart do so with the claims that they had, Pods that do not are replaced by their Jobs, nobody is booked twice, nothing
// is stuck and nothing is left. What a container cannot show is a boot_id that changes: the agent would tell by it that no process of
// before can be there, and finds the same here by its state being gone.
func TestReboot(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.apply(t, inPlace(job{name: "native", pods: gpus - 1, seconds: 3600}.yaml()))
	plain.runs(t, "native", gpus-1)
	half := job{floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}
	stays, leaves := half, half
	stays.name, leaves.name = "stays", "leaves"
	n.apply(t, inPlace(stays.yaml()), leaves.yaml())
	a, b := n.running(t, "stays"), n.running(t, "leaves")
	if s.device(t, a) != s.device(t, b) {
		t.Fatalf("stays is on %s, leaves on %s: want one GPU for both", s.device(t, a), s.device(t, b))
	}
	n.says(t, a, "", `"type": "rate"`)
	before := s.bookings(t, n.name, plain.name)

	if err := s.CrashNode(t.Context(), socketsDir, cdiDir); err != nil {
		t.Fatal(err)
	}
	s.emptyGPUs(t)
	began := time.Now()
	if err := s.BootNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pods that restart run again, and the other one's successor", func(ctx context.Context) string {
		if p, err := s.api.CoreV1().Pods(n.name).Get(ctx, b.Name, metav1.GetOptions{}); err == nil && p.Status.Phase == corev1.PodRunning {
			return p.Name + " is said to run still"
		}
		return s.allRun(ctx, t, map[string]int{site.Namespace: 2, n.name: 2, plain.name: gpus - 1})
	})
	t.Logf("all Pods run %.1f s after the kubelet", time.Since(began).Seconds())

	after := s.bookings(t, n.name, plain.name)
	for pod, was := range before {
		if now, stays := after[pod]; pod != b.Name && (!stays || now != was) {
			t.Errorf("%s had %s, now %q", pod, was, now)
		}
	}
	again, next := n.running(t, "stays"), n.running(t, "leaves")
	if again.UID != a.UID || next.UID == b.UID {
		t.Errorf("stays is Pod %s, was %s; leaves is Pod %s, was %s", again.UID, a.UID, next.UID, b.UID)
	}
	for _, p := range []*corev1.Pod{again, next} {
		n.says(t, p, "", `"managed": 1`)
		n.says(t, p, "", `"type": "rate"`)
	}
	n.apply(t, job{name: "after", floor: "0.2", memory: "2Gi", profile: "resnet:64", class: "besteffort", seconds: 3600}.yaml())
	n.running(t, "after")
	n.remove(t, "stays", "leaves", "after")
	plain.remove(t, "native")
	s.nothingLeft(t, n.name, plain.name)
}

// bookings are the claims of Pods with what was allocated to them, by the names of their Pods: "name uid pool/device".
func (s *bed) bookings(t *testing.T, namespaces ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, ns := range namespaces {
		claims, err := s.api.ResourceV1().ResourceClaims(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claims.Items {
			for _, user := range c.Status.ReservedFor {
				if c.Status.Allocation != nil {
					r := c.Status.Allocation.Devices.Results[0]
					found[user.Name] = fmt.Sprintf("%s %s %s/%s", c.Name, c.UID, r.Pool, r.Device)
				}
			}
		}
	}
	return found
}

// emptyGPUs wants no memory in use: a GPU's ends with its processes, and so with the power.
func (s *bed) emptyGPUs(t *testing.T) {
	t.Helper()
	eventually(t, "the memory of the GPUs is free", func(context.Context) string {
		for _, g := range s.gpuStats(t).GPUs {
			if g.Used > 0 {
				return fmt.Sprintf("GPU %d: %d bytes are used", g.Index, g.Used)
			}
		}
		return ""
	})
}

// gpuStats are the figures of the emulated GPUs.
func (s *bed) gpuStats(t *testing.T) emugpu.Stats {
	t.Helper()
	o, err := emugpu.Dial(s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	stats, err := o.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// allRun says what keeps namespaces from having just so many Pods that are ready, besides those that have failed, and none that goes.
func (s *bed) allRun(ctx context.Context, t *testing.T, want map[string]int) string {
	t.Helper()
	for ns, count := range want {
		list, err := s.api.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil {
				continue
			}
			if p.DeletionTimestamp != nil || !ready(p) {
				return fmt.Sprintf("%s/%s is %s, %v", ns, p.Name, p.Status.Phase, p.Status.ContainerStatuses)
			}
			count--
		}
		if count != 0 {
			return fmt.Sprintf("%s lacks %d Pods", ns, count)
		}
	}
	return ""
}

// ready says whether the containers of a Pod run now, and not only by what was known before the node went.
func ready(p *corev1.Pod) bool {
	running := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return running && len(programs(p)) > 0
}

// programs are the processes of a Pod that are not of its sandbox.
func programs(p *corev1.Pod) []int {
	return append(processes(p, "weft-train"), processes(p, "/usr/bin/weft")...)
}

// nothingLeft waits until no claim is left in namespaces, and nothing of one on the node.
func (s *bed) nothingLeft(t *testing.T, namespaces ...string) {
	t.Helper()
	eventually(t, "no claim is left", func(ctx context.Context) string {
		for _, ns := range namespaces {
			claims, err := s.api.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for _, c := range claims.Items {
				return ns + " has " + c.Name
			}
		}
		for _, pattern := range []string{cdiDir + "/*claim*", socketsDir + "/alloc/*"} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 { // the pattern is well
				return "the node has " + left[0]
			}
		}
		text, err := os.ReadFile("/var/lib/kubelet/plugins/gpu.weft.dev/checkpoint.json")
		if err != nil || strings.Contains(string(text), `"state"`) {
			return fmt.Sprintf("the checkpoint is %s %v", text, err)
		}
		return ""
	})
}
