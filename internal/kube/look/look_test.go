package look_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/learned"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/kube/world"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/kubetable"
)

const m, h = time.Minute, time.Hour

var update = flag.Bool("update", false, "write what is said to testdata, to be read by a person")

// lab is a cluster with a bit of everything: a GPU with two Pods, one with one, one held whole, one with a fault, one on a cordoned node.
func lab(t *testing.T) *bed {
	t.Helper()
	w := newWorld(t)
	w.Node("node-1", 2, "24Gi")
	_, s := w.Node("node-2", 2, "24Gi")
	s.Spec.Devices[1].Taints = []resourcev1.DeviceTaint{{Key: kube.TaintUnhealthy, Value: "xid-79", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	n, _ := w.Node("node-3", 1, "24Gi")
	n.Spec.Unschedulable = true
	w.Place(w.Shared("ml/bert-0", 1, 2*h, "memory=8Gi floor=0.5 migratable=true profile=ResNet-18:64"), "node-1/0", "8Gi")
	w.Place(w.Shared("ml/gnn-0", 1, h, "memory=6Gi floor=0.4 profile=A3C:"), "node-1/0", "6Gi")
	w.Place(w.Shared("ml/solo", 1, h, "memory=10Gi floor=0.9"), "node-2/0", "10Gi")
	w.Take(w.Native("plain/whole", 1, 3*h), "node-1/1")
	return w
}

func written(t *testing.T, width int, write func(v kubetable.View, b *strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(kubetable.View{Now: world.Now, Screen: report.Screen{Width: width}}, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares what is said with what was read and found good.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func explain(t *testing.T, w *bed, name string) look.Explanation {
	t.Helper()
	namespace, base, _ := strings.Cut(name, "/")
	e, found := w.look().Explain(namespace, base)
	if !found {
		t.Fatalf("no Pod %s", name)
	}
	return e
}

func explained(t *testing.T, w *bed, name string) string {
	t.Helper()
	e := explain(t, w, name)
	return written(t, 120, func(v kubetable.View, b *strings.Builder) error { return v.Explain(b, &e) })
}

func TestTables(t *testing.T) {
	w := lab(t)
	w.Shared("ml/late", 1, 12*m, "memory=20Gi floor=0.9")
	w.Shared("ml/broken", 1, 12*m, "memory=2Gi").Annotations[kube.AnnotationClaims] = "weft-train=many"
	slow := w.Shared("ml/slow", 1, h, "memory=3Gi floor=0.95")
	w.Place(slow, "node-2/0", "3Gi")
	slow.Status.Conditions = []corev1.PodCondition{{Type: kube.ConditionFloorHeld, Status: corev1.ConditionFalse, Message: "0.81 < floor 0.95", LastTransitionTime: metav1.NewTime(world.Now.Add(-m))}}
	w.Tell(slow, v1alpha1.Window{Seconds: 60, Age: h.Seconds(), Wait: 10.4, Stall: 1, Held: 40, Used: 40, Beside: 1})
	w.Native("plain/urgent", 1, 3*m)
	w.Native("plain/cpu", 0, 3*m)
	w.Native("plain/done", 1, 3*h).Status.Phase = corev1.PodSucceeded
	going := w.Place(w.Shared("ml/going", 1, h, "memory=1Gi"), "node-2/0", "1Gi")
	going.DeletionTimestamp = &metav1.Time{Time: world.Now}
	n, _ := w.Node("node-4", 0, "24Gi")
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kube.ConditionServing, Status: corev1.ConditionFalse, Reason: "NativePluginPresent",
		Message: "NVIDIA's device plugin serves its GPUs"})
	l := w.look()
	for _, width := range []int{80, 120} {
		text := written(t, width, func(v kubetable.View, b *strings.Builder) error {
			s := l.Status()
			return errors.Join(v.Nodes(b, l.Nodes()), v.GPUs(b, l.GPUs()), v.Pods(b, l.Pods("")), v.Pods(b, l.Pods("plain")), v.Status(b, &s, "cluster https://x"))
		})
		golden(t, map[int]string{80: "tables-80", 120: "tables-120"}[width], text)
	}
}

func TestExplain(t *testing.T) {
	w := lab(t)
	w.Shared("ml/late", 1, 12*m, "memory=20Gi floor=0.9")
	w.Shared("ml/big", 1, 12*m, "memory=96Gi")
	w.Shared("ml/unknown", 1, 11*m, "floor=0.8")
	w.Shared("ml/lost", 1, 11*m, "floor=0.8 memory=1Gi profile=nosuch")
	w.Shared("ml/gang-0", 1, 11*m, "floor=0.8 memory=1Gi gang=3", world.Owned("Job", "gang"))
	w.Shared("ml/gang-1", 1, 11*m, "floor=0.8 memory=1Gi gang=3", world.Owned("Job", "gang"))
	w.Shared("ml/elsewhere", 1, 11*m, "floor=0.1 memory=1Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "h100"} })
	w.Shared("ml/broken", 1, 12*m, "memory=2Gi").Annotations[kube.AnnotationClaims] = "weft-train=many"
	bound := w.Place(w.Shared("ml/placed", 1, m, "memory=1Gi floor=0.3"), "node-2/0", "1Gi")
	bound.Spec.NodeName, bound.Status.StartTime = "", nil
	bound.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: too many pods"}}
	w.Native("plain/urgent", 1, 3*m)
	w.Native("plain/two", 2, 2*m)
	w.Native("plain/three", 3, 2*m)
	w.Native("plain/cpu", 0, 2*m)
	w.Native("plain/done", 1, 3*h).Status.Phase = corev1.PodSucceeded
	w.Native("ml/volcano", 1, 2*m, func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" })
	w.Native("ml/daemon", 1, 2*m, world.Owned("DaemonSet", "monitor"))
	w.Native("ml/old", 1, 2*m)
	w.Native("plain/deployed-7", 1, 2*m, world.Owned("Job", "deployed"))
	var text strings.Builder
	for _, name := range []string{"ml/bert-0", "ml/gnn-0", "ml/solo", "ml/placed", "plain/whole", "ml/late", "ml/big", "ml/unknown", "ml/lost", "ml/gang-0", "ml/elsewhere", "ml/broken",
		"plain/urgent", "plain/two", "plain/three", "plain/cpu", "plain/done", "ml/volcano", "ml/daemon", "ml/old", "plain/deployed-7"} {
		text.WriteString("$ weft explain pod " + name + "\n" + explained(t, w, name))
	}
	golden(t, "explain", text.String())
	if _, found := w.look().Explain("ml", "nobody"); found {
		t.Error("a Pod is explained that is not there")
	}
}

// TestRoom: a Pod that fits is said to fit, and where nobody placed it for a while that is the news.
func TestRoom(t *testing.T) {
	w := newWorld(t)
	w.Node("node-1", 1, "24Gi")
	w.Shared("ml/new", 1, 5*time.Second, "memory=1Gi floor=0.5")
	if got := explained(t, w, "ml/new"); !strings.Contains(got, "it fits on node-1/gpu0 and is about to be placed") || strings.Contains(got, "controller") {
		t.Error(got)
	}
	if s := w.look().Status(); len(s.Degraded) > 0 || s.Waiting != 1 {
		t.Errorf("%+v", s)
	}
	w.Now = world.Now.Add(5 * m)
	if got := explained(t, w, "ml/new"); !strings.Contains(got, "is weft's controller running?") {
		t.Error(got)
	}
	if s := w.look().Status(); !slices.Contains(s.Degraded, "1 Pod fits and nobody places them: is the controller running?") {
		t.Errorf("%+v", s)
	}
	free := newWorld(t)
	free.Node("node-1", 1, "24Gi")
	free.Native("plain/free", 1, m)
	if got := explained(t, free, "plain/free"); !strings.Contains(got, "1 of 1 GPUs are whole and free, it asks 1; it waits for the scheduler.") || strings.Contains(got, "evicts") {
		t.Error(got)
	}
	if got := explained(t, newWorldWith(t, "ml/alone"), "ml/alone"); !strings.Contains(got, "no node has GPUs that weft serves") {
		t.Error(got)
	}
}

func newWorldWith(t *testing.T, pod string) *bed {
	t.Helper()
	w := newWorld(t)
	w.Shared(pod, 1, m, "memory=1Gi")
	return w
}

// TestLeast: what would free GPUs for a Pod is the least of all nodes, and names every Pod that has to end.
func TestLeast(t *testing.T) {
	w := newWorld(t)
	w.Node("node-1", 2, "24Gi")
	w.Node("node-2", 2, "24Gi")
	for _, name := range []string{"ml/a", "ml/b"} {
		w.Place(w.Shared(name, 1, h, "memory=1Gi floor=0.2 migratable=true"), "node-1/0", "1Gi")
	}
	w.Place(w.Shared("ml/wide", 2, h, "memory=1Gi floor=0.2"), "node-2/0 node-2/1", "1Gi")
	w.Native("plain/two", 2, m)
	e := explain(t, w, "plain/two")
	if want := "Starts on node-2 when ml/wide ends or is deleted"; e.Opens != want {
		t.Errorf("%q, want %q", e.Opens, want)
	}
	if e.Refusals[0].GPU != "node-1/gpu1" || e.Refusals[0].Code != "" || e.Fits != 1 {
		t.Errorf("%+v", e.Refusals[0])
	}
	w.Native("plain/five", 5, m)
	if e := explain(t, w, "plain/five"); e.Opens != "No node that it may be on has 5 GPUs that take Pods" {
		t.Errorf("%q", e.Opens)
	}
}

// TestWorkload: Pods become jobs of a plan as if all had opted in; what is not known stays unknown.
func TestWorkload(t *testing.T) {
	w := lab(t)
	w.Node("node-4", 2, "40Gi")
	w.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Namespaces: []v1alpha1.NamespaceTerms{{Name: "ml", Terms: v1alpha1.Terms{Floor: "0.7"}}}}}
	w.Profiles = []*v1alpha1.WorkloadProfile{{ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: "bert"}, Spec: v1alpha1.WorkloadProfileSpec{Model: "lm", Batch: "5",
		Figures: v1alpha1.Figures{Memory: &v1alpha1.ProfileMemory{Peak: resource.MustParse("3Gi")}}}}}
	w.Native("ml/two", 2, m)
	w.Native("plain/daemon", 1, m, world.Owned("DaemonSet", "monitor"))
	w.Native("plain/cpu", 0, m)
	w.Native("plain/done", 1, h).Status.Phase = corev1.PodFailed
	w.Native("plain/annotated", 1, h).Annotations[kube.AnnotationProfile] = "bert"
	for _, name := range []string{"ml/gang-0", "ml/gang-1"} {
		w.Shared(name, 1, m, "floor=0.6 memory=1Gi gang=2", world.Owned("Job", "gang"))
	}
	got := w.look().Workload("", 0.85)
	type row struct {
		ID, Name, User, Model, Batch string
		Workers                      int
		Floor                        float64
		Memory                       string
	}
	var rows []row
	for i, j := range got.Jobs {
		memory := "unknown"
		if got.Memory[i].Known {
			memory = got.Memory[i].Profile.Peak().String()
		}
		if got.Memory[i].Alone {
			memory += ", alone"
		}
		if j.Class != cluster.Burstable {
			t.Errorf("%s is %v", j.ID, j.Class)
		}
		rows = append(rows, row{j.ID, j.Name, j.User, j.Model, j.Batch, j.Workers, j.Floor, memory})
	}
	if diff := cmp.Diff([]row{
		{"ml/bert-0", "bert-0", "ml", "ResNet-18", "64", 1, 0.5, "8.0 GiB"},
		{"ml/gang-0", "gang", "ml", "", "", 2, 0.6, "1.0 GiB"},
		{"ml/gnn-0", "gnn-0", "ml", "A3C", "", 1, 0.4, "6.0 GiB"},
		{"ml/solo", "solo", "ml", "", "", 1, 0.9, "10.0 GiB"},
		{"ml/two", "two", "ml", "", "", 2, 0.7, "unknown"},
		{"plain/annotated", "annotated", "plain", "LM", "5", 1, 0.85, "3.0 GiB"},
		{"plain/daemon", "monitor", "plain", "", "", 1, 0.85, "unknown, alone"},
		{"plain/whole", "whole", "plain", "", "", 1, 0.85, "unknown"},
	}, rows); diff != "" {
		t.Error(diff)
	}
	if got.GPUs != 7 || got.Pods != 9 || got.Shared != 5 || got.Running != 4 || got.GPUMemory.GiB() != 24 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "24.0 GiB to 40.0 GiB") {
		t.Errorf("%+v", got)
	}
	if only := w.look().Workload("plain", 0.85); len(only.Jobs) != 3 {
		t.Errorf("%d jobs of plain, want 3", len(only.Jobs))
	}
}

// TestLearned: what the controller learned of two kinds is what people are told, and what nobody can read is as if there were nothing.
func TestLearned(t *testing.T) {
	w := newWorld(t)
	w.Node("node-1", 1, "24Gi")
	w.Place(w.Shared("ml/bert-0", 1, h, "memory=8Gi floor=0.3"), "node-1/0", "8Gi")
	w.Shared("ml/probe-0", 1, m, "memory=3Gi floor=0.3")
	if e := explain(t, w, "ml/probe-0"); e.Fits != 1 {
		t.Fatalf("with nothing learned it does not fit: %+v", e)
	}
	book := estimate.New(estimate.Options{})
	q := queue.Build(&w.Cluster, book)
	book.Ban(q.Jobs[q.State.Jobs[0].ID].Kind, q.Jobs[q.State.Jobs[1].ID].Kind, world.Now.Add(h))
	patch, err := learned.Patch(book, world.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.learned = &corev1.ConfigMap{}
	if err := json.Unmarshal(patch, w.learned); err != nil {
		t.Fatal(err)
	}
	e := explain(t, w, "ml/probe-0")
	if e.Fits != 0 || len(e.Refusals) != 1 || e.Refusals[0].Code == "" {
		t.Errorf("kept apart, it is told %+v", e)
	}
	for key := range w.learned.BinaryData {
		w.learned.BinaryData[key] = []byte("spoiled")
	}
	if e := explain(t, w, "ml/probe-0"); e.Fits != 1 {
		t.Errorf("with something that cannot be read it does not fit: %+v", e)
	}
}
