package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

func TestMain(m *testing.M) {
	if script := os.Getenv("WEFT_TEST_CHILD"); script != "" {
		child(script)
		return
	}
	runtime.GOMAXPROCS(max(8, runtime.NumCPU())) // as the command has it: the reactor waits for none of the others' threads
	goleak.VerifyTestMain(m)
}

// box is a machine without a driver.
type box struct {
	gpus []device.GPU

	mu        sync.Mutex
	processes map[int][]device.Process
	faults    []device.Fault
}

func newBox(gpus int, memory unit.Bytes) *box {
	b := &box{processes: map[int][]device.Process{}}
	for i := range gpus {
		b.gpus = append(b.gpus, device.GPU{UUID: device.UUID{15: byte(i + 1)}, Name: "A10", Total: memory, Usable: memory})
	}
	return b
}

func (b *box) GPUs() []device.GPU { return b.gpus }
func (b *box) Processes(gpu int) ([]device.Process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.processes[gpu], nil
}

func (b *box) set(gpu int, list ...device.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes[gpu] = list
}
func (b *box) Utilisation(int) (float64, error) { return 0.5, nil }
func (b *box) NextFault(wait time.Duration) (device.Fault, bool, error) {
	time.Sleep(min(wait, 10*time.Millisecond))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) == 0 {
		return device.Fault{}, false, nil
	}
	f := b.faults[0]
	b.faults = b.faults[1:]
	return f, true, nil
}
func (b *box) Close() error { return nil }

// rig is an agent under test.
type rig struct {
	testing.TB
	o Options
	a *Agent
}

func start(t testing.TB, o Options) *rig {
	t.Helper()
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "weft")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		o.Dir = dir
	}
	if o.Machine == nil {
		o.Machine = newBox(2, 16*unit.GiB)
	}
	if o.Locks == "" {
		o.Locks = filepath.Join(o.Dir, "locks")
	}
	if o.Poll == 0 {
		o.Poll = 20 * time.Millisecond
	}
	r := &rig{t, o, nil}
	r.open()
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) open() {
	r.Helper()
	a, err := Open(context.Background(), r.o)
	if err != nil {
		r.Fatal(err)
	}
	r.a = a
}

func (r *rig) close() {
	r.Helper()
	if r.a == nil {
		return
	}
	if err := r.a.Close(); err != nil {
		r.Error(err)
	}
	r.a = nil
}

// crash ends the agent as SIGKILL would: nothing is written, nobody is told.
func (r *rig) crash() {
	r.Helper()
	r.a.do(func() {
		r.a.state.path = filepath.Join(r.o.Dir, "nowhere", "state.json")
	})
	_ = r.a.Close()
	r.a = nil
}

// keeps has the agent write its state, and waits for it.
func (r *rig) keeps() {
	r.Helper()
	kept := make(chan error, 1)
	r.a.do(func() { r.a.keepThen(func(err error) { kept <- err }) })
	select {
	case err := <-kept:
		if err != nil {
			r.Fatal(err)
		}
	case <-time.After(patient):
		r.Fatalf("the state is not written within %v", patient)
	}
}

// job allocates.
func (r *rig) job(s Spec) Response {
	r.Helper()
	if s.GPUs == nil {
		s.GPUs = []string{"0"}
	}
	if s.Reserved == 0 && s.Peak == 0 {
		s.Reserved = unit.GiB
	}
	s.UID = os.Geteuid()
	answer, err := r.ask(Request{Op: OpAllocate, Spec: &s})
	if err != nil {
		r.Fatal(err)
	}
	return answer
}

func (r *rig) ask(q Request) (Response, error) {
	r.Helper()
	c, err := Dial(context.Background(), r.o.Dir)
	if err != nil {
		return Response{}, err
	}
	defer c.Close()
	return c.Ask(context.Background(), q)
}

func (r *rig) stats() *Stats {
	r.Helper()
	answer, err := r.ask(Request{Op: OpStats})
	if err != nil {
		r.Fatal(err)
	}
	return answer.Stats
}

// events are those of a type.
func (r *rig) events(kind string) []Event {
	r.Helper()
	answer, err := r.ask(Request{Op: OpEvents})
	if err != nil {
		r.Fatal(err)
	}
	var list []Event
	for _, e := range answer.Events {
		if e.Type == kind {
			list = append(list, e)
		}
	}
	return list
}

// audit holds the ledgers' books to balance.
func (r *rig) audit() {
	r.Helper()
	r.a.do(func() {
		for _, g := range r.a.gpus {
			if err := g.ledger.Audit(); err != nil {
				r.Error(err)
			}
		}
	})
}

// process is the shim's end of a connection, driven by a test.
type process struct {
	testing.TB
	fd      int
	in, out wire.Sequence
	welcome *wire.Welcome
	dropped *wire.Drop // the last one that was skipped
}

var errHungUp = errors.New("hung up")

func connect(t testing.TB, socket string) *process {
	t.Helper()
	p, err := tryConnect(t, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.hangUp)
	return p
}

func tryConnect(t testing.TB, socket string) (*process, error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect %s: %w", socket, err)
	}
	return &process{TB: t, fd: fd}, nil
}

