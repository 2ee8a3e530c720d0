package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/unit"
)

// TestMain makes this program the shepherd of its own tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shepherd" {
		os.Exit(shepherd.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// machine is GPUs that nobody computes on: programs of these tests use none.
type machine struct {
	gpus []device.GPU

	mu        sync.Mutex
	processes map[int][]device.Process
	faults    chan device.Fault
}

func newMachine(gpus int, memory unit.Bytes) *machine {
	m := &machine{processes: map[int][]device.Process{}, faults: make(chan device.Fault, 8)}
	for i := range gpus {
		m.gpus = append(m.gpus, device.GPU{UUID: device.UUID{0: byte(i + 1)}, Name: "test", PCI: fmt.Sprintf("0000:%02x:00.0", i), Total: memory, Usable: memory})
	}
	return m
}

func (m *machine) GPUs() []device.GPU { return m.gpus }

func (m *machine) Processes(gpu int) ([]device.Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processes[gpu], nil
}

func (m *machine) Utilisation(int) (float64, error) { return 0, nil }

func (m *machine) NextFault(wait time.Duration) (device.Fault, bool, error) {
	select {
	case f := <-m.faults:
		return f, true, nil
	case <-time.After(wait):
		return device.Fault{}, false, nil
	}
}

func (m *machine) Close() error { return nil }

// bench is a box for a test, which may be closed and opened again.
type bench struct {
	t       *testing.T
	o       Options
	machine *machine
	*Box
}

func options(t *testing.T, m *machine) Options {
	t.Helper()
	libraries, err := filepath.Abs("../../bin/lib")
	if err == nil {
		_, err = os.Stat(filepath.Join(libraries, "libweft.so"))
	}
	if err != nil {
		t.Skipf("SKIPPED: make build makes libweft.so: %v", err)
	}
	state, err := os.MkdirTemp("", "weft-local-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	return Options{State: state, Executable: "/proc/self/exe", Libraries: libraries, Grace: time.Second, Window: time.Second,
		Agent: agent.Options{Machine: m, Locks: filepath.Join(state, "locks")}}
}

func open(t *testing.T, gpus int, change ...func(*Options)) *bench {
	t.Helper()
	m := newMachine(gpus, 16*unit.GiB)
	b := &bench{t: t, o: options(t, m), machine: m}
	for _, c := range change {
		c(&b.o)
	}
	b.reopen()
	t.Cleanup(func() {
		b.endAll()
		_ = b.Close()
	})
	return b
}

func (b *bench) reopen() {
	b.t.Helper()
	var err error
	if b.Box, err = Open(context.Background(), b.o); err != nil {
		b.t.Fatal(err)
	}
}

// me is the caller of a test.
var me = box.Caller{UID: os.Geteuid(), GID: os.Getegid(), Admin: true}

// endAll stops what lives still.
func (b *bench) endAll() {
	for _, j := range b.Jobs(me, false, "") {
		_, _ = b.Stop(me, j.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, j := range b.Jobs(me, false, "") {
		_, _ = b.Wait(ctx, me, j.ID)
	}
}

// spec is a job that runs a line of shell.
func spec(line string, change ...func(*box.Spec)) box.Spec {
	s := box.Spec{Name: "test", Command: []string{"sh", "-c", line}, Path: "/bin/sh", Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Floor: 0.5, GPUs: 1, Memory: unit.GiB}
	for _, c := range change {
		c(&s)
	}
	return s
}

func (b *bench) submit(line string, change ...func(*box.Spec)) box.ID {
	b.t.Helper()
	ids, err := b.Submit(me, spec(line, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	return ids[0]
}

// done waits for a job's end.
func (b *bench) done(id box.ID) box.Job {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	j, err := b.Wait(ctx, me, id)
	if err != nil || j.State != box.Done {
		b.t.Fatalf("job %d: %v, %s: %+v", id, err, j.State, j.Reason)
	}
	return j
}

// until waits until a job is in a state.
func (b *bench) until(id box.ID, what string, is func(box.Job) bool) box.Job {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		j, err := b.Job(me, id)
		if err != nil {
			b.t.Fatal(err)
		}
		if is(j) {
			return j
		}
		if time.Now().After(end) {
			b.t.Fatalf("job %d is not %s: %+v", id, what, j)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// patience is how long anything may take on a machine that does other things, too.
const patience = 30 * time.Second

// eventually waits for something to be so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// goes is a file that jobs wait for, so that they run as long as a test needs them to.
type goes struct {
	t    *testing.T
	path string
}

func newGo(t *testing.T) goes {
	t.Helper()
	return goes{t, filepath.Join(t.TempDir(), "go")}
}

// awaited is a line of shell that waits for it.
func (g goes) awaited() string {
	return fmt.Sprintf("until [ -e '%s' ]; do sleep 0.05; done; ", g.path)
}

func (g goes) say() {
	g.t.Helper()
	if err := os.WriteFile(g.path, nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// untilLogged waits until a job has written a text.
func (b *bench) untilLogged(id box.ID, text string) {
	b.t.Helper()
	eventually(b.t, text, func() bool { return strings.Contains(b.log(id), text) })
}

func running(j box.Job) bool { return j.State == box.Running }

// log is all that a job wrote.
func (b *bench) log(id box.ID) string {
	b.t.Helper()
	path, _, err := b.Log(me, id)
	if err != nil {
		b.t.Fatal(err)
	}
	l, err := shepherd.Open(path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var text strings.Builder
	for {
		f, err := l.Next()
		if err != nil {
			return text.String()
		}
		text.Write(f.Bytes)
	}
}

// refused is the error of a call as box has it.
func refused(t *testing.T, err error) *box.Error {
	t.Helper()
	var e *box.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *box.Error", err)
	}
	return e
}

// alive says whether a process is there and no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	text, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(text), "Z")
}

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
