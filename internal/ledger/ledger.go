// Package ledger decides who may use which memory of one GPU. It talks to nobody: time is an input, decisions are data.
//
// Every account (a container, or a job) has a reserved part, which is always its own, and a peak of ephemeral memory,
// which comes out of a pool that all accounts of the GPU share and which goes back at the iteration boundary, where the
// memory of a training job is at its trough. Who finds the pool empty waits; nobody dies of another's memory.
//
// With M the usable bytes, b the reserved parts and v the ephemeral peaks, Open keeps
//
//	C1   sum b <= M                   reserved memory is never promised twice
//	C1'  sum b + max v <= M           each account can finish an iteration when the others are at their trough
//
// and every grant keeps the state safe in the sense of Dijkstra's banker (EWD 108; Habermann, CACM 12:373, 1969): there
// is an order in which all accounts inside an iteration reach its end. So waiting cannot become deadlock. The banker
// is asked for one resource here, where a safe order is found by sorting the needs.
package ledger

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/unit"
)

// Ledger is the memory of one GPU. It is not safe for concurrent use. Time never runs backwards in it: an instant before
// the last one counts as the last one.
type Ledger struct {
	usable unit.Bytes
	chunk  unit.Bytes
	now    unit.Time

	free      unit.Bytes // of the pool: usable less reserved parts of open accounts and what accounts hold
	committed unit.Bytes // sum b, with the accounts that still wait to be opened
	accounts  map[AccountID]*account
	order     []*account // by ID
	queue     []waiting  // in order of rank, then arrival
	arrivals  uint64
	decisions []Decision
	claims    []claim // reused by able
}

// The bounds of a chunk: below, the pool is asked too often (a round trip is 15-80 us, about as long as the driver takes
// to allocate); above, unused ends of chunks keep others waiting.
const (
	MinChunk = 32 * unit.MiB
	MaxChunk = 64 * unit.MiB
)

// New is the ledger of a GPU without accounts. A chunk out of bounds is moved to the nearest bound.
func New(usable, chunk unit.Bytes) *Ledger {
	usable = max(0, usable)
	return &Ledger{usable: usable, free: usable, chunk: min(max(chunk, MinChunk), MaxChunk), accounts: map[AccountID]*account{}}
}

// Open makes an account, or refuses with the numbers of the rule that forbids it: OverReserved for C1, OverPeak for C1'.
// When the rules hold and accounts inside an iteration use the memory now, the answer is Waits and a decision about
// Request{} follows: it waits for those alone, before any account that begins an iteration. O(n) for n accounts.
func (l *Ledger) Open(now unit.Time, id AccountID, t Terms) Answer {
	l.advance(now)
	if id == 0 || t.Reserved < 0 || t.Peak < 0 || t.Reserved.Add(t.Peak) == 0 {
		return Answer{Outcome: Invalid}
	}
	if l.accounts[id] != nil {
		return Answer{Outcome: Duplicate}
	}
	t = t.counted()
	committed := l.committed.Add(t.Reserved)
	if committed > l.usable {
		return Answer{OverReserved, committed, l.usable}
	}
	largest := t.Peak
	for _, a := range l.order {
		largest = max(largest, a.terms.Peak)
	}
	if need := committed.Add(largest); need > l.usable {
		return Answer{OverPeak, need, l.usable}
	}
	a := &account{id: id, terms: t, handles: map[Handle]*charge{}}
	l.committed = committed
	l.file(a)
	return l.request(waiting{account: a, bytes: t.Reserved, opens: true})
}

// file enters an account.
func (l *Ledger) file(a *account) {
	l.accounts[a.id] = a
	at, _ := slices.BinarySearchFunc(l.order, a.id, func(b *account, id AccountID) int { return cmp.Compare(b.id, id) })
	l.order = slices.Insert(l.order, at, a)
}

