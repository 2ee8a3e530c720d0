package emugpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv("WEFT_EMU_TEST_CHILD"); socket != "" {
		child(socket)
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what takes milliseconds, on a machine that does other things too.
const patience = 20 * time.Second

// eventually waits for something that another process or thread brings about.
func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(ms) {
		if time.Now().After(end) {
			t.Fatal("does not happen")
		}
	}
}

// other is another process with a context and memory, that does what it is told: "launch NS", "wait", "fork".
type other struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startOther(t *testing.T, socket string) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WEFT_EMU_TEST_CHILD="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &other{cmd, in, bufio.NewReader(out)}
	t.Cleanup(o.kill)
	o.expect(t, "ready")
	return o
}

func (o *other) pid() int { return o.cmd.Process.Pid }

func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

func (o *other) expect(t *testing.T, want string) {
	t.Helper()
	if line, err := o.out.ReadString('\n'); strings.TrimSpace(line) != want {
		t.Fatalf("the other process said %q (%v), want %q", line, err, want)
	}
}

// tell has the other process do something and waits until it says that it did.
func (o *other) tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(o.in, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
	o.expect(t, "done")
}

// child is the other process.
func child(socket string) {
	d, err := tryAttach(socket, "other")
	if err != nil {
		panic(err)
	}
	c, err := d.tryContext(0)
	if err != nil {
		panic(err)
	}
	if _, err := d.alloc(0, unit.GiB); err != nil {
		panic(err)
	}
	s, me, last := c.null(), d.enter(), uint64(0)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var cost time.Duration
		switch {
		case lines.Text() == "wait":
			s.wait(me, last)
		case lines.Text() == "fork": // a child that holds all descriptors
			cmd := exec.Command("sleep", "100")
			for fd := 3; fd < 64; fd++ {
				if f := os.NewFile(uintptr(fd), ""); f != nil {
					if _, err := f.Stat(); err == nil {
						cmd.ExtraFiles = append(cmd.ExtraFiles, f)
					}
				}
			}
			if raw, err := d.o.c.File(); err == nil {
				cmd.ExtraFiles = append(cmd.ExtraFiles, raw)
			}
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			fmt.Println(cmd.Process.Pid)
		default:
			if _, err := fmt.Sscanf(lines.Text(), "launch %d", &cost); err != nil {
				panic(lines.Text())
			}
			last = s.launch(cost)
		}
		fmt.Println("done")
	}
	os.Exit(0)
}

// TestDeadProcessFreesEverything, also while a child of it lives on with its descriptors.
func TestDeadProcessFreesEverything(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "mine")
	me, s := d.enter(), d.context(t, 0).null()
	o := startOther(t, b.Socket())
	if _, err := fmt.Fprintln(o.in, "fork"); err != nil {
		t.Fatal(err)
	}
	line, _ := o.out.ReadString('\n')
	var heir int
	if _, err := fmt.Sscan(line, &heir); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	defer func() { _ = syscall.Kill(heir, syscall.SIGKILL) }()
	o.expect(t, "done")
	if err := b.Fault(Fault{Kind: Hang, GPU: 0, Number: 1}); err != nil {
		t.Fatal(err)
	}
	o.tell(t, "launch 1000")
	eventually(t, func() bool { return b.Stats().GPUs[0].Launches == 1 })
	if s.wait(me, s.launch(ms)) != 0 {
		t.Error("an endless kernel of another process stops this one")
	}
	o.kill()
	eventually(t, func() bool { return b.Stats().GPUs[0].Used == 256*unit.MiB })
	stats := b.Stats()
	gone := stats.Processes[0]
	if !gone.Ended || int(gone.PID) != o.pid() || gone.GPUs[0].Bytes != 0 || gone.GPUs[0].Peak != unit.GiB+256*unit.MiB ||
		gone.GPUs[0].Busy == 0 || gone.GPUs[0].Kernels != 0 {
		t.Errorf("what ended: %+v", gone)
	}
	busy := stats.GPUs[0].Busy
	d.sleep(me, 5*ms)
	if after := b.Stats().GPUs[0].Busy; after != busy {
		t.Errorf("the endless kernel runs on: busy %v, %v", busy, after)
	}
}

// TestProcessesAreListed as NVML does: by pid, with what each holds.
func TestProcessesAreListed(t *testing.T) {
	b := start(t, 2, Options{})
	for range 2 {
		startOther(t, b.Socket())
	}
	d := attach(t, b.Socket(), "watcher")
	r := d.do(t, request{Op: uint32(opProcesses)})
	if r.Count != 2 || r.C != 2 {
		t.Errorf("%d of %d processes", r.Count, r.C)
	}
	if r := d.do(t, request{Op: uint32(opProcesses), A: 1}); r.Count != 1 || r.C != 2 {
		t.Errorf("%d of %d processes after one", r.Count, r.C)
	}
	if r := d.do(t, request{Op: uint32(opProcesses), A: 1 << 40, GPU: 1}); r.Count != 0 || r.C != 0 {
		t.Errorf("%d of %d processes on gpu 1", r.Count, r.C)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.usages(0) {
		if u.Bytes != uint64(unit.GiB+256*unit.MiB) || u.Contexts != 1 {
			t.Errorf("%+v", u)
		}
	}
}

// TestSlowdownOfNamedPrograms also shows that two processes share by slices.
func TestSlowdownOfNamedPrograms(t *testing.T) {
	b := start(t, 1, Options{Clock: Virtual, Slice: ms, Slowdown: map[model.Pair]float64{{Of: "x", Beside: "y"}: 2}})
	x, y := attach(t, b.Socket(), "x"), attach(t, b.Socket(), "y")
	mine, theirs := x.enter(), y.enter()
	sx, sy := x.context(t, 0).null(), y.context(t, 0).null()
	nx, ny := sx.launch(5*ms), sy.launch(5*ms)
	ended := make(chan uint64)
	go func() {
		sy.wait(theirs, ny)
		ended <- y.now()
	}()
	sx.wait(mine, nx)
	if now := x.now(); now != uint64(19*ms) { // ten turns of half a millisecond's work, nine of y's between them
		t.Errorf("x ends at %v, want 19ms", time.Duration(now))
	}
	x.leave(mine)
	if now := <-ended; now != uint64(19*ms+500*time.Microsecond) { // half a millisecond was left, alone
		t.Errorf("y ends at %v, want 19.5ms", time.Duration(now))
	}
}
