package queue

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

var update = flag.Bool("update", false, "write what Pods are told into testdata/told.txt")

// TestTold: what Pods are told in one situation after the other, word for word.
func TestTold(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name string
		make func(w *world)
	}{
		{"two share a GPU, of the third the memory does not fit", func(w *world) {
			w.node("node-3", 1, "24Gi")
			w.add("ml/bert-0", 1, ask("memory=8Gi floor=0.4"))
			w.add("ml/bert-1", 1, ask("memory=8Gi floor=0.4"))
			w.late("ml/vit-7x", 1, ask("memory=12Gi floor=0.3"))
		}},
		{"a floor would break", func(w *world) {
			w.node("node-1", 2, "24Gi")
			w.add("ml/bert-0", 1, ask("memory=8Gi floor=0.9"))
			w.add("ml/bert-1", 1, ask("memory=20Gi floor=0.9"))
			w.late("ml/vit-7x", 1, ask("memory=8Gi floor=0.2"))
			w.late("ml/vit-8x", 1, ask("memory=8Gi floor=0.95"))
		}},
		{"the ephemeral parts would overflow", func(w *world) {
			w.node("node-3", 1, "24Gi")
			persistent, busy := resource.MustParse("2Gi"), int32(20)
			w.c.Profiles = []*v1alpha1.WorkloadProfile{{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "swings"}, Spec: v1alpha1.WorkloadProfileSpec{
				Figures: v1alpha1.Figures{UtilisationPercent: &busy, Memory: &v1alpha1.ProfileMemory{Persistent: &persistent,
					Peak: resource.MustParse("14Gi"), Shape: "v100-training"}}}}}
			w.add("ml/a", 1, ask("profile=swings floor=0.3"))
			w.late("ml/b", 1, ask("profile=swings floor=0.3"))
			w.late("ml/c", 1, ask("profile=swings floor=0.3"))
			w.late("ml/d", 1, ask("profile=swings floor=0.3"))
		}},
		{"classes", func(w *world) {
			w.node("node-1", 1, "24Gi")
			w.add("ml/a", 1, ask("memory=4Gi floor=0.3 class=guaranteed"))
			w.late("ml/b", 1, ask("memory=4Gi floor=0.3 class=guaranteed"))
		}},
		{"too many residents", func(w *world) {
			w.node("node-1", 1, "24Gi")
			w.c.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Residents: 1}}
			w.add("ml/a", 1, ask("memory=4Gi floor=0.3"))
			w.late("ml/b", 1, ask("memory=4Gi floor=0.3"))
		}},
		{"more than there is", func(w *world) {
			w.node("node-1", 2, "80Gi")
			w.add("ml/large", 1, ask("memory=96Gi"))
			w.add("ml/many", 4, ask("memory=16Gi"))
			w.add("ml/whole", 4, ask("floor=0.5"))
		}},
		{"a gang", func(w *world) {
			w.node("node-1", 2, "24Gi")
			w.add("ml/bert-0", 1, ask("memory=20Gi"))
			for i := range 2 {
				w.late(fmt.Sprintf("ml/gang-%d", i), 1, ask("memory=20Gi gang=2"), owned("Job", "gang"))
			}
			w.late("ml/part-0", 1, ask("memory=20Gi gang=3"), owned("Job", "part"))
		}},
		{"native Pods", func(w *world) {
			w.node("node-1", 2, "24Gi")
			w.schedule(w.add("plain/notebook", 1, nil))
			w.add("ml/bert-0", 1, ask("memory=20Gi"))
			w.late("ml/vit-7x", 1, ask("memory=6Gi floor=0.2"))
			w.late("plain/urgent", 1, nil)
			w.late("plain/two", 2, nil)
		}},
		{"a rollout is in its own way", func(w *world) {
			w.node("node-1", 1, "24Gi")
			version := func(hash string) func(*corev1.Pod) {
				return func(p *corev1.Pod) {
					owned("ReplicaSet", "serve-"+hash)(p)
					p.Labels = map[string]string{hashLabel: hash}
				}
			}
			w.add("ml/serve-old", 1, ask("memory=14Gi floor=0.95 class=guaranteed"), version("6d5"))
			w.late("ml/serve-new", 1, ask("memory=14Gi floor=0.95 class=guaranteed"), version("7f9"))
		}},
		{"who comes first", func(w *world) {
			w.node("node-1", 2, "24Gi")
			w.add("ml/a", 1, ask("memory=20Gi"))
			w.late("ml/wide", 2, ask("memory=20Gi"))
			w.late("ml/small", 1, ask("memory=20Gi"))
		}},
		{"quota", func(w *world) {
			w.node("node-1", 4, "24Gi")
			two, none := int32(2), int32(0)
			w.c.Policy = &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Namespaces: []v1alpha1.NamespaceTerms{
				{Name: "ml", Terms: v1alpha1.Terms{Quota: &two}}, {Name: "none", Terms: v1alpha1.Terms{Quota: &none}}}}}
			for i := range 3 {
				w.add(fmt.Sprintf("ml/p-%d", i), 1, ask("memory=20Gi"))
			}
			w.add("none/p", 1, ask("memory=20Gi"))
		}},
		{"nodes", func(w *world) {
			w.node("node-1", 1, "24Gi").Spec.Unschedulable = true
			w.node("node-2", 1, "24Gi").Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: "NoSchedule"}}
			w.node("node-3", 1, "24Gi")
			w.add("ml/a", 1, ask("memory=1Gi"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} })
			w.add("ml/b", 1, ask("memory=1Gi"), func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("65")}
			})
		}},
		{"what is written is wrong", func(w *world) {
			w.node("node-1", 1, "24Gi")
			w.add("ml/a", 1, ask("memory=1Gi")).Annotations[kube.AnnotationFloor] = "90%"
			w.add("ml/b", 1, ask("profile=resnte"))
		}},
	} {
		w := newWorld(t)
		c.make(w)
		fmt.Fprintf(&out, "# %s\n", c.name)
		w.tell(&out)
		fmt.Fprintln(&out)
	}
	const file = "testdata/told.txt"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || got[i] != lines[i] {
			t.Fatalf("line %d of %s:\ngot  %s\nwant %s", i+1, file, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(lines[min(i,
				len(lines)):min(i+1, len(lines))], ""))
		}
	}
}

