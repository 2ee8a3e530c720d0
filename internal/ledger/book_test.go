package ledger

import (
	"math/rand/v2"
	"testing"

	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/unit"
)

// TestB02MixedFrees: after 200,000 allocations and frees of all families, also of unknown handles and twice, nothing has
// drifted, what is free was never above the total, host memory was not charged, and the limit is met to the byte.
func TestB02MixedFrees(t *testing.T) {
	shared.Case(t, "B02/CASE.md")
	const operations = 200_000
	rng := rand.New(rand.NewPCG(2, 2))
	l := New(8*unit.GiB, 0)
	l.Open(0, 1, Terms{Reserved: 3 * unit.GiB, Peak: 1 * unit.GiB})
	type entry struct {
		bytes unit.Bytes
		host  bool
	}
	live := map[Handle]entry{}
	var used, highest unit.Bytes
	refused := 0
	for i := range operations {
		h := Handle{Process(rng.IntN(4)), uint64(rng.IntN(400))}
		if rng.IntN(2) == 0 {
			f, bytes := Family(rng.IntN(int(families))), 1+unit.Bytes(rng.Int64N(int64(30*unit.MiB)))
			_, taken := live[h]
			over := f != Host && used+bytes > 4*unit.GiB
			want := Granted
			switch {
			case taken:
				want = Duplicate
			case over:
				want, refused = OutOfMemory, refused+1
			default:
				live[h] = entry{bytes, f == Host}
				if f != Host {
					used += bytes
				}
			}
			if got := l.Alloc(0, 1, h, bytes, f); got.Outcome != want || want == OutOfMemory && got.Outcome.Code() != 2 {
				t.Fatalf("operation %d: %+v, want %v", i, got, want)
			}
		} else {
			e, known := live[h]
			delete(live, h)
			if known && !e.host {
				used -= e.bytes
			}
			if got := l.Free(0, 1, h); known != (got.Outcome == Granted) || got.Outcome == Granted && got.Need != e.bytes {
				t.Fatalf("operation %d: %+v of %+v", i, got, e)
			}
		}
		highest = max(highest, used)
		if v, _ := l.View(1); v.Used != used || v.Highest != highest || v.Free != 4*unit.GiB-used || v.Total != 4*unit.GiB {
			t.Fatalf("operation %d: %+v, want %d used", i, v, used)
		}
	}
	if err := l.Audit(); err != nil || refused == 0 || len(live) == 0 {
		t.Fatalf("%v; %d at the limit, %d live", err, refused, len(live))
	}
	for h := range live {
		l.Free(0, 1, h)
		if got := l.Free(0, 1, h); got.Outcome != Unknown || got.Outcome.Code() != 1 {
			t.Fatalf("freed twice: %+v", got)
		}
	}
	if v, _ := l.View(1); v != (View{Total: 4 * unit.GiB, Free: 4 * unit.GiB, Highest: highest}) {
		t.Fatalf("drift: %+v", v)
	}
	if got := l.Alloc(0, 1, Handle{1, 1}, 4*unit.GiB+1, Device); got.Outcome != OutOfMemory {
		t.Errorf("a byte beyond the limit: %+v", got)
	}
	if got := l.Alloc(0, 1, Handle{1, 1}, 4*unit.GiB, Device); got.Outcome != Granted {
		t.Errorf("exactly the limit: %+v", got)
	}
}

// TestImportedOnce: imported memory is charged to its exporter alone until its last name is freed, or the exporter closes.
func TestImportedOnce(t *testing.T) {
	l := New(1024*mib, 0)
	for id := AccountID(1); id <= 2; id++ {
		l.Open(0, id, Terms{Reserved: 512 * mib})
	}
	used := func(one, two unit.Bytes) {
		t.Helper()
		a, _ := l.View(1)
		b, _ := l.View(2)
		if err := l.Audit(); err != nil || a.Used != one || b.Used != two {
			t.Fatalf("%d and %d, want %d and %d: %v", a.Used, b.Used, one, two, err)
		}
	}
	l.Alloc(0, 1, Handle{1, 1}, 100*mib, Virtual)
	l.Import(2, Handle{7, 1}, 1, Handle{1, 1})
	l.Import(1, Handle{2, 1}, 2, Handle{7, 1}) // an import passed on
	used(100*mib, 0)
	l.Free(0, 1, Handle{1, 1})
	l.Exit(0, 1, 2)
	used(100*mib, 0)
	if got := l.Free(0, 2, Handle{7, 1}); got.Need != 100*mib {
		t.Fatalf("last name: %+v", got)
	}
	used(0, 0)
	l.Alloc(0, 1, Handle{1, 1}, 100*mib, Virtual)
	l.Import(2, Handle{7, 1}, 1, Handle{1, 1})
	l.Close(0, 1)
	if got := l.Import(2, Handle{7, 2}, 2, Handle{7, 1}); got.Outcome != Unknown {
		t.Errorf("memory of a closed account: %+v", got)
	}
	if got := l.Free(0, 2, Handle{7, 1}); got.Outcome != Granted || got.Need != 0 {
		t.Errorf("freed after its exporter: %+v", got)
	}
	if _, free := l.Pool(); free != 512*mib {
		t.Errorf("%d free", free)
	}
}

// TestRestoreRefuses: a state that was tampered with, or is of another version, is refused.
func TestRestoreRefuses(t *testing.T) {
	l := New(1024*mib, 0)
	l.Open(0, 1, Terms{Reserved: 100 * mib, Peak: 800 * mib, Cooperates: true})
	l.Reserve(0, 1, Request{1, 1}, 200*mib)
	l.Alloc(0, 1, Handle{1, 1}, 150*mib, Device)
	l.Open(0, 2, Terms{Reserved: 100 * mib, Peak: 10 * mib, Cooperates: true})
	if _, err := Restore(l.State()); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*State){
		"version":       func(s *State) { s.Version++ },
		"usable":        func(s *State) { s.Usable = 999 * mib },
		"held":          func(s *State) { s.Accounts[0].Held = 0 },
		"held negative": func(s *State) { s.Accounts[0].Held = -1 },
		"kept":          func(s *State) { s.Accounts[0].Kept = 51 * mib },
		"reserved":      func(s *State) { s.Accounts[0].Terms.Reserved = 1 << 62 },
		"twice":         func(s *State) { s.Accounts = append(s.Accounts, s.Accounts[0]) },
		"charge":        func(s *State) { s.Charges[0].Bytes = 1 << 62 },
		"owner":         func(s *State) { s.Charges[0].Owner = 9 },
		"family":        func(s *State) { s.Charges[0].Family = families },
		"name":          func(s *State) { s.Charges[0].Names = nil },
		"name twice":    func(s *State) { s.Charges = append(s.Charges, s.Charges[0]) },
		"waits":         func(s *State) { s.Queue = []WaitState{{Account: 9, Bytes: 1}} },
		"opens":         func(s *State) { s.Queue = []WaitState{{Account: 1, Bytes: 1, Opens: true}} },
		"not open":      func(s *State) { s.Accounts[1].Opened = false },
	} {
		s := l.State()
		change(&s)
		if _, err := Restore(s); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
