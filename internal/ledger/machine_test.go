package ledger

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// machine drives a ledger with arbitrary calls, also wrong ones, and holds it to its laws after each.
type machine struct {
	l       *Ledger
	now     unit.Time
	request uint64
	waits   map[pending]unit.Time
	highest map[AccountID]unit.Bytes
}

type pending struct {
	account AccountID
	request Request
}

const testUsable = 1024 * unit.MiB

func (m *machine) tick(t *rapid.T) unit.Time {
	m.now = m.now.Add(time.Duration(rapid.IntRange(-3, 20).Draw(t, "step")))
	return m.now
}

func drawAccount(t *rapid.T) AccountID { return AccountID(rapid.IntRange(0, 5).Draw(t, "account")) }

func drawHandle(t *rapid.T) Handle {
	return Handle{Process(rapid.IntRange(0, 2).Draw(t, "process")), uint64(rapid.IntRange(0, 6).Draw(t, "handle"))}
}

func drawBytes(t *rapid.T) unit.Bytes {
	return rapid.OneOf(rapid.Map(rapid.IntRange(-1, 250), func(n int) unit.Bytes { return unit.Bytes(n) * unit.MiB }),
		rapid.SampledFrom([]unit.Bytes{1, unit.MiB - 1, 1<<63 - 1, -1 << 63})).Draw(t, "bytes")
}

func (m *machine) Open(t *rapid.T) {
	terms := Terms{drawBytes(t), drawBytes(t), Class(rapid.IntRange(0, 2).Draw(t, "class")), rapid.IntRange(0, 5).Draw(t, "cooperates") > 0}
	id := drawAccount(t)
	if m.l.Open(m.tick(t), id, terms).Outcome == Waits {
		m.waits[pending{id, Request{}}] = m.l.now
	}
}

func (m *machine) Close(t *rapid.T) {
	id := drawAccount(t)
	m.l.Close(m.tick(t), id)
	for p := range m.waits {
		if p.account == id {
			delete(m.waits, p)
		}
	}
}

func (m *machine) Reserve(t *rapid.T) { m.reserve(t, drawAccount(t), drawBytes(t)) }

// reserve asks for room. A grant, now or later, leaves every account able to reach its boundary that was: also where some
// keep memory across theirs.
func (m *machine) reserve(t *rapid.T, id AccountID, bytes unit.Bytes) Outcome {
	m.request++
	r, stuck := Request{Process(rapid.IntRange(0, 2).Draw(t, "process")), m.request}, m.l.Stuck()
	got := m.l.Reserve(m.tick(t), id, r, bytes)
	if got.Outcome == Waits {
		m.waits[pending{id, r}] = m.l.now
	}
	for _, s := range m.l.Stuck() {
		if !slices.Contains(stuck, s) {
			t.Fatalf("%+v, and %d is stuck", got, s)
		}
	}
	return got.Outcome
}

// Use reserves and allocates the same.
func (m *machine) Use(t *rapid.T) {
	id, bytes := drawAccount(t), drawBytes(t)
	if m.reserve(t, id, bytes) != Granted {
		return
	}
	if got := m.l.Alloc(m.tick(t), id, drawHandle(t), bytes, Device); got.Outcome != Granted && got.Outcome != Duplicate {
		t.Fatalf("reserved, and then %+v", got)
	}
}

func (m *machine) Alloc(t *rapid.T) {
	id, bytes := drawAccount(t), drawBytes(t)
	before, _ := m.l.View(id)
	family := Family(rapid.IntRange(0, int(families)).Draw(t, "family"))
	got := m.l.Alloc(m.tick(t), id, drawHandle(t), bytes, family)
	if got.Outcome == OutOfMemory && family != Host && bytes <= before.Free {
		t.Fatalf("%d bytes refused and %d are free", bytes, before.Free)
	}
}

func (m *machine) Free(t *rapid.T)   { m.l.Free(m.tick(t), drawAccount(t), drawHandle(t)) }
func (m *machine) Return(t *rapid.T) { m.l.Return(m.tick(t), drawAccount(t), drawBytes(t)) }
func (m *machine) Yield(t *rapid.T)  { m.l.Yield(m.tick(t), drawAccount(t)) }

func (m *machine) Import(t *rapid.T) {
	m.l.Import(drawAccount(t), drawHandle(t), drawAccount(t), drawHandle(t))
}

func (m *machine) Exit(t *rapid.T) {
	id, p := drawAccount(t), Process(rapid.IntRange(0, 2).Draw(t, "process"))
	if m.l.Exit(m.tick(t), id, p).Outcome != Granted {
		return
	}
	for w := range m.waits {
		if w.account == id && w.request != (Request{}) && w.request.Process == p {
			delete(m.waits, w)
		}
	}
}

// Restart writes the ledger out and goes on with what is read back.
func (m *machine) Restart(t *rapid.T) {
	before := m.l.State()
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var read State
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	l, err := Restore(read)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(before, l.State()); diff != "" {
		t.Fatal(diff)
	}
	m.l = l
}

func (m *machine) Check(t *rapid.T) {
	for _, d := range m.l.Ready() {
		p := pending{d.Account, d.Request}
		since, waits := m.waits[p]
		if !waits || d.Stalled != m.l.now.Sub(since) {
			t.Fatalf("decision %+v, asked at %d", d, since)
		}
		delete(m.waits, p)
	}
	if len(m.waits) != len(m.l.queue) {
		t.Fatalf("%d requests wait, and %d have no decision", len(m.l.queue), len(m.waits))
	}
	if err := m.l.Audit(); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(m.l.queue, inOrder) || m.l.next() >= 0 {
		t.Fatalf("out of order, or a wait that could end: %+v", m.l.State())
	}
	m.live(t)
	for id := range m.highest {
		if _, ok := m.l.View(id); !ok {
			delete(m.highest, id)
		}
	}
	for _, a := range m.l.order {
		v, ok := m.l.View(a.id)
		if ok {
			m.highest[a.id] = max(m.highest[a.id], v.Used)
		}
		if v.Highest != m.highest[a.id] {
			t.Fatalf("account %d used at most %d and says %d", a.id, m.highest[a.id], v.Highest)
		}
		if ok && (v.Free < 0 || v.Free > v.Total || v.Total != v.Free+v.Used || v.Total > testUsable) {
			t.Fatalf("account %d sees %+v", a.id, v)
		}
	}
}

// TestLaws runs as many sequences as 20 properties do, half of the time from four open accounts on.
func TestLaws(t *testing.T) {
	for i := range 20 {
		rapid.Check(t, func(t *rapid.T) {
			m := &machine{l: New(testUsable, 0), waits: map[pending]unit.Time{}, highest: map[AccountID]unit.Bytes{}}
			for id := AccountID(1); i%2 == 0 && id <= 4; id++ {
				m.l.Open(0, id, Terms{Reserved: 50 * mib, Peak: unit.Bytes(id) * 200 * mib, Class: Class(id % 3), Cooperates: true})
			}
			t.Repeat(rapid.StateMachineActions(m))
		})
	}
}
