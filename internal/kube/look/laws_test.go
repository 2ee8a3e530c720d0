package look_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube/look"
)

// drawn is a cluster with Pods wherever it pleases the dice, and native Pods that wait.
func drawn(t *testing.T, r *rapid.T) *bed {
	t.Helper()
	w := newWorld(t)
	var free []string
	for n := range rapid.IntRange(1, 3).Draw(r, "nodes") {
		gpus := rapid.IntRange(1, 3).Draw(r, "GPUs")
		name := fmt.Sprintf("node-%d", n)
		node, _ := w.Node(name, gpus, "24Gi")
		node.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(r, "cordoned") == 0
		for g := range gpus {
			free = append(free, fmt.Sprintf("%s/%d", name, g))
		}
	}
	for _, g := range free {
		switch rapid.IntRange(0, 3).Draw(r, "use of "+g) {
		case 1:
			w.Take(w.Native("plain/n-"+strings.ReplaceAll(g, "/", "-"), 1, h), g)
		case 2, 3:
			for i := range rapid.IntRange(1, 3).Draw(r, "residents") {
				w.Place(w.Shared(fmt.Sprintf("ml/s-%s-%d", strings.ReplaceAll(g, "/", "-"), i), 1, h, "memory=2Gi floor=0.1"), g, "2Gi")
			}
		}
	}
	w.Native("plain/waits", rapid.IntRange(1, 3).Draw(r, "asks"), m)
	w.Shared("ml/waits", 1, m, "floor=0.3 memory="+rapid.SampledFrom([]string{"1Gi", "20Gi", "30Gi"}).Draw(r, "memory"))
	return w
}

// remove has a Pod end.
func (w *bed) remove(name string) {
	w.Pods = slices.DeleteFunc(w.Pods, func(p *corev1.Pod) bool { return p.Namespace+"/"+p.Name == name })
	w.Claims = slices.DeleteFunc(w.Claims, func(c *resourcev1.ResourceClaim) bool { return c.Namespace+"/"+c.OwnerReferences[0].Name == name })
}

// TestEveryGPUAnswers: each GPU refuses a Pod or would take it, once, and the counts say so.
func TestEveryGPUAnswers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawn(t, r)
		gpus := w.look().GPUs()
		for _, name := range []string{"plain/waits", "ml/waits"} {
			e := explain(t, w, name)
			refused, takes := 0, 0
			for _, c := range e.Refused {
				refused += c.GPUs
			}
			seen := map[string]bool{}
			for _, x := range e.Refusals {
				seen[x.GPU] = true
				if x.Code == "" {
					takes++
				}
			}
			if len(seen) != len(gpus) || len(e.Refusals) != len(gpus) || refused+takes != len(gpus) {
				r.Fatalf("%s: %d GPUs, %d answers, %d refuse, %d take: %+v", name, len(gpus), len(e.Refusals), refused, takes, e.Refusals)
			}
			if i := slices.IndexFunc(e.Refusals, func(x look.Refusal) bool { return x.Nearest }); i > 0 {
				r.Fatalf("%s: the nearest is not the first", name)
			}
		}
	})
}

// TestWhatFrees: when the Pods end that are named, a native Pod has its GPUs, and while one of them stays it has not.
func TestWhatFrees(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawn(t, r)
		e := explain(t, w, "plain/waits")
		if len(e.Ends) == 0 {
			return
		}
		all := w.Cluster
		for keep := -1; keep < len(e.Ends); keep++ {
			w.Pods, w.Claims = slices.Clone(all.Pods), slices.Clone(all.Claims)
			for i, name := range e.Ends {
				if i != keep {
					w.remove(name)
				}
			}
			free := explain(t, w, "plain/waits")
			if starts := free.Opens == ""; starts != (keep < 0) {
				r.Fatalf("%q, without %d of it: %q", e.Opens, keep, free.Opens)
			}
		}
	})
}

// TestTotals: nodes, GPUs and Pods tell of the same cluster.
func TestTotals(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := drawn(t, r).look()
		s, gpus := l.Status(), l.GPUs()
		if s.Idle+s.Shared+s.Native+s.Closed != len(gpus) || s.GPUs != len(gpus) {
			r.Fatalf("%+v of %d GPUs", s, len(gpus))
		}
		on := map[string]bool{}
		for _, p := range l.Pods("") {
			for _, g := range p.On {
				on[g+" "+p.Namespace+"/"+p.Name] = true
			}
		}
		for _, g := range gpus {
			for _, name := range g.Residents {
				if !on[g.Name+" "+name] {
					r.Fatalf("%s has %s, and the Pod does not say so", g.Name, name)
				}
				delete(on, g.Name+" "+name)
			}
		}
		if len(on) > 0 {
			r.Fatalf("Pods are where no GPU has them: %v", on)
		}
		if s.Sharing+s.Whole+s.Waiting != len(l.Pods("")) {
			r.Fatalf("%+v of %d Pods", s, len(l.Pods("")))
		}
	})
}
