package ledger

import (
	"testing"

	"weft.dev/weft/internal/unit"
)

// full opens n accounts beside a pool of 8 of their peaks, and fills their reserved parts.
func full(b *testing.B, n int) *Ledger {
	b.Helper()
	l := New(unit.Bytes(n)*unit.GiB+8*unit.GiB, 0)
	for i := range n {
		id := AccountID(i + 1)
		if got := l.Open(0, id, Terms{Reserved: unit.GiB, Peak: unit.GiB, Cooperates: true}); got.Outcome != Granted {
			b.Fatal(got)
		}
		l.Alloc(0, id, Handle{}, unit.GiB, Device)
	}
	return l
}

// BenchmarkCharge is one allocation and its free in an account with 200,000 others.
func BenchmarkCharge(b *testing.B) {
	l := New(unit.TiB, 0)
	l.Open(0, 1, Terms{Reserved: unit.TiB})
	for i := range 200_000 {
		l.Alloc(0, 1, Handle{1, uint64(i)}, 1*mib, Device)
	}
	for b.Loop() {
		l.Alloc(0, 1, Handle{2, 1}, 2*mib, Device)
		l.Free(0, 1, Handle{2, 1})
	}
}

// BenchmarkIteration is an iteration without waiting: a reserve, an allocation, a free and a yield, by n accounts in turn.
func BenchmarkIteration(b *testing.B) {
	for name, n := range map[string]int{"4": 4, "300": 300} {
		b.Run(name, func(b *testing.B) {
			l := full(b, n)
			for i := 0; b.Loop(); i++ {
				id := AccountID(i%n + 1)
				l.Reserve(0, id, Request{1, 1}, unit.GiB)
				l.Alloc(0, id, Handle{1, 1}, unit.GiB, Device)
				l.Free(0, id, Handle{1, 1})
				l.Yield(0, id)
			}
		})
	}
}

// BenchmarkHandover is a boundary with waiters: n accounts take turns at a pool of which each needs all.
func BenchmarkHandover(b *testing.B) {
	for name, n := range map[string]int{"4": 4, "300": 300} {
		b.Run(name, func(b *testing.B) {
			l := New(unit.Bytes(n)*mib+unit.GiB, 0)
			for i := range n {
				l.Open(0, AccountID(i+1), Terms{Reserved: mib, Peak: unit.GiB, Cooperates: true})
				l.Reserve(0, AccountID(i+1), Request{1, 1}, unit.GiB)
			}
			holder := AccountID(1)
			for b.Loop() {
				l.Yield(0, holder)
				l.Reserve(0, holder, Request{1, 1}, unit.GiB)
				holder = l.Ready()[0].Account
			}
		})
	}
}
