package emugpu

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWrongVersionIsRefused(t *testing.T) {
	b := start(t, 1, Options{})
	o, err := dialPlain(b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r, _, err := o.ask(request{Op: uint32(opHello), A: wireProtocol + 1})
	if err == nil || r.Status != uint32(statusVersion) || !strings.Contains(err.Error(), "speak protocol 1, this library speaks 2: use the libcuda.so.1") {
		t.Errorf("%v", err)
	}
	if _, _, err := o.ask(request{Op: uint32(opMemInfo)}); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a request before hello: %v", err)
	}
}

func TestObserversOnlyLook(t *testing.T) {
	b := start(t, 1, Options{})
	o, err := Dial(b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for i, h := range handlers {
		r, fds, _ := o.ask(request{Op: uint32(i)})
		closeAll(fds)
		if refused := r != nil && r.Status == uint32(statusRole); refused != h.driver {
			t.Errorf("request %d: refused %v", i, refused)
		}
	}
	if r, _, _ := o.ask(request{Op: uint32(opHello), A: wireProtocol}); r == nil || r.Status != uint32(statusRequest) {
		t.Error("hello twice")
	}
}

// TestNonsenseInRings writes it from one process while another works, and holds the broker to be exact for the other.
func TestNonsenseInRings(t *testing.T) {
	b := start(t, 1, Options{Slice: ms, Scale: 20})
	good, evil := attach(t, b.Socket(), "good"), attach(t, b.Socket(), "evil")
	me, s := good.enter(), good.context(t, 0).null()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		c := evil.context(t, 0)
		for _, words := range []struct{ page, from, to int }{{0, contextRings, contextRings + ringFirst + 4096}, {0, 0, 4096}, {1, 0, 4096}} {
			p := c.page
			if words.page == 1 {
				p = evil.process
			}
			for range 200 {
				at := words.from + 8*random.IntN((words.to-words.from)/8)
				p.u64(at).Store(odd(random))
			}
		}
		head := c.page.u64(contextRings + ringHead)
		switch round % 3 {
		case 0:
			head.Store(uint64(random.IntN(ringEntries)))
		case 1:
			head.Store(odd(random))
		}
		ring8(evil.bell)
		if e := s.wait(me, s.launch(100*time.Microsecond)); e != 0 {
			t.Fatalf("the good process is told %d", e)
		}
		if _, _, err := evil.ask(request{Op: uint32(opContextDestroy), Context: c.id}); err != nil {
			t.Fatal(err)
		}
	}
	stats := b.Stats()
	if p := stats.Processes[0]; p.Name != "good" || p.GPUs[0].Kernels != 60 || p.GPUs[0].Busy != 60*100*time.Microsecond {
		t.Errorf("the good process: %+v", p)
	}
	if stats.Nonsense == 0 {
		t.Error("no nonsense was noticed")
	}
}

// odd is a number that is likely to break something.
func odd(r *rand.Rand) uint64 {
	switch r.IntN(5) {
	case 0:
		return r.Uint64()
	case 1:
		return 1<<64 - 1 - uint64(r.IntN(3))
	case 2:
		return 1<<63 + uint64(r.IntN(3)) - 1
	case 3:
		return uint64(r.IntN(10))
	}
	return 1<<32 - 1 + uint64(r.IntN(3))
}

