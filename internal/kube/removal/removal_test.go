package removal

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/look"
)

// TestObjectsAreThoseOfTheManifest holds the list to what is installed: what is not in it would stay.
func TestObjectsAreThoseOfTheManifest(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/weft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var installed []string
	for d := range strings.SplitSeq(string(text), "\n---\n") {
		var o struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(d), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "Namespace" { // others may be in it
			installed = append(installed, fmt.Sprintf("%s %s %s namespaced %t", o.APIVersion, o.Kind, o.Name, o.Namespace != ""))
		}
	}
	var known []string
	for _, o := range Objects() {
		if o.Kind != "Lease" { // the controller makes it
			known = append(known, fmt.Sprintf("%s %s %s namespaced %t", o.Resource.GroupVersion(), o.Kind, o.Name, o.Namespaced))
		}
	}
	slices.Sort(installed)
	slices.Sort(known)
	if d := cmp.Diff(installed, known); d != "" {
		t.Errorf("installed and known:\n%s", d)
	}
	if !slices.IsSortedFunc(Objects(), func(a, b Object) int { return int(a.Stage) - int(b.Stage) }) {
		t.Error("not in the order of the stages")
	}
}

// pod is one of ml, its UID its name.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name), Labels: map[string]string{}}, Spec: corev1.PodSpec{NodeName: node}}
	p.Status.Phase = corev1.PodPending
	if node != "" {
		p.Status.Phase = corev1.PodRunning
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func managed(p *corev1.Pod) { p.Labels[kube.LabelManaged] = "true" }

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func done(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func of(kind, name string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	}
}

// agent is the one of a node.
func agent(node string) *corev1.Pod {
	p := pod("weft-agent-"+node, node)
	p.Namespace, p.Labels = "weft-system", map[string]string{labelName: "weft", labelComponent: "agent"}
	return p
}

// claimOf is a claim that was given devices, "node-0/gpu-1", for Pods.
func claimOf(name, driver string, shared bool, devices []string, users ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, Labels: map[string]string{}}}
	if shared {
		c.Labels[kube.LabelManaged] = "true"
	}
	for _, d := range devices {
		pool, device, _ := strings.Cut(d, "/")
		if c.Status.Allocation == nil {
			c.Status.Allocation = &resourcev1.AllocationResult{}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: device})
	}
	for _, u := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: u, UID: types.UID(u)})
	}
	return c
}

func TestHeldAndWaiting(t *testing.T) {
	w := &World{Namespace: "weft-system",
		Pods: []*corev1.Pod{
			agent("node-0"),
			pod("shared", "node-0", managed, of("Job", "bert")), pod("native", "node-1"), pod("stopping", "node-0", managed, deleted),
			pod("two-claims", "node-0"), pod("ended", "node-0", done), pod("other-driver", "node-0"), pod("cpu", "node-0"),
			pod("gated", "", managed, of("Job", "late")), pod("pinned", "", managed), pod("gated-gone", "", managed, deleted), pod("pending", ""),
			pod("binding", "", managed),
		},
		Claims: []*resourcev1.ResourceClaim{
			claimOf("a", kube.Driver, true, []string{"node-0/gpu-0"}, "shared"),
			claimOf("b", kube.Driver, false, []string{"node-1/gpu-1", "node-1/gpu-0"}, "native"),
			claimOf("c", kube.Driver, true, []string{"node-0/gpu-0"}, "stopping"),
			claimOf("d", kube.Driver, false, []string{"node-0/gpu-2"}, "two-claims"), claimOf("e", kube.Driver, false, []string{"node-0/gpu-3"}, "two-claims"),
			claimOf("f", kube.Driver, false, []string{"node-0/gpu-4"}, "ended"),
			claimOf("g", "gpu.example.com", false, []string{"node-0/gpu-5"}, "other-driver"),
			claimOf("h", kube.Driver, true, nil, "pinned"),
			claimOf("i", kube.Driver, false, []string{"node-0/gpu-6"}),
			claimOf("j", kube.Driver, false, []string{"node-0/gpu-7"}, "vanished"),
			claimOf("k", kube.Driver, true, []string{"node-0/gpu-8"}, "binding"),
		}}
	want := []Pod{
		{Claim: "i", Mode: look.Native, Node: "node-0", GPUs: []string{"node-0/gpu6"}},
		{Name: "binding", Mode: look.Shared, State: look.Waiting, Node: "node-0", GPUs: []string{"node-0/gpu8"}},
		{Name: "ended", Mode: look.Native, State: look.Ended, Node: "node-0", GPUs: []string{"node-0/gpu4"}},
		{Name: "native", Mode: look.Native, State: look.Running, Node: "node-1", GPUs: []string{"node-1/gpu0", "node-1/gpu1"}, Orphaned: true},
		{Name: "shared", Mode: look.Shared, State: look.Running, Node: "node-0", GPUs: []string{"node-0/gpu0"}, Owner: "Job/bert"},
		{Name: "stopping", Mode: look.Shared, State: look.Stopping, Node: "node-0", GPUs: []string{"node-0/gpu0"}},
		{Name: "two-claims", Mode: look.Native, State: look.Running, Node: "node-0", GPUs: []string{"node-0/gpu2", "node-0/gpu3"}},
		{Name: "vanished", Mode: look.Native, State: look.Ended, Node: "node-0", GPUs: []string{"node-0/gpu7"}},
	}
	ignore := cmpopts.IgnoreFields(Pod{}, "Namespace", "UID", "Since")
	if d := cmp.Diff(want, w.Held(), ignore); d != "" {
		t.Errorf("held:\n%s", d)
	}
	want = []Pod{
		{Name: "gated", Mode: look.Shared, State: look.Waiting, GPUs: []string{}, Owner: "Job/late"},
		{Name: "pinned", Mode: look.Shared, State: look.Waiting, GPUs: []string{}},
	}
	if d := cmp.Diff(want, w.Waiting(), ignore); d != "" {
		t.Errorf("waiting:\n%s", d)
	}
}