// Reserve makes room in an account for an allocation of some bytes, in chunks from the pool where what the account has is
// not enough. Granted and OutOfMemory (beyond reserved part and peak together) are final; after Waits a decision
// about the request follows. Room belongs to the account: where two threads race for it, Alloc tells one of them Short,
// and that one reserves again.
func (l *Ledger) Reserve(now unit.Time, id AccountID, r Request, bytes unit.Bytes) Answer {
	l.advance(now)
	a := l.open(id)
	switch {
	case a == nil:
		return Answer{Outcome: Unknown}
	case r == Request{} || bytes <= 0:
		return Answer{Outcome: Invalid}
	case slices.ContainsFunc(l.queue, func(w waiting) bool { return w.account == a && w.request == r }):
		return Answer{Outcome: Duplicate}
	}
	return l.request(waiting{account: a, request: r, bytes: bytes})
}

// Return gives chunks back before the boundary: at most the bytes named and at most what is unused. The account keeps its
// right to ask for them again in this iteration. The answer's Need is what went back.
func (l *Ledger) Return(now unit.Time, id AccountID, bytes unit.Bytes) Answer {
	l.advance(now)
	a := l.open(id)
	if a == nil {
		return Answer{Outcome: Unknown}
	}
	if bytes <= 0 {
		return Answer{Outcome: Invalid}
	}
	given := min(bytes, a.held-a.ephemeral())
	l.give(a, given)
	l.settle()
	return Answer{Granted, given, bytes}
}

// Yield is the iteration boundary: all unused chunks go back and to those who wait, in order. What is still in use beyond
// the reserved part stays; then the answer is Kept, with the bytes in use and the reserved part: the account promised
// less than it needs between iterations, nothing is lent on the hope that it returns that, and the planner should know.
func (l *Ledger) Yield(now unit.Time, id AccountID) Answer {
	l.advance(now)
	a := l.open(id)
	if a == nil {
		return Answer{Outcome: Unknown}
	}
	l.give(a, a.held-a.ephemeral())
	a.kept, a.began = a.held, l.now
	l.settle()
	if a.kept > 0 {
		return Answer{Kept, a.used, a.terms.Reserved}
	}
	return Answer{Granted, 0, a.terms.Reserved}
}

// Cooperate says that an account which was counted at its peak does call Yield, from the boundary that it is at now: of its
// limit only so much is reserved from here on, and the rest is a peak out of the pool. C1 and C1' stay, as no more is
// promised than before, and so does the safe order, as the pool only gains. What is in use beyond the reserved part counts
// as kept.
func (l *Ledger) Cooperate(now unit.Time, id AccountID, reserved unit.Bytes) Answer {
	l.advance(now)
	a := l.open(id)
	switch {
	case a == nil:
		return Answer{Outcome: Unknown}
	case a.terms.Cooperates || reserved < 0 || reserved > a.terms.Reserved:
		return Answer{Outcome: Invalid}
	}
	peak := a.terms.Reserved - reserved
	l.committed -= peak
	a.terms.Reserved, a.terms.Peak, a.terms.Cooperates = reserved, peak, true
	a.held = a.ephemeral()
	a.kept, a.began = a.held, l.now
	l.free += peak - a.held
	l.settle()
	return Answer{Granted, a.held, reserved}
}

// Close ends an account: its charges, its chunks, its reserved part and its requests, which get no decision. Handles by
// which others imported its memory are worth nothing from then on. O(all handles).
func (l *Ledger) Close(now unit.Time, id AccountID) Answer {
	l.advance(now)
	a := l.accounts[id]
	if a == nil {
		return Answer{Outcome: Unknown}
	}
	l.drop(func(w waiting) bool { return w.account == a })
	for _, b := range l.order {
		for h, c := range b.handles {
			if c.owner == a {
				c.owner = nil
			}
			if b == a {
				l.release(a, h)
			}
		}
	}
	if a.opened {
		l.free += a.terms.Reserved + a.held
	}
	l.committed -= a.terms.Reserved
	delete(l.accounts, id)
	l.order = slices.DeleteFunc(l.order, func(b *account) bool { return b == a })
	l.settle()
	return Answer{Granted, a.used, 0}
}

// Ready takes the decisions made since the last call: the ends of waits, in the order in which they came about.
func (l *Ledger) Ready() []Decision {
	ready := l.decisions
	l.decisions = nil
	return ready
}

func (l *Ledger) advance(now unit.Time) { l.now = max(l.now, now) }

// open is an account that is open, or nil.
func (l *Ledger) open(id AccountID) *account {
	if a := l.accounts[id]; a != nil && a.opened {
		return a
	}
	return nil
}
