package queue

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestDemand: what fits nowhere wants GPUs, as few as it could share; what waits for a floor, its turn or its user does not.
func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		fill func(w *world)
	}{
		{"nobody waits", 0, func(*world) {}},
		{"four that share one GPU", 1, func(w *world) {
			for i := range 4 {
				w.add(fmt.Sprintf("ml/s%d", i), 1, ask("memory=5Gi floor=0.2"))
			}
		}},
		{"two that do not share", 2, func(w *world) {
			w.add("ml/a", 1, ask("memory=20Gi floor=0.9"))
			w.add("ml/b", 1, ask("memory=20Gi floor=0.9"))
		}},
		{"a gang that is larger than the cluster", 4, func(w *world) {
			for i := range 4 {
				w.add(fmt.Sprintf("ml/g%d", i), 1, ask("memory=20Gi floor=0.9 gang=4"), owned("Job", "g"))
			}
		}},
		{"a native Pod", 1, func(w *world) { w.add("plain/n", 1, nil) }},
		{"more memory than any GPU has", 0, func(w *world) { w.add("ml/big", 1, ask("memory=90Gi")) }},
		{"somebody else's gate", 0, func(w *world) {
			w.add("ml/a", 1, ask("memory=20Gi"), func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n1", 2, "24Gi")
			for i := range 2 { // everything is taken
				w.add(fmt.Sprintf("plain/whole-%d", i), 1, nil)
			}
			w.scheduleAll()
			c.fill(w)
			q, d := w.plan()
			if got := q.Demand(&d); got != 0 {
				t.Errorf("%d GPUs are wanted at once", got)
			}
			w.c.Now = w.c.Now.Add(time.Minute)
			if q, d = w.plan(); q.Demand(&d) != c.want {
				t.Errorf("%d GPUs are wanted, not %d: %+v", q.Demand(&d), c.want, d.Waits)
			}
		})
	}
	t.Run("it waits for a floor", func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 1, "24Gi")
		w.add("ml/a", 1, ask("memory=5Gi floor=0.9"))
		w.turn()
		w.scheduleAll()
		w.add("ml/b", 1, ask("memory=5Gi floor=0.9"))
		w.c.Now = w.c.Now.Add(time.Minute)
		if q, d := w.plan(); q.Demand(&d) != 0 {
			t.Errorf("%d GPUs are wanted: %+v", q.Demand(&d), d.Waits)
		}
	})
	t.Run("no node is there", func(t *testing.T) {
		w := newWorld(t)
		w.add("ml/a", 2, ask("memory=5Gi floor=0.9"))
		w.c.Now = w.c.Now.Add(time.Minute)
		if q, d := w.plan(); q.Demand(&d) != 2 {
			t.Errorf("%d GPUs are wanted: %+v", q.Demand(&d), d.Waits)
		}
	})
}
