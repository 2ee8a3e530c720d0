package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/unit"
)

// TestNoDoubleBooking: whatever arrives, ends, breaks or is interrupted in whatever order, claims of Pods that are there never ask more
// of a GPU than it has, gangs start whole, nothing is forgotten, and what is decided depends on the objects alone.
func TestNoDoubleBooking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			w.node(fmt.Sprintf("n%d", i), rapid.IntRange(1, 4).Draw(t, "gpus"), rapid.SampledFrom([]string{"16Gi", "24Gi"}).Draw(t, "memory"))
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.c.Now = w.c.Now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "seconds")) * time.Second)
			w.step(t)
			w.judge(t)
		}
		w.equivalent(t)
		w.settle(t)
	})
}

// step lets something happen.
func (w *world) step(t *rapid.T) {
	anyPod := func() *corev1.Pod {
		if len(w.c.Pods) == 0 {
			return nil
		}
		return rapid.SampledFrom(w.c.Pods).Draw(t, "pod")
	}
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0, 1, 2:
		w.arrive(t)
	case 3:
		w.add(fmt.Sprintf("plain/native-%d", w.next), rapid.IntRange(1, 2).Draw(t, "whole"), nil)
	case 4, 5:
		w.turn()
		w.judgeGangs(t)
	case 6:
		w.interrupted(t)
	case 7:
		if p := anyPod(); p != nil {
			w.schedule(p)
		}
	case 8:
		if p := anyPod(); p != nil {
			w.remove(p)
		}
	case 9:
		if p := anyPod(); p != nil && p.Spec.NodeName != "" { // it ends, and gives back what it had
			p.Status.Phase = corev1.PodSucceeded
			w.tear(p)
			w.end(p)
		}
	}
}

// end gives back what a Pod was given.
func (w *world) end(p *corev1.Pod) {
	for _, c := range w.c.Claims {
		if owner, ok := claim.Owner(c); ok && owner.UID == p.UID {
			c.Status.Allocation, c.Status.ReservedFor = nil, nil
		}
	}
}

// arrive adds a job of one Pod or a gang.
func (w *world) arrive(t *rapid.T) {
	text := rapid.SampledFrom([]string{"memory=2Gi", "memory=7Gi", "memory=14Gi", ""}).Draw(t, "memory") +
		rapid.SampledFrom([]string{" floor=0.2", " floor=0.45", " floor=0.9"}).Draw(t, "floor") +
		rapid.SampledFrom([]string{"", " class=guaranteed", " class=besteffort"}).Draw(t, "class")
	gang := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "gang")
	gpus := rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "gpus each")
	if gang > 1 {
		text += fmt.Sprintf(" gang=%d", gang)
	}
	owner := fmt.Sprintf("job-%d", w.next)
	for i := range gang {
		w.add(fmt.Sprintf("ml/%s-%d", owner, i), gpus, ask(text), owned("Job", owner))
	}
}

// interrupted is a turn of a controller that ends anywhere in it.
func (w *world) interrupted(t *rapid.T) {
	q, d := w.plan()
	for _, s := range d.Starts {
		if q.Jobs[s.Job].Native {
			continue
		}
		before := len(w.c.Claims)
		w.claims(q, s)
		switch rapid.IntRange(0, 2).Draw(t, "ends") {
		case 0: // between two claims
			w.c.Claims = w.c.Claims[:before+rapid.IntRange(0, len(w.c.Claims)-before).Draw(t, "claims")]
			return
		case 1: // between two gates
			places, _ := q.Place(s)
			members := q.Jobs[s.Job].Members
			for i, m := range members[:rapid.IntRange(0, len(members)).Draw(t, "gates")] {
				w.lift(m.Pod, q.On(places[i])[0].Node)
			}
			return
		}
		w.release(q, s)
	}
}

// judge holds the claims against what there is, by the objects alone.
func (w *world) judge(t *rapid.T) {
	t.Helper()
	type sum struct {
		memory unit.Bytes
		share  int
	}
	sums := map[string]sum{}
	undone := w.build().Undo // claims of Pods that are gated, and that stay so until these are gone
	for _, p := range w.c.Pods {
		mine := map[string]bool{}
		for _, c := range w.c.Claims {
			s, err := claim.Read(c)
			if err != nil || s.UID != p.UID || Done(p) || slices.Contains(undone, c) {
				continue
			}
			native := false
			for _, uuid := range s.GPUs {
				if mine[uuid] {
					t.Fatalf("Pod %s is on %s twice", p.Name, uuid)
				}
				mine[uuid] = true
				d, memory := w.find(uuid)
				native = native || w.native(d)
				x := sums[uuid]
				if s.Whole {
					x.memory += unit.Bytes(memory)
				} else {
					x.memory += s.Reserved
				}
				x.share += s.Part
				sums[uuid] = x
				if (int64(x.memory) > memory || x.share > kube.WholeShare) && !w.pinned(uuid) {
					t.Fatalf("%s is to hold %v of %v, %d of %d", uuid, x.memory, unit.Bytes(memory), x.share, kube.WholeShare)
				}
			}
			if native && claim.Allocated(c) {
				t.Fatalf("Pod %s shares with a native one", p.Name)
			}
		}
	}
}

