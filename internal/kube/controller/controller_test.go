package controller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/unit"
)

func TestTwoShareAThirdWaits(t *testing.T) {
	s := at(t)
	node := s.node(1)
	s.controller(nil)
	a := s.pod("a", 1, "memory=30Gi floor=0.4")
	b := s.pod("b", 1, "memory=30Gi floor=0.4")
	s.bound(a, b)
	c := s.pod("c", 1, "memory=30Gi floor=0.3")
	s.hears(c, "Normal Waiting MemoryReserved: 0 of ", "nearest "+node+"/gpu0 90Gi > 80Gi beside "+s.ns+"/")
	s.eventually("its condition says so", func() string {
		if status, reason := s.condition(c); status != corev1.ConditionFalse || reason != "MemoryReserved" {
			return fmt.Sprintf("its condition is %s %s", status, reason)
		}
		return ""
	})
	s.hears(b, "Normal Placed "+node+"/gpu0 beside "+s.ns+"/a: 30Gi reserved, predicted 0.", "floor 0.40")
	if got := s.get(b).Annotations[kube.AnnotationGPU]; got != node+"/gpu0" {
		t.Errorf("it is noted to be on %q", got)
	}
	if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bound(c)
	s.eventually("c is told that it is placed", func() string {
		if status, reason := s.condition(c); status != corev1.ConditionTrue || reason != queue.Placed {
			return fmt.Sprintf("its condition is %s %s", status, reason)
		}
		return ""
	})
	if n := len(s.said(c)); n > 3 {
		t.Errorf("it was told %d things:\n%s", n, strings.Join(s.said(c), "\n"))
	}
	c2 := s.pod("too-large", 1, "memory=90Gi")
	s.hears(c2, "Warning CannotFit TooLarge: asks 90Gi, largest GPU 80Gi; lower weft.dev/memory")
}

func TestNativeBesideShared(t *testing.T) {
	s := at(t)
	node := s.node(2)
	s.controller(nil)
	native := s.pod("native", 1, "")
	s.bound(native)
	a := s.pod("a", 1, "memory=10Gi floor=0.3")
	b := s.pod("b", 1, "memory=10Gi floor=0.3")
	s.bound(a, b)
	other := s.pod("other", 1, "")
	text := s.hears(other, "Normal Waiting Native: 0 of ", "it asks 1; held: ")
	for _, who := range []string{s.ns + "/a", s.ns + "/b", s.plain + "/native"} {
		if !strings.Contains(text, who) {
			t.Errorf("it is not told of %s: %s", who, text)
		}
	}
	for _, p := range []*corev1.Pod{a, b} {
		if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.bound(other)
	c := s.pod("c", 1, "memory=10Gi floor=0.3")
	s.hears(c, "Normal Waiting Native: 0 of ", "nearest "+node, "whole for "+s.plain+"/")
	s.judge()
}

// judge holds the claims of the site against its GPUs: whoever decided, what was given of a GPU is never more than it has, and a
// native Pod's is its own. Claims of both namespaces are of one moment: else a GPU that goes from one to the other would count twice.
func (s *site) judge() {
	s.t.Helper()
	type use struct {
		memory unit.Bytes
		share  int64
		native int
		shared int
	}
	uses := map[claim.Device]*use{}
	list, err := s.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(s.context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Namespace != s.ns && c.Namespace != s.plain || c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			d := claim.Device{Pool: r.Pool, Name: r.Device}
			if uses[d] == nil {
				uses[d] = &use{}
			}
			u := uses[d]
			memory, share := r.ConsumedCapacity[kube.CapacityMemory], r.ConsumedCapacity[kube.CapacityShare]
			u.memory, u.share = u.memory+unit.Bytes(memory.Value()), u.share+share.Value()
			if claim.Managed(c) {
				u.shared++
			} else {
				u.native++
			}
		}
	}
	for d, u := range uses {
		if u.memory > 80*unit.GiB || u.share > kube.WholeShare || u.native > 1 || u.native == 1 && u.shared > 0 {
			s.t.Errorf("%v is booked twice: %+v", d, *u)
		}
	}
}

