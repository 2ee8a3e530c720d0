package model

import (
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// kernels submits a number of kernels of a length to a new stream.
func kernels(m *Model, c *Context, n int, cost time.Duration) *Stream {
	s := m.Stream(c, 0)
	for range n {
		m.Submit(s, Op{Kind: Kernel, Cost: cost})
	}
	return s
}

// ended is when an entry of a stream ends if nothing else is submitted.
func ended(t *testing.T, m *Model, s *Stream, entry uint64) unit.Time {
	t.Helper()
	for s.Done() < entry {
		next := m.Next()
		if next == unit.Never {
			t.Fatalf("entry %d of the stream never ends: %d ended", entry, s.Done())
		}
		m.Advance(next)
	}
	return m.Now()
}

func TestAloneTakesItsCost(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: 2 * ms, Switch: 50 * us})
	c := m.Open(0, "a")
	s := kernels(m, c, 1000, 333*us)
	if at := ended(t, m, s, 1000); at != unit.Time(333*ms) {
		t.Errorf("1000 kernels of 333 us end at %v", time.Duration(at))
	}
	if u := m.Usage(c); u != (Usage{Busy: 333 * ms, Kernels: 1000}) {
		t.Errorf("usage %+v", u)
	}
}

func TestTwoTakeTurns(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: 2 * ms, Switch: 100 * us})
	a, b := m.Open(0, "a"), m.Open(0, "b")
	sa, sb := kernels(m, a, 1, 10*ms), kernels(m, b, 1, 5*ms)
	// a 0-2, b 2.1-4.1, a 4.2-6.2, b 6.3-8.3, a 8.4-10.4, b 10.5-11.5, a 11.6-15.6
	if at := ended(t, m, sb, 1); at != unit.Time(11500*us) {
		t.Errorf("b ends at %v", time.Duration(at))
	}
	if at := ended(t, m, sa, 1); at != unit.Time(15600*us) {
		t.Errorf("a ends at %v", time.Duration(at))
	}
	if got, want := m.Account(0), (Account{Busy: 15 * ms, Switching: 600 * us}); got != want {
		t.Errorf("account %+v, want %+v", got, want)
	}
}

func TestFIFORunsInOrder(t *testing.T) {
	m := New(Options{GPUs: 1, FIFO: true})
	a, b := m.Open(0, "a"), m.Open(0, "b")
	sa, sb := kernels(m, a, 1, 10*ms), kernels(m, b, 2, ms)
	sa2 := kernels(m, a, 1, 3*ms)
	for _, c := range []struct {
		s    *Stream
		n    uint64
		want time.Duration
	}{{sa, 1, 10 * ms}, {sb, 1, 11 * ms}, {sa2, 1, 14 * ms}, {sb, 2, 15 * ms}} {
		if at := ended(t, m, c.s, c.n); at != unit.Time(c.want) {
			t.Errorf("ends at %v, want %v", time.Duration(at), c.want)
		}
	}
}

func TestSlowdownWhileBothHaveWork(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms, Slowdown: map[Pair]float64{{"a", "b"}: 1.5, {"b", "a"}: 1.25}})
	sa, sb := kernels(m, m.Open(0, "a"), 1, 1900*us), kernels(m, m.Open(0, "b"), 1, 4*ms)
	// In turns of 1 ms, a gets 2/3 ms of work done and b 4/5 ms. a ends in its third, which began at 4 ms; by then b had
	// two and has 2.4 ms left, alone.
	if at := ended(t, m, sa, 1); at.Sub(unit.Time(4850*us)).Abs() > 3 {
		t.Errorf("a ends at %v", time.Duration(at))
	}
	if at := ended(t, m, sb, 1); at.Sub(unit.Time(7250*us)).Abs() > 3 {
		t.Errorf("b ends at %v", time.Duration(at))
	}
}

func TestSlowdownIsSymmetricUnlessSaid(t *testing.T) {
	m := New(Options{GPUs: 1, Slowdown: map[Pair]float64{{"a", "b"}: 1.5, {"a", "c"}: 2, {"c", "a"}: 3, {"d", "a"}: 0.5}})
	for pair, want := range map[Pair]float64{
		{"a", "b"}: 1.5, {"b", "a"}: 1.5, {"a", "c"}: 2, {"c", "a"}: 3, {"b", "c"}: 1, {"a", "d"}: 1,
	} {
		if got := m.slowdown(pair.Of, pair.Beside); got != want {
			t.Errorf("%v: %v, want %v", pair, got, want)
		}
	}
}

