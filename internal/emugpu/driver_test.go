package emugpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

// driver is what libcuda.so.1 is to a program, in Go: it follows emu_wire.h.
type driver struct {
	o       *Observer
	pid     int
	clock   *page
	audit   *page
	process *page
	bell    int
	mu      sync.Mutex // of requests
}

// stream is a ring of a context, with the lock of its producers.
type stream struct {
	c    *driverContext
	ring int
	base int
	mu   sync.Mutex
}

type driverContext struct {
	d    *driver
	id   uint32
	gpu  int
	page *page
}

// attach connects a driver. It is closed with the test, if not before.
func attach(t testing.TB, socket, name string) *driver {
	t.Helper()
	d, err := tryAttach(socket, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func tryAttach(socket, name string) (*driver, error) {
	c, err := dialPlain(socket)
	if err != nil {
		return nil, err
	}
	q := request{Op: uint32(opHello), A: wireProtocol, B: roleDriver}
	copy(q.Text[:], name)
	r, fds, err := c.ask(q)
	if err != nil {
		return nil, err
	}
	if len(fds) != 4 {
		return nil, fmt.Errorf("%d descriptors", len(fds))
	}
	return &driver{o: c, pid: int(r.A), bell: fds[3], clock: view(fds[0], clockSize, unix.PROT_READ), audit: view(fds[1], auditSize, unix.PROT_READ),
		process: view(fds[2], processSize, unix.PROT_READ|unix.PROT_WRITE)}, nil
}

// view maps a page and keeps no descriptor.
func view(fd, size, protection int) *page {
	data, err := unix.Mmap(fd, 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	_ = unix.Close(fd)
	return &page{data, -1}
}

func (d *driver) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bell >= 0 {
		d.o.Close()
		_ = unix.Close(d.bell)
		d.bell = -1
	}
}

// statusError is a refusal with its status.
type statusError struct {
	status status
	text   string
}

func (e statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

func (d *driver) ask(q request) (*reply, []int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, fds, err := d.o.ask(q)
	if r != nil && r.Status != 0 {
		return r, nil, statusError{status(r.Status), r.text()}
	}
	return r, fds, err
}

func statusOf(err error) status {
	var s statusError
	if errors.As(err, &s) {
		return s.status
	}
	return 0
}

func (d *driver) context(t testing.TB, gpu int) *driverContext {
	t.Helper()
	c, err := d.tryContext(gpu)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (d *driver) tryContext(gpu int) (*driverContext, error) {
	r, fds, err := d.ask(request{Op: uint32(opContextCreate), GPU: int32(gpu)})
	if err != nil {
		return nil, err
	}
	return &driverContext{d, uint32(r.A), gpu, view(fds[0], contextSize, unix.PROT_READ|unix.PROT_WRITE)}, nil
}

// null is the context's first stream.
func (c *driverContext) null() *stream { return &stream{c: c, base: contextRings} }

func (c *driverContext) stream(t testing.TB) *stream {
	t.Helper()
	r, _, err := c.d.ask(request{Op: uint32(opStreamCreate), Context: c.id})
	if err != nil {
		t.Fatal(err)
	}
	return &stream{c: c, ring: int(r.A), base: contextRings + int(r.A)*ringSize}
}

func (d *driver) now() uint64 {
	if d.clock.u32(clockMode).Load() == uint32(Virtual) {
		return d.clock.u64(clockNow).Load()
	}
	return (monotonic() - d.clock.u64(clockBase).Load()) * d.clock.u64(clockNum).Load() / d.clock.u64(clockDen).Load()
}

func (d *driver) ring() {
	if d.clock.u32(clockSleeping).Load() == 1 {
		ring8(d.bell)
	}
}

// stampOf is the epoch for a launch.
func (d *driver) stampOf(gpu int) uint64 {
	at := findSlot(d.audit, int32(d.pid))
	if at < 0 {
		return epochUnmanaged
	}
	return d.audit.u64(at + auditSlotEpoch + 8*gpu).Load()
}

// push submits an entry and returns its number. It waits for no room.
func (s *stream) push(e arrival) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.submit = s.c.d.now()
	return s.write(e)
}

// write appends an entry as it is.
func (s *stream) write(e arrival) uint64 {
	p := s.c.page
	head := p.u64(s.base + ringHead).Load()
	at := s.base + ringFirst + int(head%ringEntries)*entrySize
	p.u64(at + entrySubmit).Store(e.submit)
	p.u64(at + entryCost).Store(e.cost)
	p.u64(at + entryEpoch).Store(e.epoch)
	p.u32(at + entryFunction).Store(e.number)
	p.u32(at + entryKind).Store(uint32(e.kind))
	p.u64(s.base + ringHead).Store(head + 1)
	if (head+1)%(ringEntries/2) == 0 {
		s.c.d.ring()
	}
	return head + 1
}

// launch submits a kernel with the process's stamp.
func (s *stream) launch(cost time.Duration) uint64 {
	return s.push(arrival{kind: uint16(model.Kernel), cost: uint64(cost), epoch: s.c.d.stampOf(s.c.gpu)})
}

func (s *stream) done() uint64 { return s.c.page.u64(s.base + ringDone).Load() }

// enter takes a thread slot.
func (d *driver) enter() thread {
	for i := range maxThreads {
		t := thread{d.process, processSlots + i*threadSize}
		if t.word(threadState).CompareAndSwap(threadFree, threadRunning) {
			for used := d.process.u32(processThreads).Load(); used < uint32(i+1); used = d.process.u32(processThreads).Load() {
				d.process.u32(processThreads).CompareAndSwap(used, uint32(i+1))
			}
			return t
		}
	}
	panic("no thread slot")
}

func (d *driver) leave(t thread) {
	t.word(threadState).Store(threadFree)
	d.ring()
}

// block gives the slot to the broker until it comes back. A test fails by its time limit if it does not.
func (d *driver) block(t thread, state uint32) {
	word := t.word(threadState)
	word.Store(state)
	d.ring()
	for word.Load() != threadRunning {
		limit := unix.NsecToTimespec(int64(time.Second))
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, uintptr(state), uintptr(unsafe.Pointer(&limit)), 0, 0)
	}
	runtime.KeepAlive(d)
}

// wait returns when an entry ended: 0, or the context's error.
func (s *stream) wait(t thread, n uint64) status {
	for {
		if e := s.c.page.u32(contextError).Load(); e != 0 {
			return status(e)
		}
		if s.done() >= n {
			return 0
		}
		t.word(threadContext).Store(s.c.id)
		t.word(threadRing).Store(uint32(s.ring))
		t.page.u64(t.base + threadUntil).Store(n)
		s.c.d.block(t, threadWaiting)
	}
}

func (d *driver) sleep(t thread, span time.Duration) {
	t.page.u64(t.base + threadUntil).Store(d.now() + uint64(span))
	d.block(t, threadSleeping)
}

// start serves GPUs for a test: n A10s unless the options name others.
func start(t testing.TB, n int, o Options) *Broker {
	t.Helper()
	a10, _ := Model("a10")
	for range n {
		o.GPUs = append(o.GPUs, a10)
	}
	b, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// alloc asks for memory of a GPU.
func (d *driver) alloc(gpu int, n unit.Bytes) (uint64, error) {
	r, _, err := d.ask(request{Op: uint32(opMemAlloc), GPU: int32(gpu), A: uint64(n)})
	if err != nil {
		return 0, err
	}
	return r.A, nil
}

func (d *driver) do(t testing.TB, q request) *reply {
	t.Helper()
	r, fds, err := d.ask(q)
	closeAll(fds)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