func TestGangWhole(t *testing.T) {
	s := at(t)
	s.node(3)
	s.controller(nil)
	var gang []*corev1.Pod
	for i := range 4 {
		gang = append(gang, s.pod(fmt.Sprintf("g-%d", i), 1, "memory=70Gi gang=4"))
	}
	s.hears(gang[0], "Warning CannotFit TooLarge: asks 4 GPUs of 70Gi, the cluster has 3 for it; ask for fewer")
	if n := len(s.claims(s.ns)); n != 0 {
		t.Errorf("%d claims of a gang that waits", n)
	}
	for _, p := range gang {
		if now := s.get(p); len(now.Spec.SchedulingGates) != 1 {
			t.Errorf("%s is released", p.Name)
		}
	}
	s.node(1)
	// Those Pods name the nodes that there were. Others take the new one as well.
	for _, p := range gang {
		if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gang = nil
	for i := range 4 {
		gang = append(gang, s.pod(fmt.Sprintf("h-%d", i), 1, "memory=70Gi gang=4"))
	}
	s.bound(gang...)
	s.judge()
}

// TestKilledBetweenClaimAndGate: the next controller lifts the gates, on the claims that are there.
func TestKilledBetweenClaimAndGate(t *testing.T) {
	s := at(t)
	s.node(2)
	var stopped atomic.Bool
	reached := make(chan struct{})
	var once sync.Once
	first := s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if isGate(r) {
				once.Do(func() { close(reached) })
				stopped.Store(true)
			}
			if stopped.Load() && r.Method != http.MethodGet {
				return nil, errors.New("killed")
			}
			return rt.RoundTrip(r)
		})
	})
	a := s.pod("a", 1, "memory=70Gi")
	b := s.pod("b", 1, "memory=70Gi")
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no gate was to be lifted")
	}
	first.stop()
	before := s.claims(s.ns)
	if len(before) == 0 || len(s.get(a).Spec.SchedulingGates)+len(s.get(b).Spec.SchedulingGates) != 2 {
		t.Fatalf("%d claims, gates %v %v", len(before), s.get(a).Spec.SchedulingGates, s.get(b).Spec.SchedulingGates)
	}
	s.controller(nil)
	s.bound(a, b)
	after := s.claims(s.ns)
	for name, c := range before {
		if after[name] == nil || after[name].UID != c.UID {
			t.Errorf("claim %s was made anew", name)
		}
	}
	s.judge()
}

// TestDeletedWhileGated leaves nothing.
func TestDeletedWhileGated(t *testing.T) {
	s := at(t)
	s.node(1)
	release := make(chan struct{})
	s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if isGate(r) {
				<-release
			}
			return rt.RoundTrip(r)
		})
	})
	a := s.pod("a", 1, "memory=70Gi")
	s.eventually("its claim is there", func() string {
		if len(s.claims(s.ns)) == 0 {
			return "no claim"
		}
		return ""
	})
	now := int64(0)
	if err := s.client.CoreV1().Pods(s.ns).Delete(s.context(), a.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	again := s.pod("a", 1, "memory=70Gi") // of the same name: another Pod, and another claim
	close(release)
	s.bound(again)
	s.eventually("the first claim is gone", func() string {
		if n := len(s.claims(s.ns)); n != 1 {
			return fmt.Sprintf("%d claims", n)
		}
		return ""
	})
}