// installed is all of weft, with some Pods.
func installed(held, waiting int) *World {
	w := &World{Namespace: "weft-system", There: Objects(), Slices: []string{"node-0-x", "node-0-y"}, Nodes: []string{"node-0"}, Pods: []*corev1.Pod{agent("node-0")}}
	for i := range held {
		w.hold(i)
	}
	for i := range waiting {
		w.Pods = append(w.Pods, pod(fmt.Sprintf("waiting-%d", i), "", managed))
	}
	return w
}

// hold adds a Pod that has a GPU.
func (w *World) hold(i int) {
	name := fmt.Sprintf("held-%d", i)
	w.Pods = append(w.Pods, pod(name, "node-0"))
	w.Claims = append(w.Claims, claimOf("c-"+name, kube.Driver, i%2 == 0, []string{"node-0/gpu-0"}, name))
}

// without is what of a list a step leaves.
func without[T comparable](list, gone []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return slices.Contains(gone, v) })
}

func TestNext(t *testing.T) {
	closed := func(w *World) *World {
		w.There = without(w.There, w.at(Door))
		return w
	}
	calm := func(w *World) *World {
		w.Calm = Settle
		return closed(w)
	}
	ripped := func(w *World) *World {
		w.There, w.Slices = without(w.There, w.at(Driver)), nil
		return w
	}
	all := Options{Until: Rights}
	with := func(change func(*Options)) Options {
		o := all
		change(&o)
		return o
	}
	for _, c := range []struct {
		what  string
		w     *World
		o     Options
		do    Deed
		why   Reason
		stage Stage
	}{
		{"Pods hold GPUs", installed(2, 0), all, Refuse, Held, 0},
		{"Pods wait", installed(0, 1), all, Refuse, Queued, 0},
		{"both", installed(1, 1), with(func(o *Options) { o.DeleteWaiting = true }), Refuse, Held, 0},
		{"waiting for those that wait is in vain", installed(1, 1), with(func(o *Options) { o.Wait = true }), Refuse, Queued, 0},
		{"the door is closed before it waits", installed(1, 0), with(func(o *Options) { o.Wait = true }), Close, "", 0},
		{"it waits", closed(installed(1, 0)), with(func(o *Options) { o.Wait = true }), Wait, Held, 0},
		{"it waited long enough", closed(installed(1, 0)), with(func(o *Options) { o.Wait, o.Expired = true, true }), Refuse, Held, 0},
		{"the driver is gone", ripped(installed(1, 0)), with(func(o *Options) { o.Wait = true }), Refuse, DriverGone, 0},
		{"the driver is gone and nobody needs it", ripped(installed(0, 0)), all, Close, "", 0},
		{"nobody has a GPU", installed(0, 0), all, Close, "", 0},
		{"nobody has had one for a moment", closed(installed(0, 0)), all, Wait, Settling, 0},
		{"nobody settles where no driver is", ripped(closed(installed(0, 0))), all, Remove, "", Webhooks},
		{"it begins", calm(installed(0, 0)), all, Remove, "", Webhooks},
		{"Helm does the rest", &World{There: Objects()[len(Objects())-2:]}, Options{Until: Traces}, Done, "", 0},
		{"definitions stay", &World{There: slices.DeleteFunc(Objects(), func(o Object) bool { return o.Stage < Definitions })}, with(func(o *Options) { o.Keep = true }), Remove, "", Parts},
		{"nothing is there", &World{}, all, Done, "", 0},
	} {
		s := Next(c.w, c.o)
		if s.Do != c.do || s.Why != c.why || s.Stage != c.stage {
			t.Errorf("%s: %v %q of stage %v, want %v %q of %v", c.what, s.Do, s.Why, s.Stage, c.do, c.why, c.stage)
		}
	}
}

