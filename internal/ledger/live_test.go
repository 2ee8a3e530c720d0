package ledger

import (
	"slices"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// live: where no account keeps memory across boundaries, the state is safe, and if anybody waits, an account inside an
// iteration does not. Safety is checked against all orders, not by sorting.
func (m *machine) live(t *rapid.T) {
	var inside []*account
	idle := len(m.l.queue) == 0
	for _, a := range m.l.order {
		if a.kept > 0 {
			return
		}
		if a.inside() {
			inside = append(inside, a)
			idle = idle || a.requests == 0
		}
	}
	if stuck := m.l.Stuck(); stuck != nil {
		t.Fatalf("stuck: %v", stuck)
	}
	if !finishes(inside, m.l.free) {
		t.Fatalf("unsafe: %+v", m.l.State())
	}
	if !idle {
		t.Fatalf("nobody can go on: %+v", m.l.State())
	}
}

func finishes(inside []*account, free unit.Bytes) bool {
	for i, a := range inside {
		if a.terms.Peak-a.held <= free {
			rest := append(slices.Clone(inside[:i]), inside[i+1:]...)
			if finishes(rest, free+a.held) {
				return true
			}
		}
	}
	return len(inside) == 0
}