func TestCopiesRunBesideKernels(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms})
	c, d := m.Open(0, "a"), m.Open(0, "b")
	s := kernels(m, c, 1, 10*ms)
	up, down, late := m.Stream(c, 0), m.Stream(c, 0), m.Stream(d, 0)
	m.Submit(up, Op{Kind: HostToDevice, Cost: 3 * ms})
	m.Submit(down, Op{Kind: DeviceToHost, Cost: 2 * ms})
	m.Submit(late, Op{Kind: HostToDevice, Cost: ms})
	for _, c := range []struct {
		s    *Stream
		want time.Duration
	}{{down, 2 * ms}, {up, 3 * ms}, {late, 4 * ms}, {s, 10 * ms}} {
		if at := ended(t, m, c.s, 1); at != unit.Time(c.want) {
			t.Errorf("ends at %v, want %v", time.Duration(at), c.want)
		}
	}
	if u := m.Usage(c); u != (Usage{Busy: 10 * ms, Copying: 5 * ms, Kernels: 1}) {
		t.Errorf("usage %+v", u)
	}
}

func TestEventsAndWaits(t *testing.T) {
	m := New(Options{GPUs: 2, Slice: ms})
	a, b := m.Open(0, "a"), m.Open(1, "a")
	first, second := kernels(m, a, 2, 3*ms), m.Stream(b, 7)
	m.Submit(first, Op{Kind: RecordEvent, Event: 5, Generation: 9})
	m.Submit(second, Op{Kind: Wait, On: first, Entry: 3})
	m.Submit(second, Op{Kind: Kernel, Cost: ms})
	if at := m.Bound(second, 9); at != unit.Time(7*ms) {
		t.Errorf("bound %v, want 7ms", time.Duration(at))
	}
	if at := ended(t, m, second, 9); at != unit.Time(7*ms) {
		t.Errorf("ends at %v, want 7ms", time.Duration(at))
	}
	if got, want := m.Records(), []Record{{first, 5, 9, unit.Time(6 * ms)}}; !slices.Equal(got, want) {
		t.Errorf("records %v", got)
	}
	if got := m.Changed(); !slices.Equal(got, []*Stream{first, second}) {
		t.Errorf("changed %v", got)
	}
	if len(m.Changed())+len(m.Records()) != 0 {
		t.Error("changes are told twice")
	}
}

func TestHostFunctionStopsItsStream(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms})
	s := m.Stream(m.Open(0, "a"), 0)
	m.Submit(s, Op{Kind: Host})
	m.Submit(s, Op{Kind: Kernel, Cost: ms})
	m.HostDone(s, 0)
	m.Advance(unit.Time(5 * ms))
	if s.Done() != 0 || m.Next() != unit.Never {
		t.Fatalf("%d ended before the function returned", s.Done())
	}
	m.HostDone(s, 1)
	if at := ended(t, m, s, 2); at != unit.Time(6*ms) {
		t.Errorf("ends at %v", time.Duration(at))
	}
}

func TestEndlessKernelLeavesOthersTheirTurns(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms})
	a, b := m.Open(0, "a"), m.Open(0, "b")
	hung := m.Stream(a, 0)
	m.Submit(hung, Op{Kind: Kernel, Endless: true})
	s := kernels(m, b, 1, 5*ms)
	if at := ended(t, m, s, 1); at != unit.Time(10*ms) {
		t.Errorf("ends at %v", time.Duration(at))
	}
	if at := m.Bound(hung, 1); at != unit.Never {
		t.Errorf("the endless kernel may end at %v", at)
	}
	m.Advance(unit.Time(time.Hour))
	if u := m.Usage(a); u.Busy != time.Hour-5*ms || u.Kernels != 0 {
		t.Errorf("usage %+v", u)
	}
	m.Close(a)
	if m.Next() != unit.Never || m.Usage(a).Busy != time.Hour-5*ms {
		t.Error("a closed context works on")
	}
}

