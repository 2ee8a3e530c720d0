package agent

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

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// child is a process of a job: it connects, takes the token, tells its standard output of it and keeps it.
func child(script string) {
	verb, socket, _ := strings.Cut(script, " ")
	if verb == "floods" {
		fmt.Println("ready")
		for {
			flood(socket)
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0) // inherited by what it starts
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if verb == "holds" || verb == "leaves" {
		takeToken(fd)
	}
	if verb == "leaves" { // a loader outlives it and has its socket
		loader := exec.Command("sleep", "20")
		loader.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "socket")}
		if err := loader.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("loader", loader.Process.Pid)
	}
	fmt.Println("ready")
	for {
		var packet [wire.Max]byte
		n, err := unix.Read(fd, packet[:])
		if err != nil || n == 0 {
			_, _ = io.Copy(io.Discard, os.Stdin)
			return
		}
		switch _, m, _ := wire.Parse(packet[:n]); m := m.(type) {
		case *wire.Drop:
			childSays(fd, &wire.Released{Epoch: m.Epoch})
		case *wire.Ping:
			childSays(fd, &wire.Pong{})
		}
	}
}

var childNumber wire.Sequence

func childSays(fd int, m wire.Message) {
	_, _ = unix.Write(fd, wire.Append(nil, childNumber.Next(), m))
}

// flood says all that the socket takes, and reads nothing.
func flood(socket string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil || unix.Connect(fd, &unix.SockaddrUnix{Name: socket}) != nil {
		os.Exit(0)
	}
	defer func() { _ = unix.Close(fd) }()
	var number wire.Sequence
	_, _ = unix.Write(fd, wire.Append(nil, number.Next(), &wire.Hello{}))
	for range 20_000 {
		packet := wire.Append(nil, number.Next(), &wire.View{})
		for tries := 0; tries < 1000; tries++ {
			if _, err = unix.Write(fd, packet); err == nil {
				break
			}
		}
		if err != nil {
			return
		}
	}
}

// takeToken says HELLO, charges memory and waits for the grant.
func takeToken(fd int) {
	for _, m := range []wire.Message{&wire.Hello{GPUs: 1}, &wire.Alloc{Handle: 1, Bytes: 1 << 20}, &wire.Request{}} {
		childSays(fd, m)
	}
	for {
		var packet [wire.Max]byte
		n, err := unix.Read(fd, packet[:])
		if err != nil || n == 0 {
			os.Exit(1)
		}
		if _, m, _ := wire.Parse(packet[:n]); m != nil {
			if _, granted := m.(*wire.Grant); granted {
				return
			}
		}
	}
}

// spawn starts a child and reads what it says until it is ready.
func spawn(t testing.TB, verb, socket string) (*exec.Cmd, []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WEFT_TEST_CHILD="+verb+" "+socket)
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
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var said []string
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == "ready" {
			return cmd, said
		}
		said = append(said, s.Text())
	}
	t.Fatalf("the child ended: %v", said)
	return nil, nil
}

// TestKilledHolder kills a holder: its token and its memory come back at once.
func TestKilledHolder(t *testing.T) {
	for _, verb := range []string{"holds", "leaves"} {
		t.Run(verb, func(t *testing.T) {
			within(t, 100*time.Millisecond, func(t *testing.T) time.Duration { t.Helper(); return killHolder(t, verb) })
		})
	}
}

func killHolder(t *testing.T, verb string) time.Duration {
	t.Helper()
	r := start(t, Options{})
	job := r.job(Spec{Name: "killed"})
	next := hello(t, r.job(Spec{Name: "next"}).Socket, wire.Hello{GPUs: 1})
	cmd, said := spawn(t, verb, job.Socket)
	if len(said) > 0 {
		var pid int
		if _, err := fmt.Sscanf(said[0], "loader %d", &pid); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	if m := r.stats().Jobs[0].Memory[0]; m.Used != unit.MiB {
		t.Fatalf("%+v", m)
	}
	killed := time.Now()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	next.request()
	took := time.Since(killed)
	eventually(t, "memory comes back", func() bool { return r.stats().Jobs[0].Memory[0].Used == 0 })
	if n := len(r.stats().Jobs[0].PIDs); n != 0 {
		t.Errorf("%d sessions left", n)
	}
	return took
}

// TestStoppedHolder stops a holder of the highest class while one of the lowest waits: it would never be asked for its token
// otherwise. It comes back as one that holds nothing.
func TestStoppedHolder(t *testing.T) { within(t, 100*time.Millisecond, stopHolder) }

func stopHolder(t *testing.T) time.Duration {
	t.Helper()
	r := start(t, Options{})
	job := r.job(Spec{Name: "stopped", Class: 0})
	low := hello(t, r.job(Spec{Name: "low", Class: 2}).Socket, wire.Hello{GPUs: 1})
	cmd, _ := spawn(t, "holds", job.Socket)
	low.send(&wire.Request{})
	switch m, err := low.next(200 * time.Millisecond); m.(type) { // it answers, and stays
	case nil:
		if err != nil {
			t.Fatal(err)
		}
	case *wire.Grant:
		t.Log("another try: the holder had no processor for longer than the agent waits")
		return time.Hour
	default:
		t.Fatalf("%T %+v, and nothing is to come", m, m)
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	expect[*wire.Grant](low)
	took := time.Since(stopped)
	if n := len(r.events(EventOverrun)); n != 1 {
		t.Errorf("%d overruns", n)
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "it is known again", func() (known bool) {
		r.a.do(func() {
			for _, s := range r.a.sessions {
				known = known || s.alloc.spec.Name == "stopped" && !s.token.hung && len(s.token.gpus) == 1
			}
		})
		return known
	})
	return took
}

// TestOwnerEnds ends the process that an allocation was made for: the allocation goes with it, once its processes are gone.
func TestOwnerEnds(t *testing.T) {
	r := start(t, Options{})
	owner := exec.Command("sleep", "60")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	job := r.job(Spec{Name: "owned", PID: owner.Process.Pid})
	left := hello(t, job.Socket, wire.Hello{GPUs: 1})
	_ = owner.Process.Kill()
	_ = owner.Wait()
	left.silent(30 * time.Millisecond)
	if n := len(r.stats().Jobs); n != 1 {
		t.Fatalf("%d jobs while a process of it lives", n)
	}
	left.hangUp() // this process lives: the session is away until the driver's list is asked
	r.a.do(func() {
		for _, s := range r.a.sessions {
			s.end()
		}
	})
	eventually(t, "the allocation ends", func() bool { return len(r.stats().Jobs) == 0 })
	if _, err := os.Stat(job.Dir); err == nil {
		t.Error("its folder is there still")
	}
}
