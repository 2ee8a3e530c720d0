package arbiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

// TestShares: jobs that always have work get what their weights say, with short and with long kernels beside each
// other, with synchronisations and without.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		weights []int
		kernels []time.Duration
		per     int // kernels of an iteration
		class   Class
	}{
		{[]int{1, 1}, []time.Duration{time.Millisecond, time.Millisecond}, 1 << 30, BestEffort},
		{[]int{3, 1}, []time.Duration{time.Millisecond, time.Millisecond}, 1 << 30, BestEffort},
		{[]int{3, 1}, []time.Duration{10 * time.Millisecond, 300 * time.Microsecond}, 20, Guaranteed},
		{[]int{3, 1}, []time.Duration{300 * time.Microsecond, 10 * time.Millisecond}, 20, Burstable},
		{[]int{1, 1}, []time.Duration{30 * time.Millisecond, 200 * time.Microsecond}, 7, BestEffort},
		{[]int{1, 2, 3, 10}, []time.Duration{1e6, 2e6, 5e5, 3e5}, 50, Burstable},
	} {
		m := newMachine(t, 1, Options{})
		var jobs []*process
		sum := 0
		for i, w := range c.weights {
			sum += w
			jobs = append(jobs, m.start(&process{class: c.class, weight: w, kernel: c.kernels[i], kernels: c.per, gap: every(0)}, []int{0}))
		}
		m.run(unit.Seconds(60))
		var ran time.Duration
		for _, j := range jobs {
			ran += j.ran
		}
		for i, j := range jobs {
			share, want := float64(j.ran)/float64(ran), float64(c.weights[i])/float64(sum)
			if math.Abs(share-want) > 0.03*want {
				t.Errorf("weights %v, kernels %v: job %d gets %.4f, want %.4f within 3 %%", c.weights, c.kernels, i, share, want)
			}
			t.Logf("weights %v, kernels %v: job %d gets %.4f of %.4f; busy %.3f", c.weights, c.kernels, i, share, want, ran.Seconds()/60)
		}
	}
}

// TestBoundedWaiting: among 300 processes of a class, none waits longer than a round of quanta.
func TestBoundedWaiting(t *testing.T) {
	m := newMachine(t, 1, Options{})
	jobs := make([]*process, 300)
	for i := range jobs {
		jobs[i] = m.start(&process{class: BestEffort, kernel: time.Millisecond, kernels: 1 << 30, gap: every(0)}, []int{0})
	}
	m.run(unit.Seconds(60))
	var longest time.Duration
	for _, j := range jobs {
		if len(j.waits) < 5 {
			t.Errorf("job %s was granted %d times in a minute", j.id, len(j.waits))
		}
		for _, w := range j.waits {
			longest = max(longest, w)
		}
	}
	if longest > 300*14*time.Millisecond {
		t.Errorf("a job waits %v", longest)
	}
	t.Logf("longest wait %v", longest)
}

// TestPreemption: a high job that comes back unforeseen waits for two messages each way, the window and the kernel that
// was begun.
func TestPreemption(t *testing.T) {
	for _, kernel := range []time.Duration{50 * time.Microsecond, 400 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond} {
		m, r := newMachine(t, 1, Options{Loss: 0.5}), rand.New(rand.NewPCG(2, 3))
		high := m.start(&process{class: Guaranteed, kernel: time.Millisecond, kernels: 5, gap: func() time.Duration {
			return time.Duration(r.ExpFloat64() * float64(50*time.Millisecond))
		}}, []int{0})
		low := m.start(&process{class: BestEffort, kernel: kernel, kernels: 1 << 30, gap: every(0)}, []int{0})
		m.run(unit.Seconds(30))
		var longest time.Duration
		for _, w := range high.waits {
			longest = max(longest, w)
		}
		if most := 4*m.latency + firstWindow + kernel; longest > most {
			t.Errorf("kernel %v: the high job waits %v, want at most %v", kernel, longest, most)
		}
		if low.ran == 0 {
			t.Errorf("kernel %v: the low job never ran", kernel)
		}
		t.Logf("kernel %v: longest of %d waits %v", kernel, len(high.waits), longest)
	}
}

// TestLateComersTakeShortTurns: jobs that start where others had been for long take turns of a quantum, not of what they
// are all behind the virtual time of the past.
func TestLateComersTakeShortTurns(t *testing.T) {
	m := newMachine(t, 1, Options{})
	start := func() *process {
		return m.start(&process{class: Burstable, kernel: time.Millisecond, kernels: 4, gap: every(0)}, []int{0})
	}
	past := []*process{start(), start()}
	m.run(unit.Seconds(5))
	for _, p := range past {
		p.quit = true
	}
	m.run(m.now.Add(10 * time.Millisecond))
	for _, p := range past {
		m.act(m.a.Forget(m.now, p.id))
	}
	var late []*process
	for range 2 {
		late = append(late, start())
		m.run(m.now.Add(300 * time.Millisecond))
	}
	before := len(late[0].waits)
	m.run(m.now.Add(2 * time.Second))
	for _, w := range late[0].waits[before:] {
		if w > 20*time.Millisecond {
			t.Fatalf("a job waits %v for its peer's turn", w)
		}
	}
	if n := len(late[0].waits) - before; n < 50 {
		t.Errorf("%d turns in two seconds", n)
	}
}
