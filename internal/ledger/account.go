package ledger

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// AccountID names an account; 0 names none.
type AccountID uint64

// Class orders who is served first when the pool is handed over, the lowest value first.
type Class uint8

// The classes, first served first.
const (
	Guaranteed Class = iota
	Burstable
	BestEffort
)

// Terms are what an account is opened with.
type Terms struct {
	Reserved   unit.Bytes // always its own: weights, optimizer state, the CUDA context
	Peak       unit.Bytes // the most ephemeral memory it ever uses beyond that
	Class      Class
	Cooperates bool // calls Yield at its iteration boundaries
}

// counted are the terms by which an account is held: one that does not cooperate is counted at its peak, as if all of it
// were reserved.
func (t Terms) counted() Terms {
	if !t.Cooperates {
		t.Reserved, t.Peak = t.Reserved.Add(t.Peak), 0
	}
	return t
}

// account is held to: ephemeral <= held <= Peak, and kept <= ephemeral.
type account struct {
	id     AccountID
	terms  Terms
	opened bool

	used    unit.Bytes // charged; the sum of the families but Host
	highest unit.Bytes // that used ever was
	family  [families]unit.Bytes
	handles map[Handle]*charge

	held  unit.Bytes // chunks from the pool
	kept  unit.Bytes // of held: in use across the last boundary, so not expected back at the next
	began unit.Time  // the iteration that it is inside of

	requests int       // that wait
	since    unit.Time // at least one waits, where requests > 0
	stalled  time.Duration
}

// ephemeral is what is in use of the chunks held.
func (a *account) ephemeral() unit.Bytes { return a.used.Sub(a.terms.Reserved) }

// inside says whether an account is within an iteration: it holds chunks. One that kept some across its boundary never
// leaves: others cannot begin on what it keeps, and were it to queue up behind them, none would go on.
func (a *account) inside() bool { return a.held > 0 }

// limit is the most that an account may ever use.
func (a *account) limit() unit.Bytes { return a.terms.Reserved + a.terms.Peak }

// wait counts one more request that waits, or one fewer. Requests that wait at the same time stall an account once.
func (a *account) wait(now unit.Time, change int) {
	if a.requests > 0 {
		a.stalled += now.Sub(a.since)
	}
	a.since = now
	a.requests += change
}

// View is what the memory queries of the driver and of NVML answer inside an account: its own limit, never the GPU's.
// Free is the limit less what is in use; to get it may take a wait for the pool, never another's death.
type View struct {
	Total, Free, Used unit.Bytes
	Held              unit.Bytes           // chunks from the pool, used or not
	Highest           unit.Bytes           // the most that Used ever was
	Families          [families]unit.Bytes // Used by family; Host is beside it
}

// View of an account that is open; cuMemGetInfo answers Free and Total, cuDeviceTotalMem Total, NVML all three.
func (l *Ledger) View(id AccountID) (View, bool) {
	a := l.open(id)
	if a == nil {
		return View{}, false
	}
	return View{Total: a.limit(), Free: a.limit() - a.used, Used: a.used, Held: a.held, Highest: a.highest, Families: a.family}, true
}

// Stall is how long an account has waited for the pool up to now, with a wait that still lasts: interference, to be charged
// against its floor as lost time. It is 0 for an unknown account.
func (l *Ledger) Stall(now unit.Time, id AccountID) time.Duration {
	l.advance(now)
	a := l.accounts[id]
	if a == nil {
		return 0
	}
	stalled := a.stalled
	if a.requests > 0 {
		stalled += l.now.Sub(a.since)
	}
	return stalled
}

// Overdue is the accounts, by ID, that have been inside an iteration for longer than patience while somebody waits: they
// may have ceased to cooperate. Memory cannot be taken from a program; whoever moves jobs must act.
func (l *Ledger) Overdue(now unit.Time, patience time.Duration) []AccountID {
	l.advance(now)
	var late []AccountID
	for _, a := range l.order {
		if len(l.queue) > 0 && a.inside() && l.now.Sub(a.began) > patience {
			late = append(late, a.id)
		}
	}
	return late
}

// Stuck is the accounts, by ID, that may never reach their boundary even if all others that can do: none, unless accounts
// keep memory across boundaries that they did not declare as reserved. Only moving a job helps then.
func (l *Ledger) Stuck() []AccountID {
	var stuck []AccountID
	for _, a := range l.order {
		if _, able := l.able(l.free, a, 0); a.inside() && !able {
			stuck = append(stuck, a.id)
		}
	}
	return stuck
}

// Waiting is how many requests wait, accounts to be opened among them.
func (l *Ledger) Waiting() int { return len(l.queue) }

// Pool is the shared memory of the GPU: all that is not reserved, and how much of it nobody holds.
func (l *Ledger) Pool() (size, free unit.Bytes) {
	size = l.free
	for _, a := range l.order {
		size += a.held
	}
	return size, l.free
}