// hello connects and says HELLO.
func hello(t testing.TB, socket string, h wire.Hello) *process {
	t.Helper()
	p := connect(t, socket)
	p.send(&h)
	w, ok := p.receive().(*wire.Welcome)
	if !ok {
		t.Fatalf("no WELCOME")
	}
	p.welcome = w
	return p
}

func (p *process) hangUp() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
		p.fd = -1
	}
}

func (p *process) send(m wire.Message) {
	p.Helper()
	if err := p.trySend(m); err != nil {
		p.Fatalf("send %T: %v", m, err)
	}
}

func (p *process) trySend(m wire.Message) error {
	return p.raw(wire.Append(nil, p.out.Next(), m))
}

func (p *process) raw(packet []byte) error {
	_, err := unix.SendmsgN(p.fd, packet, nil, nil, unix.MSG_NOSIGNAL)
	return err
}

// try waits for a message so long; nil when none came. Pings are answered on the way.
func (p *process) try(wait time.Duration) (wire.Message, error) {
	until := time.Now().Add(wait)
	for {
		set := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		left := max(0, time.Until(until))
		n, err := unix.Poll(set, int((left+time.Millisecond-1)/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return nil, err
		}
		var packet [wire.Max]byte
		n, err = unix.Read(p.fd, packet[:])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errHungUp
		}
		number, m, err := wire.Parse(packet[:n])
		if err != nil {
			return nil, err
		}
		if !p.in.Take(number) {
			return nil, fmt.Errorf("message %d out of sequence", number)
		}
		if _, ping := m.(*wire.Ping); ping {
			_ = p.trySend(&wire.Pong{}) // an agent that has hung up meanwhile has said why
			continue
		}
		return m, nil
	}
}

// patient is how long a test waits for what is to happen at once, on a machine that does other things too.
const patient = 30 * time.Second

func (p *process) receive() wire.Message {
	p.Helper()
	m, err := p.try(patient)
	if err != nil || m == nil {
		p.Fatalf("no message: %v", err)
	}
	return m
}

// silent holds the agent to say nothing for a while, but of windows.
func (p *process) silent(wait time.Duration) {
	p.Helper()
	if m, err := p.next(wait); m != nil || err != nil {
		p.Fatalf("%T %+v %v, and nothing is to come", m, m, err)
	}
}

// next is as try, but of other messages than those about windows.
func (p *process) next(wait time.Duration) (wire.Message, error) {
	m, err := p.try(wait)
	for _, narrow := m.(*wire.Narrow); narrow; _, narrow = m.(*wire.Narrow) {
		m, err = p.try(wait)
	}
	return m, err
}

// refused holds the agent to refuse and to hang up.
func (p *process) refused(reason wire.Refusal) {
	p.Helper()
	for {
		m, err := p.try(patient)
		if r, ok := m.(*wire.Refused); ok {
			if r.Reason != reason || r.Version != wire.Version {
				p.Fatalf("refused for %+v, want %d", r, reason)
			}
			if m, err := p.try(patient); m != nil || err == nil {
				p.Fatalf("%T %v after it was refused", m, err)
			}
			return
		}
		if err != nil || m == nil {
			p.Fatalf("not refused: %v", err)
		}
	}
}

// expect receives a message of a type, and skips those about windows, yields, drops that crossed a release, and others' wants.
func expect[M wire.Message](p *process) M {
	p.Helper()
	for {
		m := p.receive()
		if wanted, ok := m.(M); ok {
			return wanted
		}
		switch m := m.(type) {
		case *wire.Narrow, *wire.Yield, *wire.Wanted:
		case *wire.Drop:
			p.dropped = m
		default:
			var want M
			p.Fatalf("%T %+v, want %T", m, m, want)
		}
	}
}

// use says USE, request REQUEST and waits for the grant.
func (p *process) use(gpus uint32) { p.Helper(); p.send(&wire.Use{GPUs: gpus}) }

func (p *process) request() *wire.Grant {
	p.Helper()
	p.send(&wire.Request{})
	return expect[*wire.Grant](p)
}

func (p *process) release(epoch uint64) {
	p.Helper()
	p.send(&wire.Released{Epoch: epoch, Used: 1000, Launches: 1})
}

// allocate asks for memory and waits for the answer.
func (p *process) allocate(handle uint64, bytes unit.Bytes) *wire.Memory {
	p.Helper()
	p.send(&wire.Alloc{Handle: handle, Bytes: uint64(bytes)})
	return expect[*wire.Memory](p)
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(patient); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, patient)
}

// within holds that something takes so long at most, in the best of a few tries: this machine may do other things.
func within(t *testing.T, bound time.Duration, try func(t *testing.T) time.Duration) {
	t.Helper()
	best := time.Hour
	for range 5 {
		if best = min(best, try(t)); best <= bound {
			return
		}
	}
	t.Errorf("%v in the best of five tries, and at most %v is allowed", best, bound)
}

var quick = arbiter.Options{MaxDrain: 40 * time.Millisecond, Settle: 300 * time.Millisecond}

// unhurried is for tests in which the agent is to give up nobody, however long this machine does other things: neither a holder that
// was told to release, nor one that it waits for after a restart.
var unhurried = arbiter.Options{MaxDrain: patient, Settle: patient}
