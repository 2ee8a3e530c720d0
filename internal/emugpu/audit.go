package emugpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Audit is how a node agent tells the broker who may launch on which GPU. Each call is some nanoseconds and asks
// nobody; the broker compares with what drivers stamp on launches. All methods may be called concurrently, and calls
// for a process that is gone are harmless.
type Audit struct {
	page     *page
	observer *Observer  // the broker judges as long as it is connected
	mu       sync.Mutex // of making slots
	close    sync.Once
}

// OpenAudit starts the audit of the broker behind a socket. It lasts until Close, or the end of the process that opened it:
// who nobody supervises launches as it likes.
func OpenAudit(socket string) (*Audit, error) {
	o, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	table, err := o.auditTable()
	if err != nil {
		o.Close()
		return nil, err
	}
	return &Audit{page: table, observer: o}, nil
}

// auditTable starts the audit and maps its table.
func (o *Observer) auditTable() (*page, error) {
	_, fds, err := o.ask(request{Op: uint32(opAuditOpen)})
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		closeAll(fds)
		return nil, errors.New("open the audit: the broker sent no table")
	}
	data, err := unix.Mmap(fds[0], 0, auditSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("map the audit table: %w", err)
	}
	return &page{data, fds[0]}, nil
}

// Close ends the audit. It may be called again; nothing else may be after it.
func (a *Audit) Close() {
	a.close.Do(func() {
		a.observer.Close()
		a.page.close()
	})
}

// Enter says that the agent knows a process: from here on its launches without a token are violations.
func (a *Audit) Enter(pid int) { a.slot(int32(pid)) }

// Allow says that a process holds the token of a GPU under an epoch, above 0 and rising per GPU. To be called before the
// grant is sent.
func (a *Audit) Allow(pid, gpu int, epoch uint64) {
	if at := a.slot(int32(pid)); at >= 0 {
		a.word(at, gpu).Store(epoch &^ epochOverrun)
	}
}

// Revoke says that a process no longer holds the token of a GPU. To be called after its release was received, or when
// it died.
func (a *Audit) Revoke(pid, gpu int) {
	if at := findSlot(a.page, int32(pid)); at >= 0 {
		a.word(at, gpu).Store(0)
	}
}

// Overrun says that the token was taken from a process that did not return it: its launches are counted apart until
// its next Allow or Revoke.
func (a *Audit) Overrun(pid, gpu int) {
	if at := findSlot(a.page, int32(pid)); at >= 0 {
		w := a.word(at, gpu)
		for old := w.Load(); !w.CompareAndSwap(old, old|epochOverrun); old = w.Load() {
		}
	}
}

func (a *Audit) word(slot, gpu int) *atomic.Uint64 {
	return a.page.u64(slot + auditSlotEpoch + 8*(gpu&(maxGPUs-1)))
}

// slot finds the slot of a process or makes it; -1 when the table is full around its place.
func (a *Audit) slot(pid int32) int {
	if at := findSlot(a.page, pid); at >= 0 || pid <= 0 {
		return at
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := findSlot(a.page, pid); at >= 0 {
		return at
	}
	for i := range auditProbes {
		at := slotAt(pid, i)
		word := a.page.u32(at + auditSlotPID)
		if word.CompareAndSwap(0, uint32(pid)) || word.CompareAndSwap(auditGone, uint32(pid)) {
			return at
		}
	}
	return -1
}
