package controller

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
)

// evictions are the times at which a controller asked for one.
type evictions struct {
	mu    sync.Mutex
	times []time.Time
}

func (e *evictions) count(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction") {
			e.mu.Lock()
			e.times = append(e.times, time.Now())
			e.mu.Unlock()
		}
		return rt.RoundTrip(r)
	})
}

// gaps are the times between them.
func (e *evictions) gaps() (list []time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 1; i < len(e.times); i++ {
		list = append(list, e.times[i].Sub(e.times[i-1]))
	}
	return list
}

// TestBudgetRefusesEviction: where a PodDisruptionBudget allows no eviction, the Pod stays and hears the refusal once, in the API's words; it is
// asked again ever less often, others go on meanwhile, and when the budget allows it the Pod goes.
func TestBudgetRefusesEviction(t *testing.T) {
	s := at(t)
	node := s.node(2)
	var asked evictions
	s.controller(asked.count)
	solo := s.pod("solo", 1, "", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "solo"} })
	s.bound(solo)
	least := intstr.FromInt32(1)
	budgets := s.client.PolicyV1().PodDisruptionBudgets(s.plain)
	_, err := budgets.Create(s.context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: solo.Labels}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the budget knows its Pod", func() string {
		b, err := budgets.Get(s.context(), "one", metav1.GetOptions{})
		if err != nil || b.Status.CurrentHealthy != 1 {
			return fmt.Sprintf("%+v, %v", b.Status, err)
		}
		return ""
	})
	device := s.deviceOf(solo)
	s.taint(node, device, "xid79")
	words := s.hears(solo, "Warning Refused eviction from "+node+"/"+strings.Replace(device, "-", "", 1)+": weft.dev/unhealthy=xid79: ", "disruption budget")
	other := s.pod("other", 1, "memory=70Gi")
	s.bound(other)
	s.eventually("it is asked again", func() string {
		if n := len(asked.gaps()); n < 3 {
			return fmt.Sprintf("%d times", n)
		}
		return ""
	})
	gaps := asked.gaps()
	for i, gap := range gaps { // more where the API server takes its time
		if least := firstHold << i; gap < least {
			t.Errorf("it is asked again after %v, the %d. of them less than %v", gaps, i+1, least)
		}
	}
	if now := s.get(solo); now == nil || now.DeletionTimestamp != nil {
		t.Error("it was evicted against its budget")
	}
	if said := strings.Join(s.said(solo), "\n"); strings.Count(said, "Warning Refused") != 1 {
		t.Errorf("it was told more than once:\n%s", said)
	}
	t.Logf("asked again after %v; %s", gaps, words)
	if err := budgets.Delete(s.context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is evicted", func() string {
		if now := s.get(solo); now != nil && now.DeletionTimestamp == nil {
			return "it runs on"
		}
		return ""
	})
	s.hears(solo, "Normal Evicted from "+node)
}

// deviceOf is the first device of the first claim in the namespace of a Pod.
func (s *site) deviceOf(p *corev1.Pod) string {
	s.t.Helper()
	for _, c := range s.claims(p.Namespace) {
		for _, d := range claim.Devices(c) {
			return d.Name
		}
	}
	s.t.Fatalf("%s has no device", p.Name)
	return ""
}

// taint says of a GPU that nobody may stay on it.
func (s *site) taint(node, device, fault string) {
	s.t.Helper()
	slice, err := s.client.ResourceV1().ResourceSlices().Get(s.context(), node, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	slice.Spec.Pool.Generation++
	for i := range slice.Spec.Devices {
		if d := &slice.Spec.Devices[i]; d.Name == device {
			d.Taints = []resourcev1.DeviceTaint{{Key: kube.TaintUnhealthy, Value: fault, Effect: resourcev1.DeviceTaintEffectNoExecute}}
		}
	}
	if _, err := s.client.ResourceV1().ResourceSlices().Update(s.context(), slice, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestGangRejoins: a member of a gang that goes comes back to its gang, though another gang waits for the same GPUs; and that one starts whole
// when the first has gone.
func TestGangRejoins(t *testing.T) {
	s := at(t)
	s.node(3)
	s.controller(nil)
	member := func(of string) func(*corev1.Pod) {
		owner, err := s.client.CoreV1().ConfigMaps(s.ns).Create(s.context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: of}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		yes := true
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: of, UID: owner.UID, Controller: &yes}}
		}
	}
	gang := func(of string, change func(*corev1.Pod)) (list []*corev1.Pod) {
		for i := range 3 {
			list = append(list, s.pod(fmt.Sprintf("%s-%d", of, i), 1, "memory=70Gi gang=3", change))
		}
		return list
	}
	first, second := member("first"), member("second")
	ones := gang("first", first)
	s.bound(ones...)
	twos := gang("second", second)
	s.hears(twos[0], "Waiting ")
	now := int64(0)
	for round := range 3 {
		lost := ones[round%2]
		if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), lost.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		again := s.pod(fmt.Sprintf("first-again-%d", round), 1, "memory=70Gi gang=3", first)
		s.bound(again)
		ones[round%2] = again
		s.judge()
	}
	for _, p := range twos {
		if now := s.get(p); now.Spec.NodeName != "" || len(now.Spec.SchedulingGates) == 0 {
			t.Errorf("%s of the gang that waits is on %q, gates %v", p.Name, now.Spec.NodeName, now.Spec.SchedulingGates)
		}
	}
	for _, p := range ones {
		if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	s.bound(twos...)
	s.judge()
}