// TestRefusedBacksOff: whom a quota refuses is told so in its words, and others go on.
func TestRefusedBacksOff(t *testing.T) {
	s := at(t)
	s.node(4)
	var tries atomic.Int32
	s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.Contains(r.URL.Path, s.ns+"/resourceclaims") {
				tries.Add(1)
			}
			return rt.RoundTrip(r)
		})
	})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/resourceclaims.resource.k8s.io": resource.MustParse("1")}}}
	if _, err := s.client.CoreV1().ResourceQuotas(s.ns).Create(s.context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the quota counts", func() string {
		q, err := s.client.CoreV1().ResourceQuotas(s.ns).Get(s.context(), "claims", metav1.GetOptions{})
		if err != nil || len(q.Status.Hard) == 0 {
			return "not yet"
		}
		return ""
	})
	a := s.pod("a", 1, "memory=70Gi")
	s.bound(a)
	b := s.pod("b", 1, "memory=70Gi")
	s.hears(b, "Warning Refused ", "exceeded quota: claims")
	native := s.pod("native", 1, "")
	s.bound(native)
	before := tries.Load()
	time.Sleep(3 * time.Second)
	if n := tries.Load() - before; n > 3 {
		t.Errorf("it was tried %d times in 3 s", n)
	}
	if err := s.client.CoreV1().ResourceQuotas(s.ns).Delete(s.context(), "claims", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bound(b)
}

// TestToldLater: where the API server does not take the news of a Pod, or its answer is lost, the Pod is told later, and once.
func TestToldLater(t *testing.T) {
	s := at(t)
	s.node(1)
	var events, conditions atomic.Int32
	s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			var tries *atomic.Int32
			switch {
			case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, s.ns+"/events"):
				tries = &events
			case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, s.ns+"/pods/") && strings.HasSuffix(r.URL.Path, "/status"):
				tries = &conditions
			default:
				return rt.RoundTrip(r)
			}
			if tries.Add(1) > 1 {
				return rt.RoundTrip(r)
			}
			if answer, err := rt.RoundTrip(r); err == nil {
				_ = answer.Body.Close()
			}
			return nil, errors.New("the answer is lost")
		})
	})
	p := s.pod("a", 1, "memory=70Gi")
	s.hears(p, "Normal Placed ")
	s.eventually("its condition says so", func() string {
		if status, reason := s.condition(p); conditions.Load() < 2 || status != corev1.ConditionTrue {
			return fmt.Sprintf("%q %q after %d tries", status, reason, conditions.Load())
		}
		return ""
	})
	if said := s.said(p); events.Load() < 3 || len(said) != 1 {
		t.Errorf("told in %d tries: %s", events.Load(), said)
	}
}

// late delays what a watch shows.
type late struct {
	events chan lateBytes
	rest   []byte
	body   interface{ Close() error }
}

type lateBytes struct {
	data []byte
	err  error
	due  time.Time
}

func (l *late) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		e, ok := <-l.events
		if !ok {
			return 0, errors.New("closed")
		}
		if e.err != nil {
			return 0, e.err
		}
		time.Sleep(time.Until(e.due))
		l.rest = e.data
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *late) Close() error { return l.body.Close() }

func lagging(lag time.Duration) transport {
	return func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := rt.RoundTrip(r)
			if err != nil || r.URL.Query().Get("watch") == "" {
				return resp, err
			}
			l := &late{events: make(chan lateBytes, 1<<14), body: resp.Body}
			body := resp.Body
			go func() {
				defer close(l.events)
				for {
					buffer := make([]byte, 32<<10)
					n, err := body.Read(buffer)
					if n > 0 {
						l.events <- lateBytes{buffer[:n], nil, time.Now().Add(lag)}
					}
					if err != nil {
						l.events <- lateBytes{nil, err, time.Now()}
						return
					}
				}
			}()
			resp.Body = l
			return resp, nil
		})
	}
}

