package ledger

import (
	"fmt"

	"weft.dev/weft/internal/unit"
)

// Audit recomputes all books from their entries and says where they differ. It finds nothing unless the ledger or a
// restored state is wrong. O(all handles).
func (l *Ledger) Audit() error {
	var committed, taken unit.Bytes
	charges := map[*charge]int{}
	used := map[*account]*[families]unit.Bytes{}
	requests := map[*account]int{}
	for _, a := range l.order {
		committed += a.terms.Reserved
		used[a] = &[families]unit.Bytes{}
		if a.opened {
			taken += a.terms.Reserved + a.held
		}
		for _, c := range a.handles {
			charges[c]++
		}
	}
	for c, handles := range charges {
		if c.handles != handles {
			return fmt.Errorf("%d bytes have %d handles, and %d are counted", c.bytes, handles, c.handles)
		}
		if c.owner != nil {
			used[c.owner][c.family] += c.bytes
		}
	}
	for _, w := range l.queue {
		requests[w.account]++
	}
	if l.free < 0 || taken+l.free != l.usable || committed != l.committed || committed > l.usable {
		return fmt.Errorf("%d bytes free and %d taken (%d reserved) of %d", l.free, taken, committed, l.usable)
	}
	for _, a := range l.order {
		if err := a.audit(used[a], requests[a]); err != nil {
			return fmt.Errorf("account %d: %w", a.id, err)
		}
	}
	return nil
}

// audit compares the sums of an account with those of its entries.
func (a *account) audit(family *[families]unit.Bytes, requests int) error {
	var used unit.Bytes
	for f, bytes := range family {
		if Family(f) != Host {
			used += bytes
		}
	}
	switch {
	case *family != a.family || used != a.used:
		return fmt.Errorf("%d bytes in use, and %d are counted: %v, %v", used, a.used, *family, a.family)
	case a.highest < a.used || a.highest > a.limit():
		return fmt.Errorf("at most %d bytes were in use, and %d are, of %d", a.highest, a.used, a.limit())
	case a.ephemeral() > a.held || a.held > a.terms.Peak || a.kept < 0 || a.kept > a.ephemeral():
		return fmt.Errorf("%d bytes kept of %d ephemeral of %d held of a peak of %d", a.kept, a.ephemeral(), a.held, a.terms.Peak)
	case requests != a.requests:
		return fmt.Errorf("%d requests wait, and %d are counted", requests, a.requests)
	case !a.opened && (a.held > 0 || a.used > 0 || requests != 1):
		return fmt.Errorf("in use before it is open")
	}
	return nil
}
