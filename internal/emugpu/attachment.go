package emugpu

import (
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

// maxContexts bounds the contexts of a process: each is some 10 MiB of address space.
const maxContexts = 64

// attachment is a process that loaded the emulated driver.
type attachment struct {
	pid      int32
	name     string
	pidfd    int // -1 where the kernel gave none; its connection's end has to do
	page     *page
	bell     int
	slots    []thread
	contexts map[uint32]*context
	past     map[int]model.Usage // of its ended contexts, by GPU
	launched map[int]uint64
	bytes    [maxGPUs]unit.Bytes
	peak     [maxGPUs]unit.Bytes
	judged   Verdict
	gone     bool
}

// attach makes what a new process shares with the broker.
func (b *Broker) attach(pid int32, name string) (*attachment, error) {
	p, err := newPage("weft-emu-process", processSize)
	if err != nil {
		return nil, err
	}
	bell, err := newBell()
	if err != nil {
		p.close()
		return nil, err
	}
	a := &attachment{pid: pid, name: name, pidfd: -1, page: p, bell: bell, contexts: map[uint32]*context{},
		past: map[int]model.Usage{}, launched: map[int]uint64{}}
	p.u32(processPID).Store(uint32(pid))
	for i := range maxThreads {
		a.slots = append(a.slots, thread{p, processSlots + i*threadSize})
	}
	err = b.waiter.add(bell)
	if fd, none := unix.PidfdOpen(int(pid), 0); none == nil {
		a.pidfd = fd
		err = errors.Join(err, b.waiter.add(fd))
	}
	if err != nil {
		a.close(b.waiter)
		return nil, err
	}
	b.attachments = append(b.attachments, a)
	return a, nil
}

func (a *attachment) close(w *waiter) {
	if a.pidfd >= 0 {
		w.remove(a.pidfd)
		_ = unix.Close(a.pidfd)
	}
	w.remove(a.bell) // the process may hold it still
	_ = unix.Close(a.bell)
	a.page.close()
}

// detach frees everything that a process has. It may be called twice.
func (b *Broker) detach(a *attachment) {
	if a.gone {
		return
	}
	b.pass()
	b.take() // what it launched last counts, whoever runs
	a.gone = true
	for _, id := range sortedKeys(a.contexts) {
		b.destroy(a.contexts[id], statusUnavailable)
	}
	for _, t := range a.threads() {
		t.resume()
	}
	b.memory.leave(a)
	b.past = appendPast(b.past, b.processStats(a))
	b.attachments = slices.DeleteFunc(b.attachments, func(o *attachment) bool { return o == a })
	if !slices.ContainsFunc(b.attachments, func(o *attachment) bool { return o.pid == a.pid }) {
		b.audit.forget(a.pid)
	}
	a.close(b.waiter)
}

// ended says whether the process has ended, whoever else holds its connection.
func (a *attachment) ended() bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(a.pidfd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// ring is a ring of one of the process's own contexts; nil when there is none.
func (a *attachment) ring(context, index uint32) *ring {
	c := a.contexts[context]
	if c == nil || index >= maxStreams {
		return nil
	}
	return c.rings[index]
}

// threads are the slots that may be in use.
func (a *attachment) threads() []thread {
	return a.slots[:min(a.page.u32(processThreads).Load(), maxThreads)]
}

// thread is a slot by which a thread waits.
type thread struct {
	page *page
	base int
}

func (t thread) word(at int) *atomic.Uint32 { return t.page.u32(t.base + at) }
func (t thread) state() uint32              { return t.word(threadState).Load() }
func (t thread) context() uint32            { return t.word(threadContext).Load() }
func (t thread) ring() uint32               { return t.word(threadRing).Load() }

// until is what the thread waits for: a time, or an entry.
func (t thread) until() unit.Time {
	return unit.Time(min(t.page.u64(t.base+threadUntil).Load(), uint64(unit.Never)))
}

// over says whether what the thread waits for is there, or will never be.
func (t thread) over(a *attachment, now unit.Time) bool {
	switch t.state() {
	case threadSleeping:
		return t.until() <= now
	case threadWaiting:
		r := a.ring(t.context(), t.ring())
		return r == nil || r.context.broken != 0 || r.stream.Done() >= uint64(t.until())
	}
	return false
}

// resume lets a waiting thread go on. It counts as running from now on, not from when its processor finds the time.
func (t thread) resume() {
	state := t.word(threadState)
	if state.CompareAndSwap(threadWaiting, threadRunning) || state.CompareAndSwap(threadSleeping, threadRunning) {
		wake(state)
	}
}