// TestIdleBrokerSleeps: neither nonsense nor an unfinished launch keeps its thread awake.
func TestIdleBrokerSleeps(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	s.write(arrival{submit: 1 << 62, kind: 1, cost: 5})
	hostile := d.enter()
	hostile.word(threadContext).Store(99)
	hostile.word(threadState).Store(threadWaiting)
	s.c.page.u64(s.base + ringWant).Store(1<<64 - 1)
	waited := make(chan status)
	go func() { waited <- s.wait(me, s.launch(time.Hour)) }()
	time.Sleep(20 * ms)
	before := processorTime(t)
	time.Sleep(100 * ms)
	if used := processorTime(t) - before; used > 50*ms {
		t.Errorf("the broker used %v of 100 ms", used)
	}
	if b.Stats().GPUs[0].Launches == 0 {
		t.Error("an entry from the future stops its ring forever")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-waited
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSharedMemoryIsSealed: a process can neither cut its pages short nor write those of the broker.
func TestSharedMemoryIsSealed(t *testing.T) {
	b := start(t, 1, Options{})
	o, err := dialPlain(b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	_, fds, err := o.ask(request{Op: uint32(opHello), A: wireProtocol})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fds)
	for i, fd := range fds[:3] {
		if unix.Ftruncate(fd, 0) == nil {
			t.Errorf("descriptor %d can be cut short", i)
		}
		data, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if writable := err == nil; writable != (i == 2) {
			t.Errorf("descriptor %d can be written to: %v", i, writable)
		}
		if err == nil {
			_ = unix.Munmap(data)
		}
	}
}

// FuzzControl sends packets that no driver would, before and after hello.
func FuzzControl(f *testing.F) {
	a10, _ := Model("a10")
	seed := func(q request) {
		q.Magic = wireMagic
		packet, _ := binary.Append(nil, binary.LittleEndian, q)
		f.Add(packet)
	}
	for i := range uint32(ops) + 1 {
		seed(request{Op: i})
		seed(request{Op: i, GPU: -1, Context: 1, A: 1, B: 2, C: 3})
		seed(request{Op: i, Context: 1, A: 1<<64 - 1, B: 1<<64 - 1})
	}
	f.Add([]byte{})
	f.Add(make([]byte, requestSize+1))
	b, err := Start(Options{GPUs: []GPU{a10}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = b.Close() })
	address := &net.UnixAddr{Name: b.Socket(), Net: "unixpacket"}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) == 0 || len(packet) > 1<<16 {
			return
		}
		if q, err := parseRequest(packet); err == nil && q.Op == uint32(opFault) && q.A == uint64(Slow) {
			return // it does what it says, for all that follow
		}
		for _, greeted := range []bool{false, true} {
			c, err := net.DialUnix("unixpacket", nil, address)
			if err != nil {
				t.Fatal(err)
			}
			o := &Observer{c}
			if greeted {
				_, fds, err := o.ask(request{Op: uint32(opHello), A: wireProtocol})
				closeAll(fds)
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Write(packet); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, replySize+1)
			_ = c.SetDeadline(time.Now().Add(patience))
			if n, _, _, _, err := c.ReadMsgUnix(buffer, nil); err != nil || n != replySize {
				t.Fatalf("%d bytes, %v", n, err)
			}
			o.Close()
		}
	})
}

// FuzzRing lets a process write anything into its ring and its thread slot. Another one is still served exactly.
func FuzzRing(f *testing.F) {
	a10, _ := Model("a10")
	b, err := Start(Options{GPUs: []GPU{a10}, Clock: Real, Scale: 10_000})
	if err != nil {
		f.Fatal(err)
	}
	good, evil := attach(f, b.Socket(), "good"), attach(f, b.Socket(), "evil")
	f.Cleanup(func() { _ = b.Close() })
	me, s := good.enter(), good.context(f, 0).null()
	entry := func(kind uint16, cost, epoch uint64) []byte {
		var e [entrySize]byte
		binary.LittleEndian.PutUint64(e[entryCost:], cost)
		binary.LittleEndian.PutUint64(e[entryEpoch:], epoch)
		binary.LittleEndian.PutUint16(e[entryKind:], kind)
		return e[:]
	}
	for kind := range uint16(10) {
		f.Add(uint64(1), uint64(1), uint64(1), uint32(threadWaiting), entry(kind, 1, 1))
	}
	f.Add(uint64(1<<64-1), uint64(0), uint64(0), uint32(threadSleeping), entry(1, 1<<64-1, 1<<64-1))
	f.Add(uint64(ringEntries+1), uint64(1<<63), uint64(5), uint32(77), entry(7, 9, 2))
	f.Fuzz(func(t *testing.T, head, want, until uint64, state uint32, entries []byte) {
		c := evil.context(t, 0)
		base := contextRings
		copy(c.page.data[base+ringFirst:base+ringSize], entries)
		slot := thread{evil.process, processSlots}
		evil.process.u32(processThreads).Store(uint32(until))
		c.page.u64(base + ringWant).Store(want)
		c.page.u64(base + ringHostDone).Store(want)
		slot.word(threadContext).Store(c.id)
		slot.page.u64(slot.base + threadUntil).Store(until)
		slot.word(threadState).Store(state)
		c.page.u64(base + ringHead).Store(head)
		ring8(evil.bell)
		if e := s.wait(me, s.launch(time.Microsecond)); e != 0 {
			t.Fatalf("the good process is told %d", e)
		}
		if _, _, err := evil.ask(request{Op: uint32(opContextDestroy), Context: c.id}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Munmap(c.page.data); err != nil {
			t.Fatal(err)
		}
	})
}