// TestInformersLag: with watches that are seconds behind, nothing is written twice, and no GPU is given away twice.
func TestInformersLag(t *testing.T) {
	s := at(t)
	s.node(3)
	var mu sync.Mutex
	created := map[string]int{}
	s.controller(func(rt http.RoundTripper) http.RoundTripper {
		return lagging(1500 * time.Millisecond)(roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := rt.RoundTrip(r)
			if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/resourceclaims") {
				mu.Lock()
				created[resp.Status]++
				mu.Unlock()
			}
			return resp, err
		}))
	})
	var pods []*corev1.Pod
	for i := range 9 {
		pods = append(pods, s.pod(fmt.Sprintf("p-%d", i), 1, "memory=25Gi floor=0.3"))
		time.Sleep(150 * time.Millisecond)
	}
	s.bound(pods...)
	mu.Lock()
	defer mu.Unlock()
	if len(created) != 1 || created["201 Created"] != len(pods) {
		t.Errorf("claims were written so: %v", created)
	}
	s.judge()
}

// TestOustedByNative: a native Pod takes a GPU between pin and bind. The claim is made anew on another GPU of the node.
func TestOustedByNative(t *testing.T) {
	s := at(t)
	node := s.node(2)
	s.controller(nil)
	// A Pod that is pinned and that the scheduler cannot bind yet: it mounts a volume claim that is not there.
	a := s.pod("a", 1, "memory=60Gi", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "later"}}}}
	})
	s.eventually("a is pinned", func() string {
		if now := s.get(a); now == nil || len(now.Spec.SchedulingGates) > 0 {
			return "it is gated"
		}
		return ""
	})
	pinned := func() string {
		for _, c := range s.claims(s.ns) {
			if share, err := claim.Read(c); err == nil {
				return share.GPUs[0]
			}
		}
		return ""
	}
	was := pinned()
	native := s.pod("native", 1, "", func(p *corev1.Pod) { // the scheduler takes the first that is free
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{node}
	})
	s.bound(native)
	taken := ""
	s.eventually("the native Pod has a claim", func() string {
		for _, c := range s.claims(s.plain) {
			for _, d := range claim.Devices(c) {
				taken = fmt.Sprintf("GPU-%s-%s", node, strings.TrimPrefix(d.Name, "gpu-"))
				return ""
			}
		}
		return "none"
	})
	if taken != was {
		t.Skipf("SKIPPED: the scheduler gave the native Pod %s, and not %s, to which a is pinned: there is nothing to be ousted from", taken, was)
	}
	s.eventually("a is pinned to the other GPU", func() string {
		if now := pinned(); now == "" || now == taken {
			return "it is pinned to " + now
		}
		return ""
	})
	class := ""
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
	if _, err := s.client.CoreV1().PersistentVolumes().Create(s.context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.CoreV1().PersistentVolumes().Delete(s.context(), s.ns, metav1.DeleteOptions{}) })
	later := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "later"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: s.ns,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
	if _, err := s.client.CoreV1().PersistentVolumeClaims(s.ns).Create(s.context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bound(a)
	s.judge()
}

// TestStuckIsEvicted: where no other GPU of the node takes a Pod whose GPU was taken, it goes if something makes it again; one that nobody
// makes again stays, and waits.
func TestStuckIsEvicted(t *testing.T) {
	s := at(t)
	s.node(1)
	s.controller(nil)
	owner, err := s.client.CoreV1().ConfigMaps(s.ns).Create(s.context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	later := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "later"}}}}
	}
	owned := s.pod("owned", 1, "memory=30Gi floor=0.4", later, func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &yes}}
	})
	alone := s.pod("alone", 1, "memory=30Gi floor=0.4", later)
	for _, p := range []*corev1.Pod{owned, alone} {
		s.eventually(p.Name+" is pinned", func() string {
			if now := s.get(p); now == nil || len(now.Spec.SchedulingGates) > 0 {
				return "it is gated"
			}
			return ""
		})
	}
	native := s.pod("native", 1, "")
	s.bound(native)
	s.eventually("what has an owner is evicted", func() string {
		if now := s.get(owned); now != nil && now.DeletionTimestamp == nil {
			return "it is there"
		}
		return ""
	})
	s.hears(owned, "Normal Evicted from "+s.nodes[0]+": its GPU was taken before it started")
	s.hears(alone, "Normal Waiting Native: 0 of ", "whole for "+s.plain+"/native")
	if s.get(alone) == nil {
		t.Error("what nobody makes again is evicted")
	}
	if err := s.client.CoreV1().Pods(s.plain).Delete(s.context(), native.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is pinned again", func() string {
		if len(s.claims(s.ns)) == 0 {
			return "no claim"
		}
		return ""
	})
}

