package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/unit"
)

// outcome is a decision for people: "ml/a on n1/gpu0; ml/b: MemoryReserved".
func outcome(q *Queue, d dispatch.Decision) string {
	var parts []string
	for _, s := range d.Starts {
		var on []string
		for _, g := range s.GPUs {
			on = append(on, q.GPUs[g].String())
		}
		parts = append(parts, q.Jobs[s.Job].Name+" on "+strings.Join(on, ","))
	}
	for _, w := range d.Waits {
		parts = append(parts, fmt.Sprintf("%s: %s", q.Jobs[w.Job].Name, w.Reason.Code))
	}
	return strings.Join(parts, "; ")
}

func expect(t *testing.T, w *world, want string) {
	t.Helper()
	if got := outcome(w.plan()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTwoShareAThirdWaits(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	w.add("ml/a", 1, ask("memory=8Gi floor=0.4"))
	w.add("ml/b", 1, ask("memory=8Gi floor=0.4"))
	w.c.Now = w.c.Now.Add(time.Second)
	w.add("ml/c", 1, ask("memory=10Gi floor=0.3"))
	q, d := w.turn()
	if got, want := outcome(q, d), "ml/a on n1/gpu0; ml/b on n1/gpu0; ml/c: MemoryReserved"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	expect(t, w, "ml/c: MemoryReserved") // pinned counts as placed before the scheduler has seen it
	w.scheduleAll()
	expect(t, w, "ml/c: MemoryReserved")
	for _, c := range w.c.Claims {
		if m := c.Spec.Devices.Requests[0].Exactly.Capacity.Requests[kube.CapacityMemory]; m.String() != "8Gi" {
			t.Errorf("claim %s asks %s", c.Name, m.String())
		}
	}
	w.remove(w.c.Pods[0])
	expect(t, w, "ml/c on n1/gpu0")
}

func TestNative(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 2, "24Gi")
	native := w.add("plain/x", 1, nil)
	if !w.schedule(native) {
		t.Fatal("a native Pod finds no free GPU")
	}
	w.add("ml/a", 2, ask("memory=1Gi floor=0.1"))
	w.add("ml/b", 1, ask("memory=1Gi floor=0.1"))
	q, d := w.plan()
	if got, want := outcome(q, d), "ml/b on n1/gpu1; ml/a: Gang"; got != want && got != "ml/a: Gang; ml/b: Priority" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range d.Starts {
		if slices.Contains(s.GPUs, 0) {
			t.Error("a job shares the GPU of a native Pod")
		}
	}
	if got := q.Holders(0); !slices.Equal(got, []string{"plain/x"}) {
		t.Errorf("gpu0 is held by %v", got)
	}
	w.remove(native)
	if _, d := w.plan(); len(d.Starts) != 2 {
		t.Errorf("both fit once the native Pod has gone: %+v", d)
	}
}

// TestNativeWaitsInLine: a stream of small Pods does not keep a native one from its GPU for ever; where the scheduler does not want
// the GPU that is kept for it, others get it.
func TestNativeWaitsInLine(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	first := w.add("ml/a", 1, ask("memory=4Gi floor=0.3"))
	w.turn()
	w.scheduleAll()
	w.c.Now = w.c.Now.Add(time.Second)
	native := w.add("plain/x", 1, nil)
	for i := range 5 {
		w.c.Now = w.c.Now.Add(time.Hour)
		w.add(fmt.Sprintf("ml/small-%d", i), 1, ask("memory=1Gi floor=0.1"))
	}
	if q, d := w.plan(); len(d.Starts) != 0 {
		t.Errorf("newcomers pass a native Pod that waits for the GPU: %s", outcome(q, d))
	}
	w.remove(first)
	q, d := w.plan()
	if !q.Jobs[d.Starts[0].Job].Native || len(d.Starts) != 1 {
		t.Errorf("the GPU is not kept for the native Pod: %s", outcome(q, d))
	}
	w.c.Passed = map[types.UID]bool{native.UID: true}
	if q, d := w.plan(); len(d.Starts) < 4 || q.Jobs[d.Starts[0].Job].Native {
		t.Errorf("the GPU is kept for a Pod that the scheduler does not place: %s", outcome(q, d))
	}
}

func TestGangs(t *testing.T) {
	gang := func(w *world, n int, change ...func(*corev1.Pod)) {
		for i := range n {
			w.add(fmt.Sprintf("ml/g-%d", i), 1, ask("memory=20Gi floor=0.9 gang=4"), append([]func(*corev1.Pod){owned("Job", "g")}, change...)...)
		}
	}
	t.Run("whole or not at all", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 3, "24Gi")
		gang(w, 4)
		expect(t, w, "ml/g-0 and 3 more: TooLarge")
		w.node("n2", 1, "24Gi")
		q, d := w.turn()
		if len(d.Starts) != 1 || len(d.Starts[0].GPUs) != 4 || len(w.c.Claims) != 4 {
			t.Fatalf("%s, %d claims", outcome(q, d), len(w.c.Claims))
		}
		expect(t, w, "")
	})
	t.Run("not before all Pods are there", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 8, "24Gi")
		gang(w, 3)
		q, d := w.plan()
		if outcome(q, d) != "ml/g-0 and 2 more: Gang" {
			t.Fatal(outcome(q, d))
		}
		if got := q.Wait(d.Waits[0]).Text; got != "Gang: 3 of its 4 Pods are there" {
			t.Error(got)
		}
	})
	t.Run("two at once, one after the other", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 6, "24Gi")
		gang(w, 8)
		q, d := w.turn()
		if len(d.Starts) != 1 || len(d.Waits) != 1 || len(d.Starts[0].GPUs) != 4 {
			t.Fatal(outcome(q, d))
		}
		for range 3 {
			w.turn()
		}
		if len(w.c.Claims) != 4 {
			t.Errorf("%d claims: half a gang holds GPUs", len(w.c.Claims))
		}
	})
	t.Run("a member that comes again joins", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 4, "24Gi")
		gang(w, 4)
		w.turn()
		w.scheduleAll()
		w.c.Pods[1].Status.Phase = corev1.PodFailed
		w.remove(w.c.Pods[1])
		w.add("ml/g-1b", 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "g"))
		expect(t, w, "ml/g-1b on n1/gpu1")
	})
	t.Run("a member that comes again goes before a gang that waits", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 4, "24Gi")
		gang(w, 4)
		w.turn()
		w.scheduleAll()
		for i := range 4 { // of a higher priority, and old
			w.add(fmt.Sprintf("ml/h-%d", i), 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "h"), func(p *corev1.Pod) { p.Spec.Priority = new(int32(1e9)) })
		}
		w.c.Now = w.c.Now.Add(48 * time.Hour)
		w.remove(w.c.Pods[1])
		w.add("ml/g-1b", 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "g"))
		expect(t, w, "ml/g-1b on n1/gpu1; ml/h-0 and 3 more: MemoryReserved")
	})
	t.Run("of two that lack members the older is whole first", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 8, "24Gi")
		gang(w, 4)
		w.c.Now = w.c.Now.Add(time.Second)
		for i := range 4 {
			w.add(fmt.Sprintf("other/h-%d", i), 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "h"))
		}
		w.turn()
		w.turn()
		w.scheduleAll()
		for _, p := range slices.Clone(w.c.Pods) {
			if i := p.Name[len(p.Name)-1]; i >= '2' {
				w.remove(p)
			}
		}
		w.schedule(w.add("plain/x", 2, nil))
		for i := range 2 { // the younger gang's are back first, and its user has as much as the other one
			w.add(fmt.Sprintf("other/h-%db", i), 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "h"))
		}
		w.c.Now = w.c.Now.Add(time.Second)
		for i := range 2 {
			w.add(fmt.Sprintf("ml/g-%db", i), 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "g"))
		}
		q, d := w.plan()
		if got := outcome(q, d); !strings.HasPrefix(got, "ml/g-0b on n1/gpu6; ml/g-1b on n1/gpu7; other/h-0b: ") {
			t.Error(got)
		}
	})
	t.Run("of an indexed Job by index", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 8, "24Gi")
		for _, i := range []int{0, 1, 4, 5, 2} { // of two gangs of 4 neither is whole
			w.add(fmt.Sprintf("ml/g-%d", i), 1, ask("memory=20Gi gang=4"), owned("Job", "g"), func(p *corev1.Pod) {
				p.Annotations["batch.kubernetes.io/job-completion-index"] = fmt.Sprint(i)
			})
		}
		q, d := w.plan()
		if len(d.Starts) != 0 || len(d.Waits) != 2 {
			t.Error(outcome(q, d))
		}
	})
	t.Run("of a Deployment each by itself", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 1, "24Gi")
		w.add("ml/serve-1", 1, ask("memory=20Gi gang=4"), owned("ReplicaSet", "serve-abc"))
		expect(t, w, "ml/serve-1 on n1/gpu0")
	})
	t.Run("of several GPUs each, on one node", func(t *testing.T) {
		w := newWorld(t)
		for i := range 3 {
			w.node(fmt.Sprintf("n%d", i), 3, "24Gi")
		}
		for i := range 3 {
			w.add(fmt.Sprintf("ml/g-%d", i), 2, ask("memory=20Gi gang=3"), owned("Job", "g"))
		}
		q, d := w.turn()
		if len(d.Starts) != 1 {
			t.Fatal(outcome(q, d))
		}
		for _, c := range w.c.Claims {
			s, err := claim.Read(c)
			if err != nil || len(s.GPUs) != 2 || s.GPUs[0][:6] != s.GPUs[1][:6] || s.GPUs[0] == s.GPUs[1] {
				t.Errorf("%v %v", s.GPUs, err)
			}
		}
	})
	t.Run("of unlike Pods", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 8, "24Gi")
		w.add("ml/head", 1, ask("memory=20Gi gang=2"), owned("RayCluster", "r"))
		w.add("ml/worker", 4, ask("memory=20Gi gang=2"), owned("RayCluster", "r"))
		q, d := w.plan()
		word := q.Wait(d.Waits[0])
		if !word.Warning || word.Reason != CannotFit || !strings.Contains(word.Text, "head for 1, worker for 4") {
			t.Errorf("%+v", word)
		}
	})
}

