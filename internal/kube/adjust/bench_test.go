package adjust_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/kube/world"
)

// BenchmarkLook looks at 10,000 residents of 4,000 GPUs, of which a hundred have told of a window since the last look.
func BenchmarkLook(b *testing.B) {
	w := world.New(b)
	var pods []*corev1.Pod
	for i := range 500 {
		w.Node(fmt.Sprintf("node-%d", i), 8, "80Gi")
	}
	for i := range 10_000 {
		job := fmt.Sprintf("j%d", i%300)
		p := w.Shared(fmt.Sprintf("ml/%s-%d", job, i), 1, time.Hour, "memory=10Gi floor=0.3", world.Owned("Job", job))
		g := i % 4000
		pods = append(pods, w.Place(p, fmt.Sprintf("node-%d/%d", g/8, g%8), "10Gi"))
	}
	book, a := estimate.New(estimate.Options{}), adjust.New()
	tell := func(p *corev1.Pod) {
		w.Tell(p, v1alpha1.Window{Seconds: 20, Age: 600, Wait: 4, Held: 10, Used: 10, Beside: 1 + len(pods)%2, Peak: resource.MustParse("8Gi")})
	}
	q := queue.Build(&w.Cluster, book)
	next := 0
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.Now = w.Now.Add(5 * time.Second)
		for range 100 {
			tell(pods[next%len(pods)])
			next++
		}
		q.State.Now = w.Now
		b.StartTimer()
		a.Seen(w.Pods, nil, w.Now)
		a.Look(q, book, nil)
	}
}