func TestCloseFreesAllEngines(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms, Switch: 10 * us})
	a, b := m.Open(0, "a"), m.Open(0, "b")
	sa, sb := kernels(m, a, 3, ms), m.Stream(b, 0)
	up, waits := m.Stream(a, 0), kernels(m, b, 1, ms)
	m.Submit(up, Op{Kind: HostToDevice, Cost: time.Hour})
	m.Submit(sb, Op{Kind: Wait, On: sa, Entry: 3})
	m.Submit(sb, Op{Kind: HostToDevice, Cost: ms})
	m.Advance(unit.Time(1005 * us)) // b is being loaded
	m.Close(a)
	m.Close(a)
	m.Submit(sa, Op{Kind: Kernel, Cost: ms})
	if at := ended(t, m, waits, 1); at != unit.Time(2010*us) {
		t.Errorf("b's kernel ends at %v", time.Duration(at))
	}
	if sb.Done() != 2 || sa.Done() != 1 || sa.Pending() != 0 {
		t.Errorf("b ended %d, a %d, %d pending", sb.Done(), sa.Done(), sa.Pending())
	}
}

func TestUtilisation(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms})
	s := m.Stream(m.Open(0, "a"), 0)
	for i := range 40 { // half of every 100 ms
		m.Advance(unit.Time(time.Duration(i) * 100 * ms))
		m.Submit(s, Op{Kind: Kernel, Cost: 50 * ms})
	}
	if u := m.Utilisation(0); u != 0.5 {
		t.Errorf("utilisation %v, want 0.5", u)
	}
	m.Advance(unit.Time(time.Minute))
	if u := m.Utilisation(0); u != 0 {
		t.Errorf("utilisation %v a minute later", u)
	}
	if (&history{}).share(0) != 0 {
		t.Error("utilisation at time 0")
	}
}

func TestSliceRunsAlsoAlone(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: 2 * ms})
	kernels(m, m.Open(0, "a"), 1, 100*ms)
	m.Advance(unit.Time(7 * ms))
	late := kernels(m, m.Open(0, "b"), 1, ms)
	if at := ended(t, m, late, 1); at != unit.Time(9*ms) { // a's fourth slice ends at 8 ms
		t.Errorf("ends at %v, want 9ms", time.Duration(at))
	}
}

func TestClosedContextNeedsNoSwitch(t *testing.T) {
	m := New(Options{GPUs: 1, Switch: ms})
	a := m.Open(0, "a")
	kernels(m, a, 1, ms)
	m.Advance(unit.Time(ms))
	m.Close(a)
	if at := ended(t, m, kernels(m, m.Open(0, "b"), 1, ms), 1); at != unit.Time(2*ms) {
		t.Errorf("ends at %v, want 2ms", time.Duration(at))
	}
}

func TestForgottenStreams(t *testing.T) {
	m := New(Options{GPUs: 1, Slice: ms})
	c := m.Open(0, "a")
	s, waits := kernels(m, c, 1, ms), m.Stream(c, 0)
	m.Submit(waits, Op{Kind: Wait, On: s, Entry: 2})
	m.Forget(s) // has work
	m.Advance(unit.Time(5 * ms))
	if waits.Done() != 0 || s.Done() != 1 {
		t.Fatalf("%d and %d ended", waits.Done(), s.Done())
	}
	m.Forget(s)
	m.Submit(waits, Op{Kind: Wait, On: s, Entry: 3})
	if waits.Done() != 2 || len(c.all) != 1 {
		t.Errorf("%d ended, %d streams", waits.Done(), len(c.all))
	}
}

// BenchmarkKernels is the cost of one kernel from submission to its end, with two contexts that take turns.
func BenchmarkKernels(b *testing.B) {
	m := New(Options{GPUs: 4, Slice: 2 * ms, Switch: 50 * us})
	streams := []*Stream{m.Stream(m.Open(0, "a"), 0), m.Stream(m.Open(0, "b"), 0)}
	b.ReportAllocs()
	for i := range b.N {
		m.Advance(unit.Time(i) * unit.Time(20*us))
		m.Submit(streams[i%2], Op{Kind: Kernel, Cost: 19 * us})
		if i%512 == 0 {
			m.Changed()
		}
	}
}