// TestCrash: whatever was written before a controller ended, the next one goes on from it, and plans nothing twice.
func TestCrash(t *testing.T) {
	t.Run("between claim and gate", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 2, "24Gi")
		w.add("ml/a", 1, ask("memory=20Gi"))
		w.add("ml/b", 1, ask("memory=20Gi"))
		q, d := w.plan()
		w.claims(q, d.Starts[0])
		w.claims(q, d.Starts[1])
		q, d = w.plan()
		if len(d.Starts) != 0 || len(q.Lift) != 2 || len(q.Undo) != 0 {
			t.Fatalf("%s; lift %d, undo %d", outcome(q, d), len(q.Lift), len(q.Undo))
		}
		w.turn()
		if Gated(w.c.Pods[0]) || Gated(w.c.Pods[1]) {
			t.Error("the gates are not lifted")
		}
	})
	t.Run("between the claims of a gang", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 4, "24Gi")
		for i := range 4 {
			w.add(fmt.Sprintf("ml/g-%d", i), 1, ask("memory=20Gi gang=4"), owned("Job", "g"))
		}
		q, d := w.plan()
		w.claims(q, d.Starts[0])
		w.c.Claims = w.c.Claims[:2]
		q, d = w.plan()
		if len(d.Starts) != 0 || len(q.Lift) != 0 || len(q.Undo) != 2 {
			t.Fatalf("%s; lift %d, undo %d", outcome(q, d), len(q.Lift), len(q.Undo))
		}
		w.turn()
		if q, d := w.turn(); len(d.Starts) != 1 {
			t.Error(outcome(q, d))
		}
	})
	t.Run("between the gates of a gang", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 4, "24Gi")
		for i := range 4 {
			w.add(fmt.Sprintf("ml/g-%d", i), 1, ask("memory=20Gi gang=4"), owned("Job", "g"))
		}
		q, d := w.plan()
		w.claims(q, d.Starts[0])
		w.lift(w.c.Pods[2], "n1")
		q, d = w.plan()
		if len(d.Starts) != 0 || len(q.Lift) != 3 || len(q.Undo) != 0 {
			t.Fatalf("%s; lift %d, undo %d", outcome(q, d), len(q.Lift), len(q.Undo))
		}
	})
	t.Run("between the claims of a Pod", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 4, "24Gi")
		w.add("ml/two", 1, ask("memory=20Gi"), func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second", Resources: *p.Spec.Containers[0].Resources.DeepCopy()})
		})
		q, d := w.plan()
		w.claims(q, d.Starts[0])
		if len(w.c.Claims) != 2 {
			t.Fatalf("%d claims for two containers", len(w.c.Claims))
		}
		w.c.Claims = w.c.Claims[1:]
		if q, d := w.plan(); len(d.Starts) != 0 || len(q.Undo) != 1 || len(q.Lift) != 0 {
			t.Fatalf("%s; lift %d, undo %d", outcome(q, d), len(q.Lift), len(q.Undo))
		}
	})
	t.Run("with a claim that is being deleted", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 1, "24Gi")
		w.add("ml/a", 1, ask("memory=20Gi"))
		q, d := w.plan()
		w.claims(q, d.Starts[0])
		now := metav1.Now()
		w.c.Claims[0].DeletionTimestamp = &now
		if q, d := w.plan(); len(d.Starts) != 1 || len(q.Undo) != 0 || len(q.Lift) != 0 {
			t.Fatalf("%s; lift %d, undo %d", outcome(q, d), len(q.Lift), len(q.Undo))
		}
	})
}

