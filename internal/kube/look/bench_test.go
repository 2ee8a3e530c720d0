package look_test

import (
	"fmt"
	"testing"
)

// BenchmarkLook looks at 500 nodes of 8 GPUs with 6,000 residents, 1,000 Pods that wait and 500 native ones.
func BenchmarkLook(b *testing.B) {
	w := newWorld(b)
	for n := range 500 {
		name := fmt.Sprintf("node-%03d", n)
		w.Node(name, 8, "24Gi")
		for g := range 8 {
			switch at := fmt.Sprintf("%s/%d", name, g); {
			case g == 7:
				w.Take(w.Native(fmt.Sprintf("plain/%d-%d", n, g), 1, h), at)
			case g < 7:
				for i := range 2 {
					w.Place(w.Shared(fmt.Sprintf("ml/%d-%d-%d", n, g, i), 1, h, "memory=8Gi floor=0.3"), at, "8Gi")
				}
			}
		}
	}
	for i := range 1000 {
		w.Shared(fmt.Sprintf("ml/waits-%d", i), 1, m, "memory=20Gi floor=0.9")
	}
	w.Native("plain/waits", 8, m)
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			w.look()
		}
	})
	l := w.look()
	b.Run("pods", func(b *testing.B) {
		for b.Loop() {
			l.Pods("")
		}
	})
	b.Run("status", func(b *testing.B) {
		for b.Loop() {
			l.Status()
		}
	})
	for _, name := range []string{"ml", "plain"} {
		b.Run("explain "+name, func(b *testing.B) {
			for b.Loop() {
				l.Explain(name, map[string]string{"ml": "waits-9", "plain": "waits"}[name])
			}
		})
	}
	b.Run("workload", func(b *testing.B) {
		for b.Loop() {
			l.Workload("", 0.9)
		}
	})
}
