package arbiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

// several runs lower jobs beside a guaranteed one of 4 ms of work and gaps of 4 ms, after a first
// one of 300 ms. It returns what the high job lost of its
// rate, and what each of the others got of the GPU.
func several(t *testing.T, span time.Duration, low ...*process) (loss float64, got []float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	m := newMachine(t, 1, Options{})
	first := true
	high := m.start(&process{id: "high", kernel: lowKernel, kernels: 20, gap: func() time.Duration {
		if first {
			first = false
			return 300 * time.Millisecond
		}
		return time.Duration(float64(4*time.Millisecond) * (0.95 + 0.1*r.Float64()))
	}}, []int{0})
	for i, p := range low {
		p.id, p.kernel, p.kernels = JobID(fmt.Sprint("low ", i)), lowKernel, 20
		m.start(p, []int{0})
	}
	m.run(unit.Time(span))
	for _, p := range low {
		got = append(got, float64(p.ran)/float64(span))
	}
	alone := time.Duration(high.done*high.kernels)*high.kernel + high.past
	return 1 - float64(alone)/float64(high.last), got
}

// TestEqualSharesOfGaps: jobs of one class share the gaps of a higher one evenly.
func TestEqualSharesOfGaps(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		var low []*process
		for range n {
			low = append(low, &process{class: BestEffort, gap: every(0)})
		}
		loss, got := several(t, 4*time.Second, low...)
		t.Logf("%d: the high job loses %.2f %%, the others get %.3f", n, 100*loss, got)
		if loss > 0.0105 || slices.Min(got) < 0.4/float64(n) || slices.Max(got) > 1.03*slices.Min(got) {
			t.Errorf("%d: the high job loses %.2f %%, the others get %.3f, want the same and 0.4 together", n, 100*loss, got)
		}
	}
}

// TestSlowDrainOfOne: a job that was slow to drain once keeps neither the gaps from others nor itself out of them for long.
func TestSlowDrainOfOne(t *testing.T) {
	for _, share := range []int{1, 3} {
		drains := 0
		slow := &process{class: BestEffort, gap: every(0), stuck: func() time.Duration {
			if drains++; drains == 2 {
				return 60 * time.Millisecond
			}
			return 0
		}}
		low := []*process{slow}
		for range share - 1 {
			low = append(low, &process{class: BestEffort, gap: every(0)})
		}
		loss, got := several(t, 4*time.Second, low...)
		t.Logf("%d drains: the high job loses %.2f %%, the others get %.3f", drains, 100*loss, got)
		sum := 0.0
		for _, share := range got {
			sum += share
		}
		if loss > 0.0105 || sum < 0.3 || got[0] < 0.25/float64(share) {
			t.Errorf("the high job loses %.2f %%, the others get %.3f, want 0.3 together and %.3f the slow one", 100*loss, got, 0.25/float64(share))
		}
	}
}

// TestGapsOfBoth: a lower job that pauses, too, costs the higher one no more than one that does not: tokens are back before the
// gap ends also where nobody waits for them.
func TestGapsOfBoth(t *testing.T) {
	loss, got := several(t, 4*time.Second, &process{class: BestEffort, gap: every(4 * time.Millisecond)})
	t.Logf("the high job loses %.2f %%, the other gets %.3f", 100*loss, got)
	if loss > 0.0105 || got[0] < 0.2 {
		t.Errorf("the high job loses %.2f %%, the other gets %.3f, want 0.2", 100*loss, got)
	}
}

// TestShortGapsBetweenLong: a job that synchronises several times in an iteration lends the gap after it, and is left alone in
// those within.
func TestShortGapsBetweenLong(t *testing.T) {
	for _, short := range []time.Duration{50 * time.Microsecond, 300 * time.Microsecond} {
		loss, got := mixed(t, short)
		t.Logf("short gaps of %v: the high job loses %.2f %%, the other gets %.3f", short, 100*loss, got)
		if loss > 0.0105 || got < 0.25 {
			t.Errorf("short gaps of %v: the high job loses %.2f %%, the other gets %.3f, want 0.25", short, 100*loss, got)
		}
	}
}

func mixed(t *testing.T, short time.Duration) (loss, got float64) {
	t.Helper()
	m := newMachine(t, 1, Options{})
	n := 0
	high := m.start(&process{id: "high", kernel: lowKernel, kernels: 4, gap: func() time.Duration {
		if n++; n%5 == 0 {
			return 4 * time.Millisecond
		}
		return short
	}}, []int{0})
	low := m.start(&process{class: BestEffort, kernel: lowKernel, kernels: 20, gap: every(0)}, []int{0})
	m.run(unit.Seconds(4))
	alone := time.Duration(high.done*high.kernels)*high.kernel + high.past
	return 1 - float64(alone)/float64(high.last), low.ran.Seconds() / 4
}