// TestOusted: a native Pod takes the GPU between pin and bind. The claim is made anew on another GPU of the node; where there is none
// the Pod goes, if something makes another one.
func TestOusted(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 2, "24Gi")
	w.add("ml/a", 1, ask("memory=20Gi"), owned("Job", "a"))
	w.turn()
	native := w.add("plain/x", 1, nil)
	w.schedule(native)
	q, d := w.turn()
	if len(q.Undo) != 1 || len(d.Starts) != 0 {
		t.Fatalf("%s, undo %d", outcome(q, d), len(q.Undo))
	}
	q, d = w.turn()
	if got := outcome(q, d); got != "ml/a on n1/gpu1" {
		t.Fatal(got)
	}
	other := w.add("plain/y", 1, nil)
	w.schedule(other)
	w.turn()
	w.node("n2", 1, "24Gi") // it is bound to n1 already
	q, d = w.plan()
	stuck := q.Stuck(&d)
	if len(stuck) != 1 || stuck[0].Pod.Name != "a" || !strings.Contains(stuck[0].Text, "n1") {
		t.Fatalf("%s; stuck %+v", outcome(q, d), stuck)
	}
	w.c.Pods[0].OwnerReferences = nil
	q, d = w.plan()
	if stuck := q.Stuck(&d); len(stuck) != 0 {
		t.Errorf("a Pod that nobody makes again is evicted")
	}
}

