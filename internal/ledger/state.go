package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// Version of State. A ledger reads its own version only.
const Version = 1

// State is a ledger as plain data, in one order for one content: what an agent writes so that the next one continues.
type State struct {
	Version       int
	Usable, Chunk unit.Bytes
	Now           unit.Time
	Arrivals      uint64
	Accounts      []AccountState // by ID
	Charges       []ChargeState  // in the order of their first name
	Queue         []WaitState    // as it is served
	Decisions     []Decision     // made and not yet taken
}

// AccountState is one account. Terms are those it is counted by.
type AccountState struct {
	ID         AccountID
	Terms      Terms
	Opened     bool
	Held, Kept unit.Bytes
	Began      unit.Time
	Since      unit.Time
	Stalled    time.Duration
	Highest    unit.Bytes
}

// ChargeState is a piece of memory with its names. Owner 0 is an account that was closed.
type ChargeState struct {
	Owner  AccountID
	Bytes  unit.Bytes
	Family Family
	Names  []NameState
}

// NameState is one handle of an account.
type NameState struct {
	Account AccountID
	Handle  Handle
}

// WaitState is one request that waits.
type WaitState struct {
	Account AccountID
	Request Request
	Bytes   unit.Bytes
	Opens   bool
	Since   unit.Time
	Arrival uint64
}

// State is a copy of the ledger. O(h log h) for h handles.
func (l *Ledger) State() State {
	s := State{Version: Version, Usable: l.usable, Chunk: l.chunk, Now: l.now, Arrivals: l.arrivals,
		Decisions: slices.Clone(l.decisions)}
	at := map[*charge]int{}
	for _, a := range l.order {
		s.Accounts = append(s.Accounts, AccountState{a.id, a.terms, a.opened, a.held, a.kept, a.began, a.since, a.stalled, a.highest})
		for _, h := range slices.SortedFunc(maps.Keys(a.handles), inNumber) {
			c := a.handles[h]
			if _, seen := at[c]; !seen {
				at[c] = len(s.Charges)
				s.Charges = append(s.Charges, ChargeState{Owner: c.ownerID(), Bytes: c.bytes, Family: c.family})
			}
			names := &s.Charges[at[c]].Names
			*names = append(*names, NameState{a.id, h})
		}
	}
	for _, w := range l.queue {
		s.Queue = append(s.Queue, WaitState{w.account.id, w.request, w.bytes, w.opens, w.since, w.arrival})
	}
	return s
}

func (c *charge) ownerID() AccountID {
	if c.owner == nil {
		return 0
	}
	return c.owner.id
}

func inNumber(a, b Handle) int {
	return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Number, b.Number))
}

// Restore is the ledger that a state was taken of. It refuses another version, and a state whose books do not balance.
func Restore(s State) (*Ledger, error) {
	if s.Version != Version {
		return nil, fmt.Errorf("ledger of version %d, this one reads %d", s.Version, Version)
	}
	l := New(s.Usable, s.Chunk)
	l.now, l.arrivals, l.decisions = s.Now, s.Arrivals, slices.Clone(s.Decisions)
	if err := l.restoreAccounts(s.Accounts); err != nil {
		return nil, err
	}
	if err := l.restoreCharges(s.Charges); err != nil {
		return nil, err
	}
	for _, w := range s.Queue {
		a := l.accounts[w.Account]
		if a == nil || w.Bytes <= 0 || w.Opens == a.opened {
			return nil, fmt.Errorf("a request of account %d cannot wait", w.Account)
		}
		l.queue = append(l.queue, waiting{a, w.Request, w.Bytes, w.Opens, w.Since, w.Arrival})
		a.requests++
	}
	slices.SortFunc(l.queue, inOrder)
	if err := l.Audit(); err != nil {
		return nil, fmt.Errorf("ledger does not balance: %w", err)
	}
	return l, nil
}

func (l *Ledger) restoreAccounts(accounts []AccountState) error {
	var largest unit.Bytes
	for _, s := range accounts {
		t := s.Terms
		if s.ID == 0 || l.accounts[s.ID] != nil || t.Reserved < 0 || t.Peak < 0 || t != t.counted() || s.Held < 0 || s.Held > t.Peak {
			return fmt.Errorf("account %d cannot be: reserved %d, peak %d, held %d", s.ID, t.Reserved, t.Peak, s.Held)
		}
		l.file(&account{id: s.ID, terms: t, opened: s.Opened, handles: map[Handle]*charge{}, held: s.Held, kept: s.Kept,
			began: s.Began, since: s.Since, stalled: s.Stalled, highest: s.Highest})
		l.committed = l.committed.Add(t.Reserved)
		largest = max(largest, t.Peak)
		if need := l.committed.Add(largest); need > l.usable {
			return fmt.Errorf("account %d exceeds the GPU: %d bytes of %d", s.ID, need, l.usable)
		}
		if s.Opened {
			l.free -= t.Reserved + s.Held
		}
	}
	return nil
}

func (l *Ledger) restoreCharges(charges []ChargeState) error {
	for _, s := range charges {
		c := &charge{bytes: s.Bytes, family: s.Family, handles: len(s.Names), owner: l.accounts[s.Owner]}
		if s.Bytes <= 0 || s.Family >= families || len(s.Names) == 0 || c.ownerID() != s.Owner {
			return fmt.Errorf("a charge of %d bytes to account %d cannot be", s.Bytes, s.Owner)
		}
		for _, n := range s.Names {
			a := l.accounts[n.Account]
			if a == nil || a.handles[n.Handle] != nil {
				return fmt.Errorf("handle %v of account %d cannot be", n.Handle, n.Account)
			}
			a.handles[n.Handle] = c
		}
		if c.owner == nil {
			continue
		}
		c.owner.family[c.family] = c.owner.family[c.family].Add(c.bytes)
		if c.family != Host {
			c.owner.used = c.owner.used.Add(c.bytes)
		}
	}
	return nil
}
