package agent

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// TestRefused breaks the protocol in each way: that connection ends, and says why.
func TestRefused(t *testing.T) {
	r := start(t, Options{})
	job := r.job(Spec{})
	valid := func(number uint32, m wire.Message) []byte { return wire.Append(nil, number, m) }
	version := valid(1, &wire.Hello{})
	version[4] = 9
	for name, packets := range map[string][][]byte{
		"not a message":       {{1}},
		"too long":            {make([]byte, 4000)},
		"not HELLO at first":  {valid(1, &wire.Request{})},
		"number":              {valid(2, &wire.Hello{})},
		"HELLO twice":         {valid(1, &wire.Hello{}), valid(2, &wire.Hello{})},
		"replayed":            {valid(1, &wire.Hello{}), valid(1, &wire.Hello{})},
		"the agent's":         {valid(1, &wire.Hello{}), valid(2, &wire.Grant{})},
		"flags":               {valid(1, &wire.Hello{Flags: 2})},
		"a GPU too many":      {valid(1, &wire.Hello{GPUs: 2})},
		"use of another GPU":  {valid(1, &wire.Hello{}), valid(2, &wire.Use{GPUs: 2})},
		"memory elsewhere":    {valid(1, &wire.Hello{}), valid(2, &wire.Alloc{Handle: 1, Bytes: 1, GPU: 1})},
		"no memory":           {valid(1, &wire.Hello{}), valid(2, &wire.Alloc{Handle: 1})},
		"family":              {valid(1, &wire.Hello{}), valid(2, &wire.Alloc{Handle: 1, Bytes: 1, Family: 8})},
		"handle twice":        {valid(1, &wire.Hello{}), valid(2, &wire.Alloc{Handle: 1, Bytes: 1}), valid(3, &wire.Alloc{Handle: 1, Bytes: 1})},
		"observer asks token": {valid(1, &wire.Hello{Flags: wire.Observer}), valid(2, &wire.Request{})},
		"observer allocates":  {valid(1, &wire.Hello{Flags: wire.Observer}), valid(2, &wire.Alloc{Handle: 1, Bytes: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, job.Socket)
			for _, packet := range packets {
				if err := p.raw(packet); err != nil {
					t.Fatal(err)
				}
			}
			p.refused(wire.RefusedProtocol)
		})
	}
	p := connect(t, job.Socket)
	if err := p.raw(version); err != nil {
		t.Fatal(err)
	}
	p.refused(wire.RefusedVersion)
	released := hello(t, job.Socket, wire.Hello{})
	if _, err := r.ask(Request{Op: OpRelease, ID: job.ID}); err != nil {
		t.Fatal(err)
	}
	released.refused(wire.RefusedClosed)
	r.audit()
}

// TestRefusedGone breaks the protocol and hangs up at once: the refusal finds the connection closed, and from then on the number of its
// descriptor is that of whatever was opened next, which is not the agent's to read.
func TestRefusedGone(t *testing.T) {
	r := start(t, Options{})
	job := r.job(Spec{})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	written, err := unix.Write(pipe[1], make([]byte, 1<<14))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var opens sync.WaitGroup
	opens.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if fd, err := unix.Dup(pipe[0]); err == nil {
				_ = unix.Close(fd)
			}
		}
	})
	const tries = 1000
	for range tries {
		p, err := tryConnect(t, job.Socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.raw([]byte{1})
		p.hangUp()
	}
	eventually(t, "all are refused", func() (all bool) {
		r.a.do(func() { all = r.a.messages.in == tries && len(r.a.conns) == 0 })
		return all
	})
	close(stop)
	opens.Wait()
	if left, err := unix.IoctlGetInt(pipe[0], unix.TIOCINQ); err != nil || left != written {
		t.Errorf("%d of %d bytes are left, %v: the agent read what is not its own", left, written, err)
	}
}

// TestOtherUser connects as another user than the allocation's.
func TestOtherUser(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	r := start(t, Options{})
	answer, err := r.ask(Request{Op: OpAllocate, Spec: &Spec{Reserved: unit.GiB, UID: 4711, GPUs: []string{"0"}}})
	if err != nil {
		t.Fatal(err)
	}
	if p := hello(t, answer.Socket, wire.Hello{}); p.welcome == nil { // root may
		t.Fatal("no welcome")
	}
	stranger := func() (p *process, err error) {
		asUser(t, 4713, func() { p, err = tryConnect(t, answer.Socket) })
		return p, err
	}
	if _, err := stranger(); !errors.Is(err, unix.EACCES) {
		t.Errorf("the folder lets another user in: %v", err)
	}
	for path, mode := range map[string]os.FileMode{r.o.Dir: 0o755, answer.Dir: 0o755, answer.Socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	p, err := stranger()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.hangUp)
	p.refused(wire.RefusedUser)
}

// asUser runs f on a thread of another user, which ends with it.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with it
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			t.Error(e)
			return
		}
		f()
	}()
	<-done
}

