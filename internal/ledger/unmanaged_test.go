package ledger

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// unmanaged is a GPU without a ledger: who comes first takes, and who finds nothing fails, or with queue, waits for it
// while holding what it has.
type unmanaged struct {
	queue    bool
	terms    map[int]Terms
	idle     unit.Bytes
	live     map[[2]uint64]unit.Bytes
	reserved unit.Bytes
	waiting  []int
	wants    map[int]unit.Bytes
}

func newUnmanaged(queue bool) *unmanaged {
	return &unmanaged{queue: queue, idle: testUsable, terms: map[int]Terms{}, live: map[[2]uint64]unit.Bytes{}, wants: map[int]unit.Bytes{}}
}

// open keeps C1' where there is a queue, so that what is seen is the queue's own fault.
func (m *unmanaged) open(job int, t Terms) bool {
	peak := t.Peak
	for _, o := range m.terms {
		peak = max(peak, o.Peak)
	}
	if m.queue && (m.reserved+t.Reserved+peak > testUsable || t.Reserved > m.idle) {
		return false
	}
	m.terms[job] = t
	m.reserved += t.Reserved
	m.idle -= t.Reserved
	return true
}

func (m *unmanaged) alloc(job int, p step) Outcome {
	if p.bytes > m.idle {
		if !m.queue {
			return OutOfMemory
		}
		m.waiting = append(m.waiting, job)
		m.wants[job] = p.bytes
		return Waits
	}
	m.idle -= p.bytes
	m.live[[2]uint64{uint64(job), p.handle}] = p.bytes
	return Granted
}

func (m *unmanaged) free(job int, h uint64) {
	m.idle += m.live[[2]uint64{uint64(job), h}]
	delete(m.live, [2]uint64{uint64(job), h})
}

func (m *unmanaged) yield(int) {}

func (m *unmanaged) close(job int) {
	m.idle += m.terms[job].Reserved
	m.reserved -= m.terms[job].Reserved
	delete(m.terms, job)
}

func (m *unmanaged) resumed() (jobs []int) {
	jobs = m.waiting
	m.waiting = nil
	return slices.DeleteFunc(jobs, func(j int) bool {
		if m.wants[j] <= m.idle {
			return false
		}
		m.waiting = append(m.waiting, j)
		return true
	})
}
