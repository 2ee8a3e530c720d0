package emugpu

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

func openAudit(t testing.TB, b *Broker) *Audit {
	t.Helper()
	a, err := OpenAudit(b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestAuditFindsWhoLaunchesOutside(t *testing.T) {
	b := start(t, 2, Options{})
	d := attach(t, b.Socket(), "a")
	s, pid := d.context(t, 1).null(), os.Getpid()
	s.launch(1)
	if stats := b.Stats(); stats.Audited || stats.Verdict != (Verdict{}) {
		t.Errorf("judged before there was an audit: %+v", stats.Verdict)
	}
	a := openAudit(t, b)
	s.launch(1) // unmanaged
	a.Revoke(pid, 1)
	a.Overrun(pid, 1)
	s.launch(1) // still
	a.Enter(pid)
	s.launch(1) // outside
	a.Allow(pid, 0, 1)
	s.launch(1) // outside: the token is of another GPU
	a.Allow(pid, 1, 1)
	s.launch(1)
	a.Overrun(pid, 1)
	s.launch(1) // overrun
	a.Allow(pid, 1, 2)
	s.launch(1)
	a.Revoke(pid, 1)
	s.launch(1) // outside
	stats := b.Stats()
	want := Verdict{Launches: 8, Violations: 3, Outside: 3, Overrun: 1, Unmanaged: 2}
	if !stats.Audited || stats.Verdict != want || stats.Processes[0].Audit != want {
		t.Errorf("%+v, want %+v", stats.Verdict, want)
	}
	if len(stats.Examples) != 3 || stats.Examples[0].Kind != "outside" || stats.Examples[0].PID != int32(pid) || stats.Examples[0].GPU != 1 {
		t.Errorf("examples %+v", stats.Examples)
	}
}

// TestAuditFindsTwoHolders lets two processes launch under tokens of which the older one was granted away.
func TestAuditFindsTwoHolders(t *testing.T) {
	b := start(t, 1, Options{})
	a := openAudit(t, b)
	x, y := startOther(t, b.Socket()), startOther(t, b.Socket())
	a.Allow(x.pid(), 0, 1)
	x.tell(t, "launch 1")
	a.Allow(y.pid(), 0, 2) // x's was never revoked
	y.tell(t, "launch 1")
	x.tell(t, "launch 1")
	a.Allow(x.pid(), 0, 2) // as one gang
	x.tell(t, "launch 1")
	a.Revoke(y.pid(), 0)
	a.Allow(x.pid(), 0, 3)
	x.tell(t, "launch 1")
	stats := b.Stats()
	if want := (Verdict{Launches: 5, Violations: 1, TwoHolders: 1}); stats.Verdict != want {
		t.Errorf("%+v, want %+v", stats.Verdict, want)
	}
	if len(stats.Examples) != 1 || int(stats.Examples[0].PID) != x.pid() || int(stats.Examples[0].OtherPID) != y.pid() ||
		stats.Examples[0].Epoch != 1 || stats.Examples[0].OtherEpoch != 2 {
		t.Errorf("examples %+v", stats.Examples)
	}
	y.kill()
	eventually(t, func() bool { return findSlot(a.page, int32(y.pid())) < 0 })
}

// TestTwoHoldersAreToldExactly compares with looking at all earlier launches.
func TestTwoHoldersAreToldExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &auditor{by: &session{}, newest: make([]newest, 1)}
		var past []stamp
		at := unit.Time(1)
		for range rapid.IntRange(1, 60).Draw(t, "launches") {
			at += unit.Time(rapid.IntRange(0, 1).Draw(t, "later"))
			s := stamp{int32(rapid.IntRange(1, 4).Draw(t, "pid")), uint64(rapid.IntRange(1, 6).Draw(t, "epoch")), at}
			before := a.totals.TwoHolders
			a.launch(&attachment{pid: s.pid}, 0, s.epoch, at)
			want := slices.ContainsFunc(past, func(p stamp) bool { return p.pid != s.pid && p.epoch > s.epoch && p.first < at })
			if got := a.totals.TwoHolders > before; got && !want || want && !got && !tied(past, s) {
				t.Fatalf("%+v after %+v: %v", s, past, got)
			}
			past = append(past, s)
		}
	})
}