// native says whether a device was given to a native Pod.
func (w *world) native(d claim.Device) bool {
	return slices.ContainsFunc(w.c.Claims, func(c *resourcev1.ResourceClaim) bool {
		return !claim.Managed(c) && slices.Contains(claim.Devices(c), d)
	})
}

// pinned says whether a GPU is a native Pod's: what is pinned there still is on its way elsewhere.
func (w *world) pinned(uuid string) bool {
	d, _ := w.find(uuid)
	return w.native(d)
}

// judgeGangs: after a whole turn, of a gang that lost no Pod all are released or none.
func (w *world) judgeGangs(t *rapid.T) {
	t.Helper()
	released, all := map[string]int{}, map[string]int{}
	for _, p := range w.c.Pods {
		if p.Annotations[kube.AnnotationGang] == "" || w.torn[p.OwnerReferences[0].UID] {
			continue
		}
		all[p.OwnerReferences[0].Name]++
		if !Gated(p) {
			released[p.OwnerReferences[0].Name]++
		}
	}
	for owner, n := range released {
		if n != all[owner] {
			t.Fatalf("of gang %s %d of %d Pods are released", owner, n, all[owner])
		}
	}
}

// equivalent: another controller, which sees the same objects in another order and knows nothing else, decides the same.
func (w *world) equivalent(t *rapid.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	other := w.c
	other.Nodes, other.Slices, other.Claims, other.Pods = slices.Clone(w.c.Nodes), slices.Clone(w.c.Slices), slices.Clone(w.c.Claims),
		slices.Clone(w.c.Pods)
	r.Shuffle(len(other.Nodes), func(i, l int) { other.Nodes[i], other.Nodes[l] = other.Nodes[l], other.Nodes[i] })
	r.Shuffle(len(other.Slices), func(i, l int) { other.Slices[i], other.Slices[l] = other.Slices[l], other.Slices[i] })
	r.Shuffle(len(other.Claims), func(i, l int) { other.Claims[i], other.Claims[l] = other.Claims[l], other.Claims[i] })
	r.Shuffle(len(other.Pods), func(i, l int) { other.Pods[i], other.Pods[l] = other.Pods[l], other.Pods[i] })
	w.c.Memory = &Memory{}
	w.plan() // what it remembers changes nothing
	q, d := w.plan()
	w.c.Memory = nil
	q2 := Build(&other, estimate.New(estimate.Options{}))
	d2 := dispatch.Plan(&q2.State)
	if a, b := outcome(q, d), outcome(q2, d2); a != b {
		t.Fatalf("one controller decides\n%s\nanother\n%s", a, b)
	}
	if a, b := len(q.Lift), len(q2.Lift); a != b {
		t.Fatalf("one controller lifts %d gates, another %d", a, b)
	}
	if diff := cmp.Diff(q.State.GPUs, q2.State.GPUs); diff != "" {
		t.Fatal(diff)
	}
}

// settle: when nothing more arrives, and what runs ends, every job that the cluster can hold comes to run.
func (w *world) settle(t *rapid.T) {
	t.Helper()
	for range 60 + 4*len(w.c.Pods) {
		w.c.Now = w.c.Now.Add(15 * time.Second)
		w.turn()
		w.turn()
		w.judge(t)
		w.judgeGangs(t)
		w.scheduleAll()
		for _, p := range slices.Clone(w.c.Pods) {
			if p.Spec.NodeName != "" {
				w.remove(p)
			}
		}
	}
	q, d := w.plan()
	for _, wait := range d.Waits {
		j := q.Jobs[wait.Job]
		if word := q.Wait(wait); !word.Warning && j.waits == "" && !j.Native {
			t.Fatalf("%s waits for ever though nothing runs: %s", j.Name, word.Text)
		}
	}
	for _, s := range d.Starts {
		t.Fatalf("%s could start and never did", q.Jobs[s.Job].Name)
	}
	for _, c := range w.c.Claims {
		if !slices.ContainsFunc(w.c.Pods, func(p *corev1.Pod) bool { return claimOf(c, p) }) {
			t.Fatalf("claim %s is left over", c.Name)
		}
	}
}

func claimOf(c *resourcev1.ResourceClaim, p *corev1.Pod) bool {
	owner, ok := claim.Owner(c)
	return ok && owner.UID == p.UID
}
