package ledger

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/unit"
)

// safe says whether a grant leaves every other account that can reach its boundary able to, and lets its own reach it.
func (l *Ledger) safe(w waiting) bool {
	a, take := w.account, l.take(w)
	if take > l.free {
		return false
	}
	if w.opens {
		before, _ := l.able(l.free, nil, 0)
		after, _ := l.able(l.free-take, nil, 0)
		return before == after
	}
	if a.terms.Peak-a.held <= l.free {
		return true // it can go first and leave the others as they were
	}
	before, _ := l.able(l.free, a, 0)
	after, able := l.able(l.free-take, a, take)
	return able && before == after
}

// claim is an account inside an iteration: what it may still need to reach the boundary, and what it gives back there.
type claim struct {
	need, back unit.Bytes
	own        bool
}

// able counts the accounts other than a that can reach their boundary one after the other from so much free memory, were a
// to hold some bytes more, and says whether a can. The least need first is optimal: whoever finishes only adds.
func (l *Ledger) able(free unit.Bytes, a *account, more unit.Bytes) (others int, own bool) {
	l.claims = l.claims[:0]
	for _, b := range l.order {
		if b != a && b.inside() {
			l.claims = append(l.claims, claim{need: b.terms.Peak - b.held, back: b.held - b.kept})
		}
	}
	if a != nil {
		l.claims = append(l.claims, claim{need: a.terms.Peak - a.held - more, back: a.held - a.kept + more, own: true})
	}
	slices.SortFunc(l.claims, func(x, y claim) int { return cmp.Compare(x.need, y.need) })
	for _, c := range l.claims {
		if c.need > free {
			break
		}
		free += c.back
		if c.own {
			own = true
		} else {
			others++
		}
	}
	return others, own
}
