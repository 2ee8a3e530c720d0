package ledger

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/unit"
)

// waiting is a request for room, or an account that waits to be opened.
type waiting struct {
	account *account
	request Request
	bytes   unit.Bytes // the allocation to make room for, or the reserved part
	opens   bool
	since   unit.Time
	arrival uint64
}

// inOrder puts accounts to be opened first, then the classes, each by arrival.
func inOrder(a, b waiting) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.arrival, b.arrival))
}

func (w waiting) rank() int {
	if w.opens {
		return -1
	}
	return int(w.account.terms.Class)
}

// request files a request, settles, and says whether it still waits.
func (l *Ledger) request(w waiting) Answer {
	a := w.account
	if w.over() {
		return Answer{OutOfMemory, a.used.Add(w.bytes), a.limit()}
	}
	short := w.short()
	if short <= 0 && !w.opens {
		return Answer{Granted, 0, l.free}
	}
	l.arrivals++
	w.arrival, w.since = l.arrivals, l.now
	at, _ := slices.BinarySearchFunc(l.queue, w, inOrder)
	l.queue = slices.Insert(l.queue, at, w)
	a.wait(l.now, +1)
	free, made := l.free, len(l.decisions)
	l.settle()
	for i, d := range l.decisions[made:] {
		if d.Account == a.id && d.Request == w.request {
			l.decisions = slices.Delete(l.decisions, made+i, made+i+1) // the answer says it
			return Answer{d.Outcome, d.Bytes, free}
		}
	}
	return Answer{Waits, short, free}
}

// over says whether a request exceeds what its account may ever use.
func (w waiting) over() bool { return !w.opens && w.account.used.Add(w.bytes) > w.account.limit() }

// short is what a request lacks: 0 or less where its account has the room.
func (w waiting) short() unit.Bytes {
	if w.opens {
		return w.bytes
	}
	return w.account.used + w.bytes - w.account.terms.Reserved - w.account.held
}

// take is what a request takes from the pool: what it lacks in whole chunks, but never beyond the declared peak, so that a
// chunk's unused end does not break C1'.
func (l *Ledger) take(w waiting) unit.Bytes {
	short := w.short()
	if w.opens || short <= 0 {
		return max(0, short)
	}
	chunks := short.Add(l.chunk-1) / l.chunk
	return min(chunks*l.chunk, w.account.terms.Peak-w.account.held)
}

// settle ends all waits that can end now.
func (l *Ledger) settle() {
	for i := l.next(); i >= 0; i = l.next() {
		l.end(i)
	}
}

// next is the request whose wait ends next, or -1. Accounts inside an iteration come first, in order but each as soon as
// its grant is safe: the others wait for them, so to make one queue up behind those would be a deadlock. Then comes the
// first of the others, and it alone: nobody who begins an iteration overtakes. O(q n^2) for q requests of n
// accounts, both a handful on one GPU.
func (l *Ledger) next() int {
	blocked := false
	for i, w := range l.queue {
		if w.over() || w.short() <= 0 {
			return i
		}
		if !w.account.inside() {
			continue
		}
		if l.safe(w) {
			return i
		}
		_, able := l.able(l.free, w.account, 0)
		blocked = blocked || able
	}
	if len(l.queue) > 0 && !blocked && l.safe(l.queue[0]) {
		return 0
	}
	return -1
}

// end ends the wait of the i-th request.
func (l *Ledger) end(i int) {
	w := l.queue[i]
	a := w.account
	l.queue = slices.Delete(l.queue, i, i+1)
	a.wait(l.now, -1)
	d := Decision{Account: a.id, Request: w.request, Stalled: l.now.Sub(w.since)}
	switch {
	case w.over():
		d.Outcome = OutOfMemory
	case w.opens:
		d.Bytes = w.bytes
		l.free -= d.Bytes
		a.opened = true
	default:
		d.Bytes = l.take(w)
		if !a.inside() && d.Bytes > 0 {
			a.began = l.now
		}
		l.free -= d.Bytes
		a.held += d.Bytes
	}
	l.decisions = append(l.decisions, d)
}

// give moves chunks of an account back to the pool.
func (l *Ledger) give(a *account, bytes unit.Bytes) {
	a.held -= bytes
	l.free += bytes
}

// drop forgets requests.
func (l *Ledger) drop(which func(waiting) bool) {
	for _, w := range l.queue {
		if which(w) {
			w.account.wait(l.now, -1)
		}
	}
	l.queue = slices.DeleteFunc(l.queue, which)
}
