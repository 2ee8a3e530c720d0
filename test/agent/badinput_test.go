package agent

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/wire"
	"weft.dev/weft/test/suite"
)

// said wants a program to have said a line of weft's so many times, and nothing else of weft's.
func said(t *testing.T, p *bench.Program, line string, times int) {
	t.Helper()
	if times > 0 {
		within(t, "stderr", &p.Errors, line, times)
	}
	within(t, "stderr", &p.Errors, "weft: ", times)
}

// preloaded starts a program of nobody with the library, and with a socket in its environment.
func preloaded(t *testing.T, b *bench.Bed, socket, name string, arguments ...string) *bench.Program {
	t.Helper()
	p := b.Command(soon(t), nil, name, arguments...)
	p.Setenv("LD_PRELOAD="+filepath.Join(built.Lib, "libweft.so"), "WEFT_SOCKET="+socket)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// stale is a socket on which nobody listens any more.
func stale(t *testing.T) string {
	t.Helper()
	path, fd := packets(t)
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	return path
}

// packets is a socket of packets.
func packets(t *testing.T) (path string, fd int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-socket-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "agent.sock")
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	return path, fd
}

// newer is an agent of another version: it refuses whoever comes, in a packet of that version.
func newer(t *testing.T, version uint16) string {
	t.Helper()
	path, fd := packets(t)
	if err := unix.Listen(fd, 64); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			peer, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			var hello [wire.Max]byte
			_, _ = unix.Read(peer, hello[:]) // whatever it says
			packet := wire.Append(nil, 1, &wire.Refused{Reason: wire.RefusedVersion, Version: uint32(version)})
			packet[4], packet[5] = byte(version), byte(version>>8)
			_, _ = unix.Write(peer, packet) // it may be gone
			_ = unix.Close(peer)            // all is said
		}
	}()
	t.Cleanup(func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends the wait
		<-ended
		_ = unix.Close(fd) // nothing is in it
	})
	return path
}

// TestBadInputNoAgent runs programs of several threads and processes where no agent can be reached: it is said once by each
// process that starts, they run unshared, and what they print is theirs.
func TestBadInputNoAgent(t *testing.T) {
	suite.Long(t)
	b := bed(t, 1)
	starts := program(t, "starts")
	none, old, other, long := filepath.Join(b.AgentDir(), "none"), stale(t), newer(t, 3), "/"+strings.Repeat("x", 120)
	for _, c := range []struct {
		name, socket string
		lines        []string
	}{
		{"no socket", none, []string{"weft: no agent at " + none + ": runs unshared; weft exec starts it as a job\n"}},
		{"no path", long, []string{"weft: no agent at " + long + " (File name too long): runs unshared; weft exec starts it as a job\n"}},
		{"stale socket", old, []string{"weft: agent at " + old + " does not answer: reconnecting\n", "weft: no agent at " + old + ": runs unshared; weft exec starts it as a job\n"}},
		{"another version", other, []string{"weft: agent at " + other + " speaks protocol 3, this libweft.so 1: runs unshared; restart the job with the agent's libweft.so\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, run := range []struct {
				arguments []string
				times     int
			}{{[]string{"4", "0", "3"}, 1}, {[]string{"2", "2", "1"}, 3}} {
				before := counters(t, b).Launches
				p := preloaded(t, b, c.socket, starts, run.arguments...)
				if code := ends(t, p); code != 0 || p.Out.String() != "done\n" {
					t.Errorf("it ended with %d: %s", code, p.Out.String())
				}
				want := 0
				for _, line := range c.lines {
					within(t, "stderr", &p.Errors, line, run.times)
					want += run.times
				}
				within(t, "stderr", &p.Errors, "\n", want)
				if counters(t, b).Launches == before {
					t.Error("it launched nothing")
				}
			}
		})
	}
}

// TestBadInputNoDriver runs a program where there is no driver: what it says is its own, and weft adds nothing.
func TestBadInputNoDriver(t *testing.T) {
	b := bed(t, 1)
	p := b.Command(soon(t), nil, "weft-probe", "memory")
	p.Setenv("LD_PRELOAD="+filepath.Join(built.Lib, "libweft.so"), "LD_LIBRARY_PATH=/nowhere", "WEFT_SOCKET=/nowhere/agent.sock")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := ends(t, p); code != 1 || p.Out.Len() > 0 {
		t.Errorf("it ended with %d: %s", code, p.Out.String())
	}
	within(t, "stderr", &p.Errors, "weft-probe: no CUDA driver: libcuda.so.1: cannot open shared object file: No such file or directory; install one", 1)
	said(t, p, "weft: ", 0)
}

// weft runs weft itself without the emulated GPUs, and returns its exit code and what it printed.
func weft(t *testing.T, arguments ...string) (code int, out, errors string) {
	t.Helper()
	cmd := exec.CommandContext(soon(t), built.Weft, arguments...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "WEFT_LIB=" + built.Lib}
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		code = exitCode(t, err)
	}
	return code, o.String(), e.String()
}