// TestTwoHundredAtOnce: shared and native Pods arrive together, many more than there are GPUs. Whatever the order, no GPU is booked
// twice, and as those that run end, all come to run.
func TestTwoHundredAtOnce(t *testing.T) {
	s := at(t)
	for range 4 {
		s.node(8)
	}
	s.controller(nil)
	var drafts []*corev1.Pod
	for i := range 150 {
		drafts = append(drafts, s.draft(fmt.Sprintf("shared-%03d", i), 1, []string{"memory=15Gi floor=0.3", "memory=35Gi floor=0.4",
			"memory=70Gi floor=0.9", ""}[i%3]))
	}
	for i := range 50 {
		drafts = append(drafts, s.draft(fmt.Sprintf("native-%03d", i), 1, ""))
	}
	slices.SortFunc(drafts, func(a, b *corev1.Pod) int { return strings.Compare(a.Name[7:]+a.Name, b.Name[7:]+b.Name) })
	var creating sync.WaitGroup
	for _, part := range slices.Collect(slices.Chunk(drafts, 25)) {
		creating.Go(func() {
			for _, p := range part {
				if _, err := s.client.CoreV1().Pods(p.Namespace).Create(s.context(), p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	began := time.Now()
	ended := map[string]bool{}
	s.within(4*time.Minute, "all have run", func() string {
		s.judge()
		now := int64(0)
		left := 0
		for _, ns := range []string{s.ns, s.plain} {
			list, err := s.client.CoreV1().Pods(ns).List(s.context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for i := range list.Items {
				p := &list.Items[i]
				if p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
					left++
					continue
				}
				ended[p.Name] = true
				if err := s.client.CoreV1().Pods(ns).Delete(s.context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !gone(err) {
					return err.Error()
				}
			}
		}
		if left > 0 || len(ended) < len(drafts) {
			return fmt.Sprintf("%d have run, %d wait", len(ended), left)
		}
		return ""
	})
	t.Logf("200 Pods came and went in %.1f s", time.Since(began).Seconds())
}

// TestTakesOver: of two controllers one acts; when it ends the other goes on, and what is gated is placed once.
func TestTakesOver(t *testing.T) {
	s := at(t)
	s.node(2)
	elect := func(name string) func(*Options) {
		return func(o *Options) { o.Elect, o.Identity, o.Namespace = true, name, s.plain }
	}
	first := s.controller(nil, elect("first"))
	a := s.pod("a", 1, "memory=70Gi")
	s.bound(a)
	s.controller(nil, elect("second"))
	first.stop()
	b := s.pod("b", 1, "memory=70Gi")
	s.bound(b)
	l, err := s.client.CoordinationV1().Leases(s.plain).Get(s.context(), kube.Controller, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != "second" {
		t.Errorf("the lease is %+v, %v", l.Spec, err)
	}
}

// TestUnhealthyEvictsNative: the cluster does not evict Pods that came by an extended resource from a device that nobody may stay on.
func TestUnhealthyEvictsNative(t *testing.T) {
	s := at(t)
	node := s.node(1)
	s.controller(nil)
	native := s.pod("native", 1, "")
	s.bound(native)
	s.taint(node, "gpu-0", "xid79")
	s.eventually("it is evicted", func() string {
		if now := s.get(native); now != nil && now.DeletionTimestamp == nil {
			return "it runs on"
		}
		return ""
	})
	s.hears(native, "Normal Evicted from "+node+"/gpu0: weft.dev/unhealthy=xid79")
}