func TestUnhealthy(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 2, "24Gi")
	native := w.add("plain/x", 1, nil)
	w.schedule(native)
	devices := w.c.Slices[0].Spec.Devices
	for i := range devices {
		devices[i].Taints = []resourcev1.DeviceTaint{{Key: kube.TaintUnhealthy, Value: "xid79", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	}
	w.add("ml/a", 1, ask("memory=1Gi"))
	q, d := w.plan()
	if len(q.Evict) != 1 || q.Evict[0].Pod != native || q.Evict[0].Text != "from n1/gpu0: weft.dev/unhealthy=xid79" {
		t.Errorf("%+v", q.Evict)
	}
	if got := outcome(q, d); got != "ml/a: GPUUnhealthy" {
		t.Error(got)
	}
	devices[1].Taints = nil
	expect(t, w, "ml/a on n1/gpu1")
}

func TestWaitsForOthers(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	p := w.add("ml/a", 1, ask("memory=1Gi"), func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	})
	q, d := w.plan()
	if got := q.Wait(d.Waits[0]).Text; got != "Dependency: gated by kueue.x-k8s.io/admission as well" {
		t.Error(got)
	}
	p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name != kube.Gate })
	expect(t, w, "ml/a on n1/gpu0")
	w.c.Held = map[types.UID]string{p.UID: "exceeded quota: claims"}
	q, d = w.plan()
	if got := q.Wait(d.Waits[0]).Text; got != "Planning: exceeded quota: claims" {
		t.Error(got)
	}
}

