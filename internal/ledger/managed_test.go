package ledger

import (
	"testing"

	"weft.dev/weft/internal/unit"
)

// managed is a ledger as memory.
type managed struct {
	t      *testing.T
	l      *Ledger
	number uint64
}

func (m *managed) open(job int, t Terms) bool {
	if m.l.accounts[AccountID(job+1)] != nil {
		return false // waits to be opened
	}
	if m.l.Open(0, AccountID(job+1), t).Outcome != Granted {
		return false
	}
	m.persist(job, t.Reserved)
	return true
}

// persist fills the reserved part of a job that was opened.
func (m *managed) persist(job int, bytes unit.Bytes) {
	if got := m.l.Alloc(0, AccountID(job+1), Handle{0, 0}, bytes, Device); got.Outcome != Granted {
		m.t.Fatalf("the reserved part: %+v", got)
	}
}

func (m *managed) alloc(job int, p step) Outcome {
	id := AccountID(job + 1)
	m.number++
	if got := m.l.Reserve(0, id, Request{1, m.number}, p.bytes); got.Outcome != Granted {
		return got.Outcome
	}
	if got := m.l.Alloc(0, id, Handle{1, p.handle}, p.bytes, Device); got.Outcome != Granted {
		m.t.Fatalf("reserved and then %+v", got)
	}
	pool, free := m.l.Pool()
	if free < 0 || pool > testUsable {
		m.t.Fatalf("%d free of a pool of %d", free, pool)
	}
	return Granted
}

func (m *managed) free(job int, h uint64) {
	if got := m.l.Free(0, AccountID(job+1), Handle{1, h}); got.Outcome != Granted {
		m.t.Fatalf("freed: %+v", got)
	}
}

func (m *managed) yield(job int) {
	if got := m.l.Yield(0, AccountID(job+1)); got.Outcome != Granted {
		m.t.Fatalf("yielded: %+v", got)
	}
}

func (m *managed) close(job int) { m.l.Close(0, AccountID(job+1)) }

func (m *managed) resumed() (jobs []int) {
	for _, d := range m.l.Ready() {
		if d.Outcome != Granted {
			m.t.Fatalf("a wait ended with %+v", d)
		}
		jobs = append(jobs, int(d.Account)-1)
		if d.Request == (Request{}) {
			m.persist(int(d.Account)-1, d.Bytes)
		}
	}
	return jobs
}