// TestLaws removes weft from drawn clusters, with whatever order of events: Pods end when they like, a scheduler that is late binds one, whoever
// carries the steps out is stopped and another one goes on, and only a part of a step succeeds.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := installed(rapid.IntRange(0, 3).Draw(t, "held"), rapid.IntRange(0, 2).Draw(t, "waiting"))
		o := Options{Until: Stage(rapid.SampledFrom([]int{int(Queue), int(Traces), int(Rights)}).Draw(t, "until")), Wait: true, DeleteWaiting: true, Keep: rapid.Bool().Draw(t, "keep")}
		late, began := rapid.IntRange(0, 2).Draw(t, "late"), false
		var closed time.Duration // since the door is
		for n := 0; ; n++ {
			if n > 1000 {
				t.Fatalf("it does not end: %v", Next(w, o))
			}
			if rapid.IntRange(0, 9).Draw(t, "stopped") == 0 {
				w.Calm = 0 // another one begins to look
			}
			if late > 0 && closed < Settle && rapid.Bool().Draw(t, "comes") { // a scheduler does not know yet that the door is closed
				late--
				w.hold(100 + late)
				w.Calm = 0
			}
			s := Next(w, o)
			if len(w.Held()) > 0 && (s.Do == Remove || s.Do == Done) {
				t.Fatalf("%v at stage %v while Pods hold GPUs", s.Do, s.Stage)
			}
			if len(w.Held()) > 0 && len(w.at(Driver)) == 0 {
				t.Fatal("a Pod outlives its driver")
			}
			if len(w.at(Driver)) == 0 && len(w.at(Webhooks)) > 0 {
				t.Fatal("Pods are refused for a weft that is gone")
			}
			if began && s.Do == Refuse {
				t.Fatalf("it stops half-way: %q", s.Why)
			}
			switch s.Do {
			case Refuse:
				t.Fatalf("%q although it may wait, and delete", s.Why)
			case Close:
				w.There = without(w.There, some(t, s.Objects))
			case Wait:
				closed += time.Second
				if w.endOne(t); len(w.Held()) == 0 {
					w.Calm += time.Second
				}
			case Remove:
				began = true
				w.There, w.Slices, w.Nodes = without(w.There, some(t, s.Objects)), without(w.Slices, some(t, s.Slices)), without(w.Nodes, some(t, s.Nodes))
				gone := some(t, namesOf(s.Pods))
				w.Pods = slices.DeleteFunc(w.Pods, func(p *corev1.Pod) bool { return slices.Contains(gone, p.Name) })
			case Done:
				checkLeft(t, w, o)
				return
			}
		}
	})
}

// namesOf are the names of Pods.
func namesOf(list []Pod) []string {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// some is a part of a list, all of it mostly.
func some[T comparable](t *rapid.T, list []T) []T {
	if len(list) == 0 || rapid.Bool().Draw(t, "all") {
		return list
	}
	return list[:rapid.IntRange(0, len(list)).Draw(t, "some")]
}

// endOne ends a Pod that has a GPU, or none.
func (w *World) endOne(t *rapid.T) {
	if held := w.Held(); len(held) > 0 && rapid.Bool().Draw(t, "ends") {
		w.Pods = slices.DeleteFunc(w.Pods, func(p *corev1.Pod) bool { return p.Name == held[0].Name })
		w.Claims = slices.DeleteFunc(w.Claims, func(c *resourcev1.ResourceClaim) bool { return c.Name == "c-"+held[0].Name })
	}
}

// checkLeft says whether exactly what is to stay has stayed.
func checkLeft(t *rapid.T, w *World, o Options) {
	want := slices.DeleteFunc(Objects(), func(x Object) bool { return x.Stage <= o.Until && !(o.Keep && x.Stage == Definitions) })
	if d := cmp.Diff(want, w.There); d != "" {
		t.Fatalf("left:\n%s", d)
	}
	if gone := len(w.Slices)+len(w.Nodes) == 0; gone != (o.Until >= Traces) || len(w.Waiting()) > 0 {
		t.Fatalf("left: slices %v, nodes %v, waiting %d", w.Slices, w.Nodes, len(w.Waiting()))
	}
}