// tied says whether launches of the same instant decide: then an older token of a third process may be overlooked.
func tied(past []stamp, s stamp) bool {
	return slices.ContainsFunc(past, func(p stamp) bool { return p.first == s.first && p.epoch > s.epoch })
}

// TestAuditTable fills and empties the table from several goroutines.
func TestAuditTable(t *testing.T) {
	b := start(t, 1, Options{})
	a := openAudit(t, b)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for pid := 1; pid <= 2000; pid++ {
				a.Allow(pid, g, uint64(pid))
			}
		})
	}
	all.Wait()
	for pid := 1; pid <= 2000; pid++ {
		at := findSlot(a.page, int32(pid))
		if at < 0 {
			t.Fatalf("pid %d has no slot", pid)
		}
		for g := range 4 {
			if e := a.word(at, g).Load(); e != uint64(pid) {
				t.Fatalf("pid %d has epoch %d on gpu %d", pid, e, g)
			}
		}
	}
	for pid := int32(1); pid <= 2000; pid++ {
		b.audit.forget(pid)
	}
	for pid := 1; pid <= 50_000; pid++ {
		a.Enter(pid)
		if at := findSlot(a.page, int32(pid)); at < 0 || a.word(at, 0).Load() != 0 {
			t.Fatalf("pid %d: slot %d", pid, at)
		}
		b.audit.forget(int32(pid))
	}
	a.Allow(0, 0, 1)
	a.Allow(-1, 0, 1)
}

// TestAuditIsOfLaunches: copies and memsets carry no token.
func TestAuditIsOfLaunches(t *testing.T) {
	b := start(t, 1, Options{Clock: Virtual})
	d := attach(t, b.Socket(), "a")
	a := openAudit(t, b)
	a.Enter(d.pid)
	me, s := d.enter(), d.context(t, 0).null()
	var n uint64
	for kind := uint16(1); kind <= 7; kind++ {
		n = s.push(arrival{kind: kind, cost: 10, epoch: 0})
	}
	s.wait(me, n)
	if v := b.Stats().Verdict; v.Launches != 2 || v.Outside != 2 {
		t.Errorf("%+v, want 2 launches", v)
	}
}

// TestLastLaunchesAreJudged: a process that ends without waiting for what it launched.
func TestLastLaunchesAreJudged(t *testing.T) {
	for _, clock := range []Clock{Real, Virtual} {
		b := start(t, 1, Options{Clock: clock})
		a := openAudit(t, b)
		d := attach(t, b.Socket(), "a")
		a.Enter(d.pid)
		d.enter()
		d.context(t, 0).null().launch(ms)
		d.close()
		eventually(t, func() bool { return len(b.Stats().Processes) == 1 && b.Stats().Processes[0].Ended })
		if v := b.Stats().Verdict; v.Outside != 1 {
			t.Errorf("%v: %+v", clock, v)
		}
	}
}

func BenchmarkAllowRevoke(b *testing.B) {
	broker := start(b, 1, Options{})
	a := openAudit(b, broker)
	for b.Loop() {
		a.Allow(4711, 0, 1)
		a.Revoke(4711, 0)
	}
}

// BenchmarkLaunches is the broker's cost of a launch, with a process that waits for every 500th.
func BenchmarkLaunches(b *testing.B) {
	broker := start(b, 1, Options{})
	d := attach(b, broker.Socket(), "a")
	me, s := d.enter(), d.context(b, 0).null()
	for i := 0; b.Loop(); i++ {
		n := s.launch(time.Nanosecond)
		if i%500 == 0 {
			s.wait(me, n)
		}
	}
}
