package ledger

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// TestServedInOrder: those who begin an iteration are served by class, and within one by arrival, whatever they ask.
func TestServedInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 1000 * mib
		l := New(size, 0)
		l.Open(0, 99, Terms{Peak: size, Cooperates: true})
		l.Reserve(0, 99, Request{1, 1}, size)
		n := rapid.IntRange(2, 8).Draw(t, "accounts")
		var want []AccountID
		class := map[AccountID]Class{}
		for id := range AccountID(n) {
			id++
			class[id] = Class(rapid.IntRange(0, 2).Draw(t, "class"))
			l.Open(0, id, Terms{Peak: size * unit.Bytes(rapid.IntRange(1, 10).Draw(t, "tenths")) / 10, Cooperates: true, Class: class[id]})
			want = append(want, id)
		}
		want = rapid.Permutation(want).Draw(t, "arrivals")
		for i, id := range want {
			if got := l.Reserve(unit.Time(i), id, Request{1, 1}, 1+unit.Bytes(rapid.IntRange(0, 99).Draw(t, "MiB"))*mib); got.Outcome != Waits {
				t.Fatalf("%+v", got)
			}
		}
		slices.SortStableFunc(want, func(a, b AccountID) int { return cmp.Compare(class[a], class[b]) })
		var got []AccountID
		for next := []AccountID{99}; len(next) > 0; next = next[1:] {
			l.Yield(100, next[0])
			for _, d := range l.Ready() {
				got, next = append(got, d.Account), append(next, d.Account)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestInsideFirst: while an account inside its iteration waits, nobody begins one, of a higher class or with a small wish,
// though there is memory for it.
func TestInsideFirst(t *testing.T) {
	l := New(1024*mib, 0)
	for id, peak := range []unit.Bytes{512 * mib, 768 * mib, 128 * mib, 1024 * mib, 32 * mib} {
		l.Open(0, AccountID(id+1), Terms{Peak: peak, Cooperates: true, Class: Class(2 - id/2)})
	}
	l.Reserve(0, 1, Request{1, 1}, 512*mib)
	l.Reserve(0, 2, Request{1, 1}, 256*mib)
	for _, c := range []struct {
		id    AccountID
		bytes unit.Bytes
	}{{2, 768 * mib}, {3, 64 * mib}, {4, 1024 * mib}, {5, 32 * mib}} {
		if got := l.Reserve(1, c.id, Request{1, 2}, c.bytes); got.Outcome != Waits {
			t.Fatalf("%d: %+v", c.id, got)
		}
	}
	for _, c := range []struct {
		yields AccountID
		want   []AccountID
	}{{1, []AccountID{2, 5, 3}}, {2, nil}, {3, nil}, {5, []AccountID{4}}} {
		l.Yield(2, c.yields)
		var got []AccountID
		for _, d := range l.Ready() {
			got = append(got, d.Account)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("when %d yields, %v go on, want %v", c.yields, got, c.want)
		}
	}
}

// TestFreeEndsOwnWait: what one thread frees serves another of its account at once, without the pool.
func TestFreeEndsOwnWait(t *testing.T) {
	l := two(t)
	l.Alloc(0, 2, Handle{1, 1}, 60*mib, Device)
	if got := l.Reserve(1, 2, Request{1, 1}, 60*mib); got.Outcome != Waits {
		t.Fatalf("%+v", got)
	}
	l.Free(3, 2, Handle{1, 1})
	if got := l.Ready(); !slices.Equal(got, []Decision{{2, Request{1, 1}, Granted, 0, 2}}) {
		t.Errorf("%+v", got)
	}
	// And what one takes meanwhile can leave another beyond the account's limit.
	l.Reserve(4, 2, Request{1, 2}, 850*mib)
	l.Alloc(5, 2, Handle{1, 2}, 60*mib, Device)
	if got := l.Ready(); !slices.Equal(got, []Decision{{2, Request{1, 2}, OutOfMemory, 0, 1}}) {
		t.Errorf("%+v", got)
	}
}