// TestBadInputCommands gives the commands what cannot be: exit codes and texts as documented, and the program does not start.
func TestBadInputCommands(t *testing.T) {
	b := bed(t, 1)
	dir := t.TempDir()
	job := func(flags ...string) []string {
		return append(append([]string{"exec", "--socket", b.AgentDir()}, flags...), "--", "echo", "started")
	}
	for _, c := range []struct {
		name      string
		arguments []string
		code      int
		says      []string
	}{
		{"no driver", []string{"agent", "--local", "--dir", dir, "--locks", dir, "--nvml", "/nowhere"}, 2, []string{"no GPU", "this machine", "--emulate"}},
		{"no agent", []string{"exec", "--socket", dir, "--", "echo", "started"}, 4, []string{"no agent at " + dir, "weft agent --local --dir " + dir}},
		{"limit of zero", job("--reserved", "0"), 2, []string{"limit 0 B: min 256 MiB", "--reserved", "--reserved 1GiB"}},
		{"limit of zero in all", job("--reserved", "0", "--peak", "0"), 2, []string{"limit 0 B: min 256 MiB"}},
		{"limit above the GPU", job("--reserved", "40GiB"), 2, []string{"limit 40.0 GiB, GPU 22.5 GiB", "--reserved", "at most 22.5 GiB"}},
		{"peak above the GPU", job("--reserved", "20GiB", "--peak", "20GiB"), 2, []string{"limit 40.0 GiB, GPU 22.5 GiB"}},
		{"limit beyond all numbers", job("--reserved", "8000000000GiB", "--peak", "8000000000GiB"), 2, []string{"--reserved"}},
		{"no GPU of the number", job("--gpu", "7"), 2, []string{`no GPU "7"`, "the agent has 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errors := weft(t, c.arguments...)
			if code != c.code || out != "" {
				t.Errorf("it ended with %d, not %d: %s", code, c.code, out)
			}
			for _, text := range c.says {
				if !strings.Contains(errors, text) {
					t.Errorf("%q is missing in:\n%s", text, errors)
				}
			}
			if n := strings.Count(errors, "error: "); n != 1 {
				t.Errorf("%d errors:\n%s", n, errors)
			}
		})
	}
	if n := len(jobs(t, b)); n > 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// TestBadInputEnvironment has variables that try to raise a limit, or to see other GPUs: what the allocation says stands.
func TestBadInputEnvironment(t *testing.T) {
	b := bed(t, 2)
	starts := program(t, "starts")
	const limit = 1 << 30
	for _, c := range []struct {
		variable, line string
		total          int64
	}{
		{"WEFT_MEMORY=40GiB", "weft: WEFT_MEMORY=40GiB may only lower the job's limit of 1 GiB: ignored; weft exec --peak asks for more\n", limit},
		{"WEFT_MEMORY=0MiB", "weft: WEFT_MEMORY=0MiB: min 256 MiB: ignored\n", limit},
		{"WEFT_MEMORY=0", "weft: WEFT_MEMORY=0 is not a size such as 512MiB or 10GiB: ignored\n", limit},
		{"WEFT_MEMORY=-1GiB", "weft: WEFT_MEMORY=-1GiB is not a size such as 512MiB or 10GiB: ignored\n", limit},
		{"WEFT_MEMORY=512MiB", "", 512 << 20},
		{"WEFT_SOCKET=/nowhere", "", limit}, // weft exec says where it is
		{"CUDA_VISIBLE_DEVICES=0,1", "", limit},
		{"CUDA_VISIBLE_DEVICES=", "", limit},
		{"WEFT_LIMIT=40GiB", "", limit},
		{"CUDA_DEVICE_MEMORY_LIMIT=40g", "", limit},
	} {
		t.Run(c.variable, func(t *testing.T) {
			run := func(name string, arguments ...string) *bench.Program {
				p := b.Command(soon(t), &bench.Job{Name: "raised", GPUs: "1", Reserved: "1GiB"}, name, arguments...)
				p.Setenv(c.variable)
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				if code := ends(t, p); code != 0 {
					t.Fatalf("it ended with %d: %s", code, p.Errors.String())
				}
				return p
			}
			times := 1
			if c.line == "" {
				times = 0
			}
			p := run("weft-probe", "memory")
			said(t, p, c.line, times)
			var memory struct {
				Managed int   `json:"managed"`
				Total   int64 `json:"total_bytes"`
				Most    int64 `json:"allocated_bytes"`
			}
			if err := json.Unmarshal(p.Out.Bytes(), &memory); err != nil || memory.Managed != 1 || memory.Total != c.total || memory.Most == 0 || memory.Most > c.total {
				t.Errorf("%v: %s", err, p.Out.String())
			}
			p = run(starts, "4", "0", "2")
			said(t, p, c.line, times)
			if p.Out.String() != "done\n" {
				t.Errorf("it printed %s", p.Out.String())
			}
		})
	}
	held(t, b)
}