// late adds a Pod when those before have been placed.
func (w *world) late(name string, gpus int, annotations map[string]string, change ...func(*corev1.Pod)) {
	w.t.Helper()
	w.c.Now = w.c.Now.Add(time.Minute)
	if _, d := w.plan(); len(d.Starts) > 0 {
		w.turn()
	}
	w.add(name, gpus, annotations, change...)
}

// tell writes what all Pods are told by the next plan.
func (w *world) tell(out *strings.Builder) {
	q, d := w.plan()
	for _, s := range d.Starts {
		j := q.Jobs[s.Job]
		if j.Native {
			continue
		}
		places, err := q.Place(s)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		for i, m := range j.Members {
			fmt.Fprintf(out, "%s: %s\n", m.Pod.Name, said(q.Placed(j, m, places[i], nil)))
		}
	}
	for _, wait := range d.Waits {
		j := q.Jobs[wait.Job]
		word := q.Wait(wait)
		if j.Native {
			word, _ = q.Native(j)
		}
		fmt.Fprintf(out, "%s: %s\n", j.Name, said(word))
	}
	for _, p := range w.c.Pods {
		if f, ok := q.Faults[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]; ok {
			fmt.Fprintf(out, "%s: %s\n", p.Name, f.Text)
		}
	}
}

func said(w Word) string {
	if w.Warning {
		return "Warning " + w.Reason + " " + w.Text
	}
	return "Normal " + w.Reason + " " + w.Text
}

func TestBytes(t *testing.T) {
	for in, want := range map[unit.Bytes]string{0: "0", 512: "512", 8 * unit.GiB: "8Gi", unit.GiB * 45 / 2: "22.5Gi", unit.GiB + 1: "1Gi",
		1536 * unit.MiB: "1.5Gi", 80 * unit.MiB: "80Mi",
		3 * unit.TiB: "3Ti", 9 * unit.KiB: "9Ki", unit.GiB * 100: "100Gi"} {
		if got := Bytes(in); got != want {
			t.Errorf("%d is %s, want %s", in, got, want)
		}
	}
}