// TestFlood sends as fast as it can from several connections of one job, and leaves what it is told unread: the hand-overs of
// two other jobs go on.
func TestFlood(t *testing.T) { within(t, 250*time.Millisecond, flooded) }

// flooded is how long 99 of 100 hand-overs take at most.
func flooded(t *testing.T) time.Duration {
	t.Helper()
	r := start(t, Options{})
	hostile := r.job(Spec{Name: "hostile"})
	first, _ := spawn(t, "floods", hostile.Socket)
	second, _ := spawn(t, "floods", hostile.Socket)
	defer func() { _, _ = first.Process.Kill(), second.Process.Kill() }() // the next try has its own
	one := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	var took []time.Duration
	for range 300 {
		g := one.request()
		began := time.Now()
		one.release(g.Epoch)
		two.send(&wire.Request{})
		h := expect[*wire.Grant](two)
		took = append(took, time.Since(began))
		two.release(h.Epoch)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100] // the longest is this process's own wait for a processor, which the flood has
	t.Logf("hand-overs beside the flood: p50 %v, p99 %v, longest %v", took[len(took)/2], p99, took[len(took)-1])
	return p99
}

// TestUnread leaves all unread: the connection is closed at a bound, and nothing waits for it.
func TestUnread(t *testing.T) {
	r := start(t, Options{})
	deaf := hello(t, r.job(Spec{Name: "deaf"}).Socket, wire.Hello{GPUs: 1})
	_ = unix.SetNonblock(deaf.fd, true)
	eventually(t, "it is closed", func() bool {
		for range 100 {
			_ = deaf.trySend(&wire.View{})
		}
		return len(r.events(EventUnread)) > 0
	})
	fine := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	fine.request()
}

// TestRandomClients lets processes say anything, in any order, hang up and come back, beside two that behave: those get the
// token in turn and their memory, and the books balance.
func TestRandomClients(t *testing.T) {
	r := start(t, Options{Arbiter: quick})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		job := r.job(Spec{Name: "random", GPUs: []string{"0", "1"}, Reserved: unit.GiB, Peak: unit.GiB, Cooperates: i%2 == 0, Class: Class(i % 3)})
		clients.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
					ramble(t, random, job.Socket)
				}
			}
		})
	}
	one := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	for i := range 30 {
		for _, p := range []*process{one, two} {
			g := p.request()
			if m := p.allocate(uint64(i+1), unit.GiB); m.Outcome != wire.OK {
				t.Errorf("%+v", m)
			}
			p.send(&wire.Free{Question: wire.Question{Handle: uint64(i + 1)}})
			p.release(g.Epoch)
		}
	}
	close(stop)
	clients.Wait()
	r.audit()
}

// ramble is one connection of a process that means no good, or is broken.
func ramble(t testing.TB, random *rand.Rand, socket string) {
	t.Helper()
	p, err := tryConnect(t, socket)
	if err != nil {
		return
	}
	defer p.hangUp()
	if random.IntN(8) > 0 {
		_ = p.trySend(&wire.Hello{Session: random.Uint64N(20), Epoch: random.Uint64(), GPUs: random.Uint32N(4)})
	}
	var epoch uint64
	for range random.IntN(40) {
		if err := p.trySend(anything(random, epoch)); err != nil {
			return
		}
		if random.IntN(4) == 0 {
			m, err := p.try(time.Millisecond)
			if err != nil {
				return
			}
			if g, ok := m.(*wire.Grant); ok {
				epoch = g.Epoch
			}
		}
	}
	if random.IntN(10) == 0 {
		_ = p.raw(make([]byte, random.IntN(2000)))
	}
}

// anything is a message as a process might send it, or not.
func anything(random *rand.Rand, epoch uint64) wire.Message {
	if random.IntN(4) == 0 {
		epoch = random.Uint64N(1000)
	}
	shared := wire.Shared{Handle: random.Uint64N(16), GPU: random.Uint32N(2), Key: [wire.KeySize]byte{byte(random.IntN(4))}}
	question := wire.Question{Handle: random.Uint64N(16), GPU: random.Uint32N(2)}
	switch random.IntN(13) {
	case 0:
		return &wire.Use{GPUs: random.Uint32N(4)}
	case 1, 2:
		return &wire.Request{}
	case 3, 4:
		return &wire.Released{Epoch: epoch, Used: random.Uint64(), Overrun: random.Uint64(), Launches: random.Uint64N(100)}
	case 5:
		return &wire.Idle{Epoch: wire.Epoch{Epoch: epoch}}
	case 6, 7:
		return &wire.Alloc{Handle: random.Uint64(), Bytes: random.Uint64N(1 << 31), GPU: random.Uint32N(2), Family: uint16(random.UintN(8)), Flags: uint16(random.UintN(2))}
	case 8:
		return &wire.Free{Question: question}
	case 9:
		return &wire.Export{Shared: shared}
	case 10:
		return &wire.Iteration{Count: 1}
	case 11:
		return &wire.ProcessesOf{Question: question}
	}
	return &wire.Pong{}
}
