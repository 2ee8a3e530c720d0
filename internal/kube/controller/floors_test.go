package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/learned"
)

// profile makes a WorkloadProfile.
func (s *site) profile(name string, spec v1alpha1.WorkloadProfileSpec) {
	s.t.Helper()
	own, err := ownClient(here.config)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: spec}
	if err := own.Post().Namespace(s.ns).Resource("workloadprofiles").Body(p).Do(s.context()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

// learned is what a profile says of itself.
func (s *site) learned(name string) *v1alpha1.WorkloadProfileStatus {
	s.t.Helper()
	own, err := ownClient(here.config)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &v1alpha1.WorkloadProfile{}
	if err := own.Get().Namespace(s.ns).Resource("workloadprofiles").Name(name).Do(s.context()).Into(p); err != nil {
		s.t.Fatal(err)
	}
	return &p.Status
}

// tells has the agent of a Pod's node tell of it.
func (s *site) tells(p *corev1.Pod, w v1alpha1.Window) {
	s.t.Helper()
	if err := s.tell(p, w); err != nil {
		s.t.Fatal(err)
	}
}

// tell is tells of a Pod that may be about to go, with its claim.
func (s *site) tell(p *corev1.Pod, w v1alpha1.Window) error {
	s.t.Helper()
	w.TypeMeta, w.End = metav1.TypeMeta{Kind: "Window", APIVersion: v1alpha1.GroupVersion.String()}, metav1.NowMicro()
	raw, err := json.Marshal(w)
	if err != nil {
		s.t.Fatal(err)
	}
	claims := s.client.ResourceV1().ResourceClaims(s.ns)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		for _, c := range s.claims(s.ns) {
			if o, ok := claim.Owner(c); !ok || o.UID != p.UID || c.Status.Allocation == nil {
				continue
			}
			r := c.Status.Allocation.Devices.Results[0]
			d := resourcev1.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Data: &runtime.RawExtension{Raw: raw}}
			if r.ShareID != nil {
				id := string(*r.ShareID)
				d.ShareID = &id
			}
			c.Status.Devices = []resourcev1.AllocatedDeviceStatus{d}
			_, err := claims.UpdateStatus(s.context(), c, metav1.UpdateOptions{})
			return err
		}
		return fmt.Errorf("no claim of %s", p.Name)
	})
}

// held is the condition weft.dev/FloorHeld of a Pod.
func (s *site) held(p *corev1.Pod) string {
	if now := s.get(p); now != nil {
		for _, c := range now.Status.Conditions {
			if c.Type == kube.ConditionFloorHeld {
				return string(c.Status) + " " + c.Reason + " " + c.Message
			}
		}
	}
	return ""
}

// runs waits until Pods run, and a little longer: times in the API are of whole seconds.
func (s *site) runs(pods ...*corev1.Pod) {
	s.t.Helper()
	s.eventually("they run", func() string {
		for _, p := range pods {
			if now := s.get(p); now == nil || now.Status.Phase != corev1.PodRunning {
				return p.Name + " does not"
			}
		}
		return ""
	})
	time.Sleep(time.Second)
}

// window is that of a Pod that waits for a share of its time beside another one.
func window(wait float64) v1alpha1.Window {
	return v1alpha1.Window{Seconds: 20, Age: 600, Wait: 20 * wait, Held: 20 * (1 - wait), Used: 20 * (1 - wait), Beside: 1, Peak: resource.MustParse("8Gi")}
}

// evicted waits until a Pod that gets next to nothing beside another one is told to go.
func (s *site) evicted(c *running, low, high *corev1.Pod) {
	s.t.Helper()
	s.eventually(low.Name+" is evicted", func() string {
		now := s.get(low)
		if now == nil || now.DeletionTimestamp != nil {
			return ""
		}
		if err := s.tell(low, window(0.95)); err != nil {
			return "its agent does not tell: " + err.Error()
		}
		s.tells(high, window(0))
		c.wake()
		time.Sleep(200 * time.Millisecond)
		return "it runs on: " + s.held(low)
	})
}

// gone waits until a Pod is gone.
func (s *site) gone(p *corev1.Pod) {
	s.t.Helper()
	s.eventually(p.Name+" is gone", func() string {
		if s.get(p) != nil {
			return "it is there"
		}
		return ""
	})
}

// apart says what is wrong with what was written of two kinds that are to be kept apart.
func (s *site) apart() string {
	m, err := s.client.CoreV1().ConfigMaps(s.ns).Get(s.context(), kube.Learned, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	book := estimate.New(estimate.Options{})
	if _, err := learned.Restore(book, m); err != nil {
		return err.Error()
	}
	if len(book.Bans()) != 1 {
		return fmt.Sprintf("kept apart are %v, want one pair", book.Bans())
	}
	return ""
}

// ownedBy has a Pod be one of a Job's, whose controller the test plays.
func ownedBy(job string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "TrainJob", Name: job, UID: types.UID("uid-" + job), Controller: &yes}}
	}
}

