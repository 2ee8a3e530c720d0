package queue

import (
	"fmt"
	"testing"

	"weft.dev/weft/internal/dispatch"
)

// BenchmarkCluster is a cluster of 500 nodes with 8 GPUs, before and after 4,000 Pods have been placed: to read it, as a controller
// does at each plan, and to decide.
func BenchmarkCluster(b *testing.B) {
	for _, placed := range []bool{false, true} {
		w := newWorld(b)
		for i := range 500 {
			w.node(fmt.Sprintf("node-%03d", i), 8, "80Gi")
		}
		for i := range 4000 {
			w.add(fmt.Sprintf("ml/p-%04d", i), 1, ask([]string{"memory=30Gi floor=0.4", "memory=20Gi floor=0.3 class=besteffort", "memory=70Gi floor=0.9",
				"memory=40Gi floor=0.5"}[i%4]))
		}
		if placed {
			q, d := w.plan()
			for _, s := range d.Starts {
				w.claimsUnchecked(q, s)
				w.release(q, s)
			}
		}
		b.Run(fmt.Sprintf("read/placed=%v", placed), func(b *testing.B) {
			w.c.Memory = &Memory{}
			for b.Loop() {
				w.build()
			}
			w.c.Memory = nil
		})
		q := w.build()
		b.Run(fmt.Sprintf("plan/placed=%v", placed), func(b *testing.B) {
			for b.Loop() {
				dispatch.Plan(&q.State)
			}
		})
	}
}