func TestPolicy(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 2, "24Gi")
	two, none, heavy := int32(2), int32(0), int32(5)
	w.c.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Residents: 3, Epsilon: "0.01", Namespaces: []v1alpha1.NamespaceTerms{
		{Name: "few", Terms: v1alpha1.Terms{Quota: &two, Weight: &heavy}}, {Name: "none", Terms: v1alpha1.Terms{Quota: &none}}}}}
	for i := range 3 {
		w.add(fmt.Sprintf("few/p%d", i), 1, ask("memory=1Gi floor=0.1"))
	}
	w.add("none/p", 1, ask("memory=1Gi floor=0.1"))
	q, d := w.turn()
	if got, want := outcome(q, d), "few/p0 on n1/gpu0; few/p1 on n1/gpu0; few/p2: Quota; none/p: Quota"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if s, _ := claim.Read(w.c.Claims[0]); s.Part != 333 {
		t.Errorf("a third of a GPU is %d", s.Part)
	}
	if o := q.State.Options; o.MaxResidents != 3 || o.Epsilon != 0.01 || q.State.Users["few"].Weight != 5 {
		t.Errorf("%+v %+v", o, q.State.Users)
	}
}

func TestProfiles(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	persistent := resource.MustParse("3Gi")
	busy := int32(40)
	w.c.Profiles = []*v1alpha1.WorkloadProfile{{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert"},
		Spec: v1alpha1.WorkloadProfileSpec{Figures: v1alpha1.Figures{
			Memory: &v1alpha1.ProfileMemory{Persistent: &persistent, Peak: resource.MustParse("9Gi"), Shape: "v100-training"}, UtilisationPercent: &busy}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "learning"}}}
	w.add("ml/a", 1, ask("profile=bert floor=0.5"))
	w.add("ml/b", 1, ask("profile=bert floor=0.5"))
	w.add("other/c", 1, ask("profile=bert floor=0.5"))
	w.add("ml/d", 1, ask("profile=learning floor=0.1"))
	q, d := w.turn()
	if got, want := outcome(q, d), "ml/a on n1/gpu0; ml/b on n1/gpu0; ml/d: ProfileUnknown; other/c: Invalid"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s, err := claim.Read(w.c.Claims[0])
	if err != nil || s.Reserved != 3*unit.GiB || s.Peak != 9*unit.GiB || !s.Cooperates {
		t.Errorf("%+v %v", s, err)
	}
	for _, wait := range d.Waits {
		if word := q.Wait(wait); q.Jobs[wait.Job].Name == "other/c" && (!word.Warning || !strings.Contains(word.Text,
			"bert is neither a WorkloadProfile of other")) {
			t.Errorf("%+v", word)
		}
	}
}

// TestUnknownMemory: a Pod that does not say what it needs has its GPU to itself, whichever it gets.
func TestUnknownMemory(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	w.add("ml/a", 1, ask("floor=0.1"))
	w.add("ml/b", 1, ask("memory=1Gi floor=0.1"))
	q, d := w.turn()
	if got, want := outcome(q, d), "ml/a on n1/gpu0; ml/b: ProfileUnknown"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s, err := claim.Read(w.c.Claims[0])
	if err != nil || !s.Whole || s.Part != kube.WholeShare || s.Reserved != 24*unit.GiB {
		t.Errorf("%+v %v", s, err)
	}
	expect(t, w, "ml/b: MemoryReserved") // it was given all that there is
}