// TestMovedForAFloor: two Pods that were believed light are not. The one that can go on elsewhere is evicted, the one that its owner
// makes in its place goes to another GPU, and a controller that takes over lets it be.
func TestMovedForAFloor(t *testing.T) {
	s := at(t)
	node := s.node(2)
	busy := int32(10)
	memory := &v1alpha1.ProfileMemory{Peak: resource.MustParse("8Gi")}
	for _, name := range []string{"low", "high"} {
		s.profile(name, v1alpha1.WorkloadProfileSpec{Figures: v1alpha1.Figures{UtilisationPercent: &busy, Memory: memory}})
	}
	first := s.controller(nil)
	s.eventually("the controller knows the profiles", func() string { return fewer(len(first.cache.listProfiles()), 2) })
	low := s.pod("low", 1, "class=besteffort floor=0.5 profile=low migratable=true", ownedBy("low"))
	high := s.pod("high", 1, "class=guaranteed floor=0.9 profile=high", ownedBy("high"))
	s.bound(low, high)
	if a, b := s.get(low).Annotations[kube.AnnotationGPU], s.get(high).Annotations[kube.AnnotationGPU]; a != b {
		t.Fatalf("they are on %s and %s: want one GPU", a, b)
	}
	from := s.get(low).Annotations[kube.AnnotationGPU]
	s.runs(low, high)
	s.tells(low, window(0.1))
	s.tells(high, window(0))
	first.wake()
	s.eventually("both hold their floors", func() string {
		if a, b := s.held(low), s.held(high); !strings.HasPrefix(a, "True Held 0.90, floor 0.50 beside "+s.ns+"/high") || !strings.HasPrefix(b, "True Held 1.00, floor 0.90") {
			return a + "; " + b
		}
		return ""
	})
	s.eventually("its metrics say the same", func() string { // they are set after the Pods are told
		w := httptest.NewRecorder()
		first.Handler().ServeHTTP(w, httptest.NewRequestWithContext(s.context(), "GET", "/metrics", nil))
		if text := w.Body.String(); !strings.Contains(text, fmt.Sprintf(`weft_job_rate_ratio{kind="observed",namespace=%q,pod="low"} 0.9`, s.ns)) ||
			!strings.Contains(text, fmt.Sprintf(`weft_job_floor_ratio{namespace=%q,pod="high"} 0.9`, s.ns)) {
			return text
		}
		return ""
	})
	s.evicted(first, low, high)
	s.hears(low, "Warning BelowFloor 0.05 < floor 0.50 for ", "s beside "+s.ns+"/high")
	s.hears(low, "Normal Evicted from "+from+": "+s.ns+"/low below its floor")
	s.gone(low)
	next := s.pod("low-2", 1, "class=besteffort floor=0.5 profile=low migratable=true", ownedBy("low"))
	s.bound(next)
	now := s.get(next)
	if at := now.Annotations[kube.AnnotationGPU]; at == from || !strings.HasPrefix(at, node) {
		t.Errorf("it went from %s to %s", from, at)
	}
	if at, err := time.Parse(time.RFC3339, now.Annotations[kube.AnnotationMoved]); err != nil || time.Since(at) > patience {
		t.Errorf("it does not tell when it was moved: %q", now.Annotations[kube.AnnotationMoved])
	}
	alone := window(0)
	alone.Beside = 0
	s.tells(next, alone)
	first.wake()
	s.hears(next, "Normal Resumed on "+now.Annotations[kube.AnnotationGPU]+", paused ")
	s.eventually("its condition tells that it was heard of", func() string {
		if !strings.HasPrefix(s.held(next), "True Held") {
			return s.held(next)
		}
		return ""
	})

	first.stop()
	second := s.controller(nil)
	for range 5 {
		s.tells(next, alone)
		second.wake()
		time.Sleep(100 * time.Millisecond)
	}
	s.eventually("the next controller has heard of it", func() string {
		if !strings.HasPrefix(s.held(next), "True Held") {
			return s.held(next)
		}
		return ""
	})
	resumed := 0
	for _, line := range s.said(next) {
		if strings.Contains(line, "Resumed") {
			resumed++
		}
	}
	if resumed != 1 {
		t.Errorf("it was told %d times that it goes on", resumed)
	}
}

