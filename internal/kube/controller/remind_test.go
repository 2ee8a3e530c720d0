package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"weft.dev/weft/internal/kube"
)

func TestBegun(t *testing.T) {
	sandbox := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReadyToStartContainers, Status: status}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"not seen by its kubelet": {corev1.PodStatus{Phase: corev1.PodPending}, false},
		"without a sandbox":       {corev1.PodStatus{Phase: corev1.PodPending, Conditions: sandbox(corev1.ConditionFalse)}, false},
		"pulls its image":         {corev1.PodStatus{Phase: corev1.PodPending, Conditions: sandbox(corev1.ConditionTrue)}, true},
		"runs":                    {corev1.PodStatus{Phase: corev1.PodRunning}, true},
		"was refused by its node": {corev1.PodStatus{Phase: corev1.PodFailed}, true},
	} {
		if got := begun(&corev1.Pod{Status: c.status}); got != c.want {
			t.Errorf("one that %s: begun is %v", name, got)
		}
	}
	if !begun(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}) {
		t.Error("a kubelet is reminded of a Pod that is to end")
	}
}

// TestReminds: the kubelet of a Pod that does not begin is reminded of it three times, of one that begins not once more, and of native Pods never.
func TestReminds(t *testing.T) {
	s := at(t)
	s.silent(3)
	s.controller(nil)
	begins := s.pod("begins", 1, "memory=4Gi floor=0.9")
	s.bound(begins)
	pods := s.client.CoreV1().Pods(s.ns)
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := s.get(begins)
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue})
		_, err := pods.UpdateStatus(s.context(), p, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stuck, native := s.pod("stuck", 1, "memory=4Gi floor=0.9"), s.pod("native", 1, "")
	s.bound(stuck, native)
	times := func(p *corev1.Pod) string { return s.get(p).Annotations[kube.AnnotationReminded] }
	s.eventually("the kubelet of a stuck Pod is reminded once", func() string { // so no reminder from before is under way
		if times(stuck) == "" {
			return "not yet"
		}
		return ""
	})
	before := times(begins)
	s.eventually("the kubelet of a stuck Pod is reminded", func() string {
		if got := times(stuck); got != fmt.Sprint(mostRemind) {
			return fmt.Sprintf("%q times", got)
		}
		return ""
	})
	time.Sleep(2 * remindAfter)
	if got := times(stuck); got != fmt.Sprint(mostRemind) {
		t.Errorf("reminded %s times, want %d", got, mostRemind)
	}
	if got := times(begins); got != before {
		t.Errorf("reminded %q times of a Pod that begins, %q before it did", got, before)
	}
	if got := times(native); got != "" {
		t.Errorf("reminded %s times of a native Pod", got)
	}
}

// silent is a node whose kubelet says that it is ready, and nothing of Pods.
func (s *site) silent(gpus int) {
	s.t.Helper()
	name := s.ns + "-silent"
	s.nodes = append(s.nodes, name)
	s.makeNode(name, gpus, func(n *corev1.Node) {
		n.Annotations, n.Labels["type"] = nil, "silent"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	})
	s.ready(name)
}