// TestPriority: the order is kept, 0 is in the middle, and the ends are the ends.
func TestPriority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int32().Draw(t, "a"), rapid.Int32().Draw(t, "b")
		x, y := Priority(&a), Priority(&b)
		if x < 0 || x > 100 || (a < b && x > y) || (a > b && x < y) || (a == b) && x != y {
			t.Fatalf("%d is %d, %d is %d", a, x, b, y)
		}
		if (a > 0) != (x > 50) || (a < 0) != (x < 50) {
			t.Fatalf("%d is %d", a, x)
		}
	})
	for _, v := range []int32{math.MinInt32, -1, 0, 1, 1000, 1e9, math.MaxInt32} {
		t.Logf("%d is %d", v, Priority(&v))
	}
	if Priority(nil) != 50 {
		t.Error("no priority is the ordinary one")
	}
}

// TestUsed: a stay that goes on is counted as the machine's queue counts it, and one that ended fades.
func TestUsed(t *testing.T) {
	for _, hours := range []float64{0.1, 1, 4, 40} {
		d := time.Duration(hours * float64(time.Hour))
		if got, want := used(3, d, 0), dispatch.Grow(0, 3, d); math.Abs(got-want) > 1e-6*want {
			t.Errorf("3 GPUs for %v count %v, want %v", d, got, want)
		}
		if got, want := used(3, d+4*time.Hour, 4*time.Hour), dispatch.Decay(dispatch.Grow(0, 3, d), 4*time.Hour); math.Abs(got-want) > 1e-6*want {
			t.Errorf("3 GPUs for %v, four hours ago, count %v, want %v", d, got, want)
		}
	}
}

// TestOrphans: what a claim was given counts though its Pod is gone; what it was not given does not.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	w.add("ml/a", 1, ask("memory=20Gi"))
	w.turn()
	w.scheduleAll()
	w.c.Pods = nil
	w.add("ml/b", 1, ask("memory=20Gi"))
	q, d := w.plan()
	if len(d.Starts) != 0 {
		t.Error(outcome(q, d))
	}
	w.c.Claims[0].Spec.Devices.Config = nil // edited by someone: it still holds the GPU
	q, d = w.plan()
	if got := outcome(q, d); got != "ml/b: Native" {
		t.Error(got)
	}
	w.c.Claims[0].Status.Allocation = nil
	expect(t, w, "ml/b on n1/gpu0")
}

// TestForeignClaim: a claim of the name that a Pod names, and of another owner, is a fault of that Pod alone.
func TestForeignClaim(t *testing.T) {
	w := newWorld(t)
	w.node("n1", 1, "24Gi")
	p := w.add("ml/a", 1, ask("memory=1Gi"))
	w.add("ml/b", 1, ask("memory=1Gi"))
	w.c.Claims = append(w.c.Claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml",
		Name: *p.Spec.ResourceClaims[0].ResourceClaimName}})
	q, d := w.plan()
	if got := outcome(q, d); got != "ml/b on n1/gpu0" || len(q.Faults) != 1 {
		t.Errorf("%s; %+v", got, q.Faults)
	}
	for _, f := range q.Faults {
		if f.Pod != p || !strings.HasSuffix(f.Text, "delete it") {
			t.Errorf("%+v", f)
		}
	}
}

// TestEmpty: nothing is something, too.
func TestEmpty(t *testing.T) {
	w := newWorld(t)
	expect(t, w, "")
	w.add("ml/a", 1, ask("memory=1Gi"))
	q, d := w.plan()
	if got := q.Wait(d.Waits[0]); got.Text != "TooLarge: no node has GPUs that weft serves" || got.Reason != Waiting {
		t.Errorf("%+v", got)
	}
	if d := cmp.Diff([]Use{}, q.Uses()); d != "" {
		t.Error(d)
	}
}
