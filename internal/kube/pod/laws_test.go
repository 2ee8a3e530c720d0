package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube"
)

// drawPod draws a Pod that may opt in, may have faults, and may have been rewritten in part.
func drawPod(t *rapid.T) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name = "p"
	values := map[string][]string{
		kube.AnnotationFloor: {"0.9", "1", "90%", "x"}, kube.AnnotationClass: {"guaranteed", "besteffort", "gold"}, kube.AnnotationMemory: {"8Gi", "8GiB", "1"},
		kube.AnnotationGang: {"2", "0"}, kube.AnnotationMigratable: {"true", "maybe"}, kube.AnnotationProfile: {"a", ""}, "weft.dev/flor": {"1"},
		kube.AnnotationClaims: {"weft-c0=1", "x"}, kube.AnnotationGPU: {"n/gpu0"}, "other": {"1"},
	}
	for _, key := range sortedKeys(map[string]string{kube.AnnotationFloor: "", kube.AnnotationClass: "", kube.AnnotationMemory: "", kube.AnnotationGang: "", "weft.dev/flor": "", kube.AnnotationClaims: "", "other": ""}) {
		if rapid.IntRange(0, 5).Draw(t, key) == 0 {
			p.Annotations = with(p.Annotations, key, rapid.SampledFrom(values[key]).Draw(t, "value"))
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "managed") == 0 {
		p.Labels = with(p.Labels, kube.LabelManaged, "true")
	}
	if rapid.IntRange(0, 9).Draw(t, "gate") == 0 {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: rapid.SampledFrom([]string{kube.Gate, "other"}).Draw(t, "gate")}}
	}
	if rapid.IntRange(0, 9).Draw(t, "node") == 0 {
		p.Spec.NodeName = "n"
	}
	if rapid.IntRange(0, 9).Draw(t, "scheduler") == 0 {
		p.Spec.SchedulerName = rapid.SampledFrom([]string{"default-scheduler", "volcano"}).Draw(t, "scheduler")
	}
	if rapid.IntRange(0, 9).Draw(t, "claim") == 0 {
		claim := rapid.SampledFrom([]string{"weft-c0", "mine"}).Draw(t, "claim")
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claim, ResourceClaimName: &claim}}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, drawContainer(t, fmt.Sprint("c", i)))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "init") {
		c := drawContainer(t, fmt.Sprint("i", i))
		if rapid.Bool().Draw(t, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name}
	asked := rapid.SampledFrom([]string{"", "", "0", "1", "1", "2", "32", "33", "500m"}).Draw(t, "GPUs")
	if asked != "" {
		c.Resources.Limits = corev1.ResourceList{kube.ExtendedResource: resource.MustParse(asked)}
		if rapid.Bool().Draw(t, "cpu") {
			c.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		}
		if rapid.Bool().Draw(t, "requests") {
			c.Resources.Requests = corev1.ResourceList{kube.ExtendedResource: resource.MustParse(asked)}
		}
	}
	return c
}

// TestLaws holds what is true of every Pod.
func TestLaws(t *testing.T) {
	rewritten := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPod(t)
		d := Defaults{Share: rapid.Bool().Draw(t, "share"), MaxFloor: rapid.SampledFrom([]float64{0, 0.95}).Draw(t, "most")}
		before := p.DeepCopy()
		changed, faults := Rewrite(p, d, numbered())
		if !changed || len(faults) > 0 {
			if changed {
				t.Fatalf("changed a Pod with faults: %v", faults)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Fatalf("said it changed nothing: %s", diff)
			}
			return
		}
		rewritten++
		checkRewritten(t, before, p)
		r, faults := Read(p, d)
		if len(faults) > 0 || r == nil || !(r.Floor > 0 && r.Floor <= 1) || r.Gang < 1 {
			t.Fatalf("cannot be read back: %+v %v", r, faults)
		}
		checkWorkers(t, before, p, r)
		again := p.DeepCopy()
		if changed, faults := Rewrite(again, d, numbered()); changed || len(faults) > 0 {
			t.Fatalf("again: %v %v", changed, faults)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatal(diff)
		}
	})
	if rewritten == 0 && !testing.Short() { // a fifth of the draws may all be refused
		t.Error("no Pod was rewritten")
	}
}

