package ledger

import (
	"math"

	"weft.dev/weft/internal/unit"
)

// Family is the family of driver calls that memory came from. It is that of the allocation whatever call frees it, so
// that books kept by family stay even when cuMemFree frees what cuMemAllocAsync gave.
type Family uint8

// The families.
const (
	Device   Family = iota // cuMemAlloc, Pitch
	Managed                // cuMemAllocManaged
	Async                  // pools: what they reserve from the device
	Virtual                // cuMemCreate
	Array                  // arrays and mipmapped arrays
	Graph                  // allocation nodes
	Context                // what a context takes by itself
	Host                   // on the host: booked, so that its free balances, and never charged
	families               // how many there are
)

// Handle names an allocation within an account. Its number is the caller's and is given before the driver is asked: memory
// is charged before it exists, and the charge is freed when the driver then refuses.
type Handle struct {
	Process Process
	Number  uint64
}

// charge is one piece of memory, entered once on its owner's account however many handles name it.
type charge struct {
	owner   *account // nil once that is closed
	bytes   unit.Bytes
	family  Family
	handles int
}

// Alloc charges an allocation within the room that the account has. Beyond that it changes nothing and says Short
// (reserve first), or OutOfMemory where the account would exceed its own limit: exactly at the limit is within. O(1).
func (l *Ledger) Alloc(now unit.Time, id AccountID, h Handle, bytes unit.Bytes, f Family) Answer {
	l.advance(now)
	a := l.open(id)
	switch {
	case a == nil:
		return Answer{Outcome: Unknown}
	case bytes <= 0 || f >= families:
		return Answer{Outcome: Invalid}
	case a.handles[h] != nil:
		return Answer{Outcome: Duplicate}
	}
	if w := (waiting{account: a, bytes: bytes}); f == Host {
		if bytes > math.MaxInt64-a.family[Host] {
			return Answer{OutOfMemory, bytes, math.MaxInt64 - a.family[Host]} // no host is as large; the books must balance
		}
	} else if w.over() {
		return Answer{OutOfMemory, a.used.Add(bytes), a.limit()}
	} else if short := w.short(); short > 0 {
		return Answer{Short, short, l.free}
	}
	c := &charge{owner: a, bytes: bytes, family: f, handles: 1}
	a.handles[h] = c
	l.enter(c, bytes)
	return Answer{Granted, a.used, a.limit()}
}

// Hold charges memory that exists already: it was allocated without a question, or before these books. It asks nobody and
// waits for nothing: what the account lacks it takes from the pool, also where that is not safe (see Stuck). As much is
// charged as the account's limit and the pool have room for; the answer's Need is what is not, and then it is Short.
func (l *Ledger) Hold(now unit.Time, id AccountID, h Handle, bytes unit.Bytes, f Family) Answer {
	l.advance(now)
	a := l.open(id)
	switch {
	case a == nil:
		return Answer{Outcome: Unknown}
	case bytes <= 0 || f >= families || f == Host:
		return Answer{Outcome: Invalid}
	case a.handles[h] != nil:
		return Answer{Outcome: Duplicate}
	}
	lacks := (waiting{account: a, bytes: min(bytes, a.limit()-a.used)}).short()
	take := max(0, min(lacks, l.free, a.terms.Peak-a.held))
	if take > 0 && !a.inside() {
		a.began = l.now
	}
	l.give(a, -take)
	charged := min(bytes, a.terms.Reserved+a.held-a.used)
	if charged > 0 {
		c := &charge{owner: a, bytes: charged, family: f, handles: 1}
		a.handles[h] = c
		l.enter(c, charged)
	}
	if charged < bytes {
		return Answer{Short, bytes - charged, a.limit()}
	}
	return Answer{Granted, 0, a.limit()}
}

// enter books bytes of a charge, or takes them off the books: on its family and, but for the host's, on its account.
func (l *Ledger) enter(c *charge, bytes unit.Bytes) {
	a := c.owner
	a.family[c.family] += bytes
	if c.family == Host {
		return
	}
	a.used += bytes
	a.highest = max(a.highest, a.used)
	a.kept = min(a.kept, a.ephemeral())
	if a.requests > 0 {
		l.settle()
	}
}

// Free takes an allocation off the books, whatever call frees it; the answer's Need is what was credited, 0 while another
// handle names the memory. A handle that is unknown, or was freed before, is Unknown and changes nothing. O(1).
func (l *Ledger) Free(now unit.Time, id AccountID, h Handle) Answer {
	l.advance(now)
	a := l.open(id)
	if a == nil || a.handles[h] == nil {
		return Answer{Outcome: Unknown}
	}
	return Answer{Granted, l.release(a, h), a.limit()}
}

// release forgets a handle and is what that credits.
func (l *Ledger) release(a *account, h Handle) unit.Bytes {
	c := a.handles[h]
	delete(a.handles, h)
	c.handles--
	if c.handles > 0 || c.owner == nil {
		return 0
	}
	l.enter(c, -c.bytes)
	return c.bytes
}

// Import gives memory that another process exported (IPC or a shareable handle) a further name. It stays charged to the
// exporter's account, once, until the last name is freed: the memory exists until then.
func (l *Ledger) Import(id AccountID, h Handle, exporter AccountID, exported Handle) Answer {
	a, from := l.open(id), l.open(exporter)
	if a == nil || from == nil || from.handles[exported] == nil || from.handles[exported].owner == nil {
		return Answer{Outcome: Unknown}
	}
	if a.handles[h] != nil {
		return Answer{Outcome: Duplicate}
	}
	c := from.handles[exported]
	c.handles++
	a.handles[h] = c
	return Answer{Granted, 0, a.limit()}
}

// Exit is the end of a process: its handles are freed and its requests forgotten, without decisions, and what the account
// then holds unused goes back to the pool, since the boundary it was held for may never come. The answer's Need is what
// was credited. O(handles of the account).
func (l *Ledger) Exit(now unit.Time, id AccountID, p Process) Answer {
	l.advance(now)
	a := l.open(id)
	if a == nil {
		return Answer{Outcome: Unknown}
	}
	var credited unit.Bytes
	l.drop(func(w waiting) bool { return w.account == a && !w.opens && w.request.Process == p })
	for h := range a.handles {
		if h.Process == p {
			credited += l.release(a, h)
		}
	}
	l.give(a, a.held-a.ephemeral())
	l.settle()
	return Answer{Granted, credited, a.limit()}
}
