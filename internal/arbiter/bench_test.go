package arbiter

import (
	"fmt"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

// BenchmarkTurns: 300 sessions on one GPU, of one class or three, that always want it: a grant, a drop, a release and a
// request each.
func BenchmarkTurns(b *testing.B) {
	for _, mixed := range []bool{false, true} {
		b.Run(fmt.Sprintf("mixed=%v", mixed), func(b *testing.B) {
			a := New(1, Options{Minimum: 0.1})
			var now unit.Time
			for i := range 300 {
				class := BestEffort
				if mixed {
					class = Class(i % 3)
				}
				s := Session{ID: SessionID(i), Job: JobID(fmt.Sprint(i)), Class: class, Weight: 1 + i%4, GPUs: []int{0}}
				if _, err := a.Join(now, s); err != nil {
					b.Fatal(err)
				}
				a.Request(now, s.ID)
			}
			b.ReportAllocs()
			decisions := 0
			for b.Loop() {
				now = max(now+1, a.Next())
				for _, d := range append([]Decision(nil), a.Tick(now)...) {
					decisions++
					if d.Kind == Grant {
						continue
					}
					now += unit.Time(time.Millisecond)
					decisions += len(a.Released(now, d.Session, Release{Epoch: d.Epoch, Used: time.Millisecond, Launched: true}))
					decisions += len(a.Request(now, d.Session))
				}
			}
			b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