// checkRewritten wants the marks, no nvidia.com/gpu, names that the API server takes, and everything else as it was.
func checkRewritten(t *rapid.T, before, p *corev1.Pod) {
	if !hasGate(p) || p.Labels[kube.LabelManaged] != "true" {
		t.Fatal("no gate or no label")
	}
	restored := p.DeepCopy()
	for n, list := range [][]corev1.Container{restored.Spec.Containers, restored.Spec.InitContainers} {
		old := [][]corev1.Container{before.Spec.Containers, before.Spec.InitContainers}[n]
		for i := range list {
			r := list[i].Resources
			if _, is := r.Limits[kube.ExtendedResource]; is {
				t.Fatal("nvidia.com/gpu in limits")
			}
			if _, is := r.Requests[kube.ExtendedResource]; is {
				t.Fatal("nvidia.com/gpu in requests")
			}
			if cpu, was := r.Limits[corev1.ResourceCPU], old[i].Resources.Limits[corev1.ResourceCPU]; cpu.Cmp(was) != 0 {
				t.Fatal("another resource changed")
			}
			list[i].Resources = old[i].Resources
		}
	}
	restored.Labels, restored.Annotations = before.Labels, before.Annotations
	restored.Spec.SchedulingGates, restored.Spec.ResourceClaims = before.Spec.SchedulingGates, before.Spec.ResourceClaims
	if diff := cmp.Diff(before, restored); diff != "" {
		t.Fatalf("something else changed: %s", diff)
	}
	names := map[string]bool{}
	for _, c := range p.Spec.ResourceClaims {
		if names[c.Name] || len(validation.IsDNS1123Label(c.Name)) > 0 {
			t.Fatalf("claim %q is twice there or no label", c.Name)
		}
		names[c.Name] = true
	}
}

// checkWorkers wants those who asked, and nobody else, to have a claim; containers that run at the same time to have different
// ones; and as many GPUs in each as whoever uses it asked for.
func checkWorkers(t *rapid.T, before, p *corev1.Pod, r *Request) {
	asked := map[string]int{}
	look := func(now, old []corev1.Container, init bool) {
		concurrent := map[string]bool{}
		for i := range now {
			limit := old[i].Resources.Limits[kube.ExtendedResource]
			var ours []string
			for _, c := range now[i].Resources.Claims {
				if strings.HasPrefix(c.Name, ClaimPrefix) {
					ours = append(ours, c.Name)
				}
			}
			if want := min(1, int(limit.Value())); len(ours) != want {
				t.Fatalf("%s has claims %v", now[i].Name, ours)
			}
			if len(ours) == 0 {
				continue
			}
			asked[ours[0]] = max(asked[ours[0]], int(limit.Value()))
			if init && serial(&now[i]) {
				continue
			}
			if concurrent[ours[0]] {
				t.Fatalf("two containers that run at once have claim %s", ours[0])
			}
			concurrent[ours[0]] = true
		}
	}
	look(p.Spec.Containers, before.Spec.Containers, false)
	look(p.Spec.InitContainers, before.Spec.InitContainers, true)
	if len(asked) != len(r.Workers) {
		t.Fatalf("asked %v, got %+v", asked, r.Workers)
	}
	for _, w := range r.Workers {
		i := slices.IndexFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == w.Name })
		if asked[w.Name] != w.GPUs || i < 0 || *p.Spec.ResourceClaims[i].ResourceClaimName != w.Claim {
			t.Fatalf("asked %v, got %+v", asked, w)
		}
	}
}

// FuzzAnnotations looks for texts that are taken although they should not be, or that break something.
func FuzzAnnotations(f *testing.F) {
	f.Add("0.9", "guaranteed", "8Gi", "resnet50:64", "4", "true", "weft-t=1")
	f.Add("90%", "", "8GiB", "", "-1", "1", "weft-t=1,weft-u=2")
	f.Add("1e400", "besteffort", "1e-9", "x y", "9999999999999999999", "TRUE", "=,=")
	f.Fuzz(func(t *testing.T, floor, class, memory, profile, gang, migratable, claims string) {
		claim := "weft-1"
		p := &corev1.Pod{}
		p.Labels = map[string]string{kube.LabelManaged: "true"}
		p.Annotations = map[string]string{kube.AnnotationFloor: floor, kube.AnnotationClass: class, kube.AnnotationMemory: memory,
			kube.AnnotationProfile: profile, kube.AnnotationGang: gang, kube.AnnotationMigratable: migratable, kube.AnnotationClaims: claims}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "weft-t", ResourceClaimName: &claim}}
		p.Spec.Containers = []corev1.Container{{Name: "t", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "weft-t"}}}}}
		r, faults := Read(p, Defaults{})
		if (r == nil) == (len(faults) == 0) {
			t.Fatalf("%+v with %v", r, faults)
		}
		for _, f := range faults {
			if !strings.HasPrefix(f.Field, "metadata.annotations[weft.dev/") && !strings.HasPrefix(f.Field, "spec.resourceClaims") {
				t.Errorf("a fault at %s", f.Field)
			}
		}
		if r == nil {
			return
		}
		if !(r.Floor > 0 && r.Floor <= 1) || r.Peak < leastMemory || r.Peak > mostMemory || r.Gang < 1 || r.Gang > mostGang ||
			len(r.Workers) != 1 || r.Workers[0].GPUs < 1 || r.Workers[0].GPUs > mostGPUs {
			t.Errorf("%+v", r)
		}
	})
}
