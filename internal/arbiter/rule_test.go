package arbiter

import (
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

func TestGapsPredict(t *testing.T) {
	var short, long gaps
	for i := range 16 {
		short.add(time.Duration(10+i) * time.Millisecond)
	}
	for range 3 {
		long.add(time.Millisecond)
		long.add(40 * time.Millisecond)
	}
	for _, c := range []struct {
		what    string
		g       gaps
		elapsed time.Duration
		want    time.Duration
	}{
		{"nothing is known", gaps{}, 3, 6},
		{"the second shortest", short, 0, 11 * time.Millisecond},
		{"of those that were longer", short, 20 * time.Millisecond, 22 * time.Millisecond},
		{"the longest", short, 24 * time.Millisecond, 25 * time.Millisecond},
		{"longer than all", short, 26 * time.Millisecond, 52 * time.Millisecond},
		{"few: the shortest", long, 0, time.Millisecond},
		{"the short ones are over", long, 2 * time.Millisecond, 40 * time.Millisecond},
	} {
		if got := c.g.length(c.elapsed); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestGrace: a low job is granted what a high one left only after the grace, and where nothing is known of its gaps
// when one has lasted as long as a useful slice; at once where all gaps were long.
func TestGrace(t *testing.T) {
	a := New(1, Options{Loss: 0.5})
	play(t, a, 0, Session{ID: 1, Class: Guaranteed}, Session{ID: 2, Class: BestEffort})
	now, epoch := ms(1), uint64(1)
	want(t, "high", a.Request(now, 1), brief{Grant, 1, None})
	want(t, "low", a.Request(now, 2), brief{Yield, 1, None})
	turn := func(work, wait time.Duration) []Decision {
		now = now.Add(work)
		at := now
		if d := a.Released(now, 1, Release{Epoch: epoch, Used: work}); wait == 0 {
			return d
		} else if len(d) > 0 {
			t.Errorf("%+v at once, want it after %v", d, wait)
			return d
		}
		for {
			if now = a.Next(); now > at.Add(wait) {
				t.Fatalf("no grant within %v", wait)
			}
			if d := a.Tick(now); len(d) > 0 {
				if now < at.Add(wait) {
					t.Errorf("%+v after %v, want it after %v", d, now.Sub(at), wait)
				}
				return d
			}
		}
	}
	first := turn(5*time.Millisecond, a.o.useful()+firstWindow+a.o.Handover+1)
	for i := range 16 {
		want(t, "low in the gap", first, brief{Grant, 2, None})
		now = now.Add(20 * time.Millisecond)
		a.Released(now, 2, Release{Epoch: epoch + 1})
		want(t, "high again", a.Request(now, 1), brief{Grant, 1, None})
		want(t, "low again", a.Request(now, 2), brief{Yield, 1, None})
		epoch += 2
		grace := a.o.Grace
		if i == 15 {
			grace = 0
		}
		first = turn(5*time.Millisecond, grace)
	}
}

// TestSleeper: who slept for long gets its share from now on, and not what it missed.
func TestSleeper(t *testing.T) {
	m := newMachine(t, 1, Options{})
	slept := m.start(&process{class: Burstable, kernel: time.Millisecond, kernels: 1, gap: every(5 * time.Second)}, []int{0})
	var others []*process
	for range 2 {
		others = append(others, m.start(&process{class: Burstable, kernel: time.Millisecond, kernels: 1 << 30, gap: every(0)}, []int{0}))
	}
	m.run(unit.Seconds(5))
	slept.kernels, slept.left = 1<<30, 1<<30
	before := others[0].ran + others[1].ran
	m.run(unit.Seconds(6))
	if ran := others[0].ran + others[1].ran - before; ran < 560*time.Millisecond || ran > 700*time.Millisecond {
		t.Errorf("the others run %v of the second after 5 s of sleep, want two thirds, less what a sleeper keeps", ran)
	}
}

// TestFloorSlice: a slice of the minimum is not ended by a high job, only by its deadline.
func TestFloorSlice(t *testing.T) {
	a := New(1, Options{Minimum: 0.5})
	play(t, a, 0, Session{ID: 1, Class: Guaranteed}, Session{ID: 2, Class: BestEffort})
	want(t, "high", a.Request(0, 1), brief{Grant, 1, None})
	want(t, "low", a.Request(0, 2), brief{Yield, 1, None})
	at := a.Next()
	want(t, "the minimum is due", a.Tick(at), brief{Drop, 1, Minimum})
	want(t, "high drained", a.Released(at+1, 1, Release{Epoch: 1}), brief{Grant, 2, None})
	want(t, "high asks", a.Request(at+2, 1))
	want(t, "the slice is over", a.Tick(at.Add(slice)+1), brief{Drop, 2, Deadline})
	if at < ms(20) || at > ms(20.1) {
		t.Errorf("the minimum of a half was due after %v, want 20 ms", time.Duration(at))
	}
}

// TestLowRunsOnWhileGangWaits: a high gang that has to wait for the turn of a peer does not stop a low job before.
func TestLowRunsOnWhileGangWaits(t *testing.T) {
	a := New(2, Options{})
	play(t, a, 0, Session{ID: 1, Class: Burstable}, Session{ID: 2, Class: BestEffort, GPUs: []int{1}},
		Session{ID: 3, Class: Burstable, GPUs: []int{0, 1}})
	a.Request(0, 1)
	want(t, "low", a.Request(0, 2), brief{Grant, 2, None})
	want(t, "the gang waits for its peer", a.Request(ms(1), 3))
	want(t, "the peer's turn ends", a.Tick(ms(7)), brief{Yield, 1, None})
	want(t, "the low job is stopped in time", a.Tick(ms(10)), brief{Drop, 2, Priority})
	want(t, "the low job is out", a.Released(ms(10.4), 2, Release{Epoch: 2}))
	want(t, "the peer returns", a.Released(ms(10.5), 1, Release{Epoch: 1}), brief{Grant, 3, None})
}

// TestQuantum adapts to hand-overs and to how long holders take to return.
func TestQuantum(t *testing.T) {
	a := New(1, Options{Handover: 100 * time.Microsecond})
	for late, want := range map[time.Duration]time.Duration{
		0: 5 * time.Millisecond, 10 * time.Millisecond: 20 * time.Millisecond, time.Minute: 500 * time.Millisecond,
	} {
		if got := a.quantum(&job{late: late}); got != want {
			t.Errorf("a holder that returns after %v has %v, want %v", late, got, want)
		}
	}
}