// TestLearnedOutlivesTheController: two kinds that did not go together are kept apart by the next controller, too, though it sees neither
// of their last windows again.
func TestLearnedOutlivesTheController(t *testing.T) {
	s := at(t)
	s.node(1)
	_, err := s.client.CoreV1().ConfigMaps(s.ns).Create(s.context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: kube.Learned}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	busy := int32(10)
	memory := &v1alpha1.ProfileMemory{Peak: resource.MustParse("8Gi")}
	for _, name := range []string{"low", "high", "calm"} {
		s.profile(name, v1alpha1.WorkloadProfileSpec{Figures: v1alpha1.Figures{UtilisationPercent: &busy, Memory: memory}})
	}
	first := s.controller(nil, func(o *Options) { o.Namespace = s.ns })
	s.eventually("the controller knows the profiles", func() string { return fewer(len(first.cache.listProfiles()), 3) })
	low := s.pod("low", 1, "class=besteffort floor=0.5 profile=low migratable=true", ownedBy("low"))
	high := s.pod("high", 1, "class=guaranteed floor=0.9 profile=high", ownedBy("high"))
	s.bound(low, high)
	s.runs(low, high)
	s.evicted(first, low, high)
	s.gone(low)
	first.stop()
	if err := <-first.done; err != nil {
		t.Fatal(err)
	}
	first.done <- nil
	if fault := s.apart(); fault != "" {
		t.Fatalf("as it ended it wrote: %s", fault)
	}

	next := s.pod("low-2", 1, "class=besteffort floor=0.5 profile=low migratable=true", ownedBy("low"))
	time.Sleep(1100 * time.Millisecond) // times in the API are of whole seconds: the next one comes after it in the queue
	second := s.controller(nil, func(o *Options) { o.Namespace, o.Remember = s.ns, 100*time.Millisecond })
	calm := s.pod("calm", 1, "class=besteffort floor=0.5 profile=calm", ownedBy("calm"))
	s.bound(calm) // so the next one has planned
	if now := s.get(next); now.Spec.NodeName != "" || len(now.Spec.SchedulingGates) == 0 {
		t.Errorf("the next controller brought them together again, on %s", now.Annotations[kube.AnnotationGPU])
	}
	if _, err := s.client.CoreV1().ConfigMaps(s.ns).Patch(s.context(), kube.Learned, types.MergePatchType, []byte(`{"binaryData":null}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.runs(calm)
	s.eventually("the next controller writes what it knows while it runs", func() string {
		s.tells(calm, window(0.1))
		second.wake()
		time.Sleep(200 * time.Millisecond)
		return s.apart()
	})
}

// TestLearnedMayBeForbidden: a controller acts also where an older installation gives it neither the ConfigMap nor the right to it.
func TestLearnedMayBeForbidden(t *testing.T) {
	s := at(t)
	s.node(1)
	s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/configmaps/") {
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}
			return rt.RoundTrip(r)
		})
	})
	s.bound(s.pod("p", 1, "floor=0.5 memory=8Gi"))
}

func fewer(have, want int) string {
	if have < want {
		return fmt.Sprintf("%d of %d", have, want)
	}
	return ""
}

// TestProfileIsLearned: the first job of an empty profile has its GPU to itself; what it needs is written down, and the next ones share.
func TestProfileIsLearned(t *testing.T) {
	s := at(t)
	s.node(2)
	s.profile("new", v1alpha1.WorkloadProfileSpec{})
	c := s.controller(nil)
	s.eventually("the controller knows the profile", func() string { return fewer(len(c.cache.listProfiles()), 1) })
	first := s.pod("first", 1, "floor=0.5 profile=new")
	s.bound(first)
	s.eventually("it is learned", func() string {
		s.tells(first, v1alpha1.Window{Seconds: 20, Age: 600, Held: 4, Used: 4, Utilisation: 0.2, Iterations: 100, Peak: resource.MustParse("6Gi")})
		c.wake()
		time.Sleep(100 * time.Millisecond)
		if l := s.learned("new"); l.Source != v1alpha1.SourceLearned || l.Memory == nil {
			return fmt.Sprintf("%+v", l)
		}
		return ""
	})
	l := s.learned("new")
	if l.Memory.Peak.String() != "6784Mi" || *l.UtilisationPercent != 20 || l.Rates[0].StepsPerSecond.Float(0) != 5 || l.Iterations < 600 {
		t.Errorf("learned %s, %d %%, %v, %d iterations", &l.Memory.Peak, *l.UtilisationPercent, l.Rates, l.Iterations)
	}
	s.eventually("the controller knows what was learned", func() string { // it hears of profiles and of Pods on ways of their own
		if p := c.cache.profile(types.NamespacedName{Namespace: s.ns, Name: "new"}); p == nil || p.Status.Memory == nil {
			return "not yet"
		}
		return ""
	})
	a, b := s.pod("a", 1, "floor=0.5 profile=new"), s.pod("b", 1, "floor=0.5 profile=new")
	s.bound(a, b)
	if x, y := s.get(a).Annotations[kube.AnnotationGPU], s.get(b).Annotations[kube.AnnotationGPU]; x != y {
		t.Errorf("they are on %s and %s: want one GPU", x, y)
	}
}
