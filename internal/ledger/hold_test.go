package ledger

import (
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

func TestHold(t *testing.T) {
	l := New(10*unit.GiB, 0)
	l.Open(0, 1, Terms{Reserved: 2 * unit.GiB, Peak: 4 * unit.GiB, Cooperates: true})
	l.Open(0, 2, Terms{Reserved: 2 * unit.GiB, Peak: 4 * unit.GiB, Cooperates: true})
	h := func(n uint64) Handle { return Handle{Process: 1, Number: n} }
	for _, c := range []struct {
		account AccountID
		number  uint64
		bytes   unit.Bytes
		want    Answer
	}{
		{1, 1, 3 * unit.GiB, Answer{Granted, 0, 6 * unit.GiB}},
		{1, 1, unit.GiB, Answer{Outcome: Duplicate}},
		{1, 2, 9 * unit.GiB, Answer{Short, 6 * unit.GiB, 6 * unit.GiB}}, // to the limit
		{2, 1, 6 * unit.GiB, Answer{Short, 2 * unit.GiB, 6 * unit.GiB}}, // until the pool is empty
		{2, 2, unit.GiB, Answer{Short, unit.GiB, 6 * unit.GiB}},         // nothing at all
		{3, 1, unit.GiB, Answer{Outcome: Unknown}},
		{1, 9, 0, Answer{Outcome: Invalid}},
	} {
		if got := l.Hold(0, c.account, h(c.number), c.bytes, Device); got != c.want {
			t.Errorf("account %d, %v: %+v, want %+v", c.account, c.bytes, got, c.want)
		}
		if err := l.Audit(); err != nil {
			t.Fatal(err)
		}
	}
	for id, used := range map[AccountID]unit.Bytes{1: 6 * unit.GiB, 2: 4 * unit.GiB} {
		if v, _ := l.View(id); v.Used != used {
			t.Errorf("account %d uses %v, want %v", id, v.Used, used)
		}
	}
	l.Exit(0, 1, 1)
	l.Exit(0, 2, 1)
	if size, free := l.Pool(); free != size {
		t.Errorf("%v of %v free after both left", free, size)
	}
}

// TestCooperate holds the laws of the ledger when accounts begin to cooperate with any memory in use.
func TestCooperate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New(16*unit.GiB, 0)
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 4096), 8, 8).Draw(t, "MiB")
		mib := func(i int) unit.Bytes { return unit.Bytes(sizes[i]) * unit.MiB }
		l.Open(0, 1, Terms{Reserved: mib(0), Peak: mib(1)})
		l.Open(0, 2, Terms{Reserved: mib(2), Peak: mib(3), Cooperates: true})
		for id := AccountID(1); id <= 2; id++ {
			if l.Reserve(0, id, Request{1, 1}, mib(3+int(id))).Outcome == Granted {
				l.Alloc(0, id, Handle{1, 1}, mib(3+int(id)), Device)
			}
		}
		before, _ := l.View(1)
		got := l.Cooperate(0, 1, mib(0))
		after, open := l.View(1)
		if open && got.Outcome != Granted || before.Total != after.Total || before.Used != after.Used {
			t.Fatalf("%+v: %+v, before %+v", got, after, before)
		}
		if open && l.Cooperate(0, 1, 0).Outcome != Invalid {
			t.Fatal("it began to cooperate twice")
		}
		if err := l.Audit(); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(l.State()); err != nil {
			t.Fatal(err)
		}
		l.Yield(1, 1)
		l.Exit(1, 1, 1)
		if err := l.Audit(); err != nil {
			t.Fatal(err)
		}
	})
}
