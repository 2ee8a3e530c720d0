package ledger

import (
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

func TestOpenRefusesWithNumbers(t *testing.T) {
	l := New(1000, 0)
	for i, c := range []struct {
		id    AccountID
		terms Terms
		want  Answer
	}{
		{1, Terms{}, Answer{Outcome: Invalid}},
		{0, Terms{Reserved: 1}, Answer{Outcome: Invalid}},
		{1, Terms{Reserved: -1, Peak: 1}, Answer{Outcome: Invalid}},
		{1, Terms{Reserved: 1001, Cooperates: true}, Answer{OverReserved, 1001, 1000}},
		{1, Terms{Reserved: 500, Peak: 501}, Answer{OverReserved, 1001, 1000}}, // does not cooperate: counted at its peak
		{1, Terms{Reserved: 500, Peak: 501, Cooperates: true}, Answer{OverPeak, 1001, 1000}},
		{1, Terms{Reserved: 1 << 62, Peak: 1 << 62}, Answer{OverReserved, 1<<63 - 1, 1000}},
		{1, Terms{Reserved: 300, Peak: 600, Cooperates: true}, Answer{Granted, 300, 1000}},
		{1, Terms{Reserved: 1}, Answer{Outcome: Duplicate}},
		{2, Terms{Reserved: 101, Peak: 1, Cooperates: true}, Answer{OverPeak, 1001, 1000}}, // 1 could not reach its peak
		{2, Terms{Reserved: 100, Peak: 600, Cooperates: true}, Answer{Granted, 100, 700}},
		{3, Terms{Peak: 600, Cooperates: true}, Answer{Granted, 0, 600}},
		{4, Terms{Reserved: 601}, Answer{OverReserved, 1001, 1000}},
	} {
		if got := l.Open(0, c.id, c.terms); got != c.want {
			t.Errorf("%d: %+v, want %+v", i, got, c.want)
		}
	}
}

// two opens two accounts of 100 MiB each that may each use the whole pool of 800 MiB; the first uses 700 of it.
func two(t *testing.T) *Ledger {
	t.Helper()
	l := New(1000*mib, 0)
	for id := AccountID(1); id <= 2; id++ {
		if got := l.Open(0, id, Terms{Reserved: 100 * mib, Peak: 800 * mib, Cooperates: true}); got.Outcome != Granted {
			t.Fatalf("%+v", got)
		}
	}
	if got := l.Reserve(0, 1, Request{1, 1}, 800*mib); got.Outcome != Granted || got.Need != 704*mib {
		t.Fatalf("%+v", got)
	}
	if got := l.Alloc(0, 1, Handle{1, 1}, 800*mib, Device); got.Outcome != Granted {
		t.Fatalf("%+v", got)
	}
	return l
}

// TestWaiterContinues: a requester beyond the pool waits, is charged for it as stalled once however many of its threads
// wait, and goes on when the pool is handed over.
func TestWaiterContinues(t *testing.T) {
	l := two(t)
	for n := range uint64(2) {
		if got := l.Reserve(10, 2, Request{1, n + 1}, 400*mib); got.Outcome != Waits {
			t.Fatalf("%+v", got)
		}
	}
	if got := l.Reserve(10, 2, Request{1, 3}, 901*mib); got.Outcome != OutOfMemory || got.Need != 901*mib || got.Limit != 900*mib {
		t.Errorf("beyond its own peak: %+v", got)
	}
	if got := l.Alloc(15, 2, Handle{1, 1}, 101*mib, Device); got.Outcome != Short {
		t.Errorf("without room: %+v", got)
	}
	if late := l.Overdue(20, 15); !slices.Equal(late, []AccountID{1}) {
		t.Errorf("overdue: %v", late)
	}
	if stall := l.Stall(25, 2); stall != 15 {
		t.Errorf("stalls %d", stall)
	}
	l.Free(30, 1, Handle{1, 1})
	if got := l.Ready(); len(got) != 0 {
		t.Errorf("before the boundary: %+v", got)
	}
	l.Yield(40, 1)
	want := []Decision{{2, Request{1, 1}, Granted, 320 * mib, 30}, {2, Request{1, 2}, Granted, 0, 30}}
	if got := l.Ready(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if stall := l.Stall(99, 2); stall != 30 || l.Stall(99, 1) != 0 {
		t.Errorf("stalled %d and %d", stall, l.Stall(99, 1))
	}
	if got := l.Return(99, 2, unit.TiB); got.Need != 320*mib {
		t.Errorf("returned %+v", got)
	}
}

// TestKept: who keeps undeclared memory across its boundary is told, goes on itself, and stalls others no longer than that.
func TestKept(t *testing.T) {
	l := two(t)
	l.Reserve(10, 2, Request{1, 1}, 200*mib)
	if got := l.Yield(20, 1); got != (Answer{Kept, 800 * mib, 100 * mib}) {
		t.Fatalf("%+v", got)
	}
	if got := l.Reserve(30, 1, Request{1, 2}, 60*mib); got.Outcome != Granted {
		t.Errorf("the keeper itself: %+v", got)
	}
	l.Free(40, 1, Handle{1, 1})
	l.Yield(40, 1)
	if got := l.Ready(); len(got) != 1 || got[0].Outcome != Granted || got[0].Stalled != 30 {
		t.Errorf("%+v", got)
	}
}

// TestStuck: memory that an account keeps undeclared can block another inside its iteration. Nothing is taken from
// either; it is said, and it is over when one closes.
func TestStuck(t *testing.T) {
	l := New(800*mib, 0)
	take := func(id AccountID, n uint64, bytes unit.Bytes) {
		t.Helper()
		if got := l.Reserve(0, id, Request{1, n}, bytes); got.Outcome != Granted || l.Stuck() != nil {
			t.Fatalf("%+v, stuck %v", got, l.Stuck())
		}
		l.Alloc(0, id, Handle{1, n}, bytes, Device)
	}
	for id := AccountID(1); id <= 2; id++ {
		l.Open(0, id, Terms{Peak: 512 * mib, Cooperates: true})
		take(id, 1, 288*mib)
	}
	take(1, 2, 224*mib)
	l.Yield(0, 1)
	if got := l.Reserve(0, 2, Request{1, 2}, 224*mib); got.Outcome != Waits || !slices.Equal(l.Stuck(), []AccountID{2}) {
		t.Errorf("%+v, stuck %v", got, l.Stuck())
	}
	l.Close(1, 1)
	if got := l.Ready(); len(got) != 1 || got[0].Outcome != Granted || l.Stuck() != nil {
		t.Errorf("%+v, stuck %v", got, l.Stuck())
	}
}

// TestOpenWaitsForBoundary: an account that fits, but whose reserved part others use now, waits for them alone.
func TestOpenWaitsForBoundary(t *testing.T) {
	l := New(1024*mib, 0)
	for id := AccountID(1); id <= 3; id++ {
		l.Open(0, id, Terms{Peak: 608 * mib, Cooperates: true, Class: Guaranteed})
	}
	l.Reserve(0, 1, Request{1, 1}, 512*mib)
	l.Reserve(0, 2, Request{1, 1}, 320*mib)
	if got := l.Reserve(1, 3, Request{1, 1}, 320*mib); got.Outcome != Waits {
		t.Fatalf("%+v", got)
	}
	if got := l.Open(2, 4, Terms{Reserved: 400 * mib, Class: BestEffort}); got.Outcome != Waits {
		t.Fatalf("%+v", got)
	}
	if got := l.Alloc(2, 4, Handle{1, 1}, mib, Device); got.Outcome != Unknown {
		t.Errorf("before it is open: %+v", got)
	}
	if got := l.Open(2, 5, Terms{Reserved: 17 * mib}); got != (Answer{OverPeak, 1025 * mib, 1024 * mib}) {
		t.Errorf("beside one that waits to be opened: %+v", got)
	}
	l.Yield(3, 1)
	want := []Decision{{4, Request{}, Granted, 400 * mib, 1}}
	if got := l.Ready(); !slices.Equal(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	l.Yield(4, 2)
	want = []Decision{{3, Request{1, 1}, Granted, 320 * mib, 3}}
	if got := l.Ready(); !slices.Equal(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

// TestExit: what a dead process had is free, its requests are forgotten, and those of others go on.
func TestExit(t *testing.T) {
	l := two(t)
	l.Reserve(1, 2, Request{1, 1}, 200*mib)
	l.Reserve(1, 2, Request{2, 1}, 300*mib)
	l.Exit(2, 2, 1)
	if got := l.Exit(3, 1, 1); got.Need != 800*mib {
		t.Fatalf("%+v", got)
	}
	want := []Decision{{2, Request{2, 1}, Granted, 224 * mib, 2 * time.Nanosecond}}
	if got := l.Ready(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
