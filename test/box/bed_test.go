package box

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/web/client"
	"weft.dev/weft/test/suite"
)

// patience is how long a part may take to do what it is asked for, on a machine that does other things, too.
const patience = 30 * time.Second

// bed is a state folder with a daemon of its own, which may be killed and started again.
type bed struct {
	t     *testing.T
	dir   string // of all
	state string
	flags []string
	env   []string
	said  *suite.Log
	*client.Client

	mu   sync.Mutex
	cmd  *exec.Cmd // nil while none runs
	page string    // address with its token, as the daemon said it
}

// newBed makes the folders. The daemon is to be started.
func newBed(t *testing.T, flags ...string) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "wb-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dir: dir, state: filepath.Join(dir, "state"), flags: flags, said: &suite.Log{}}
	b.env = append(clean(os.Environ()), "WEFT_LIB="+built.Lib, "WEFT_RUNTIME_DIR="+filepath.Join(dir, "run"), "WEFT_CONFIG="+filepath.Join(dir, "config.yaml"), "HOME="+dir)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.tearDown() })
	return b
}

// clean is an environment without what is weft's.
func clean(environment []string) []string {
	var own []string
	for _, v := range environment {
		if !strings.HasPrefix(v, "WEFT_") && !strings.HasPrefix(v, "CUDA_") && !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "XDG_") {
			own = append(own, v)
		}
	}
	return own
}

// up is a bed whose daemon runs on so many emulated GPUs.
func up(t *testing.T, gpus int, flags ...string) *bed {
	t.Helper()
	b := newBed(t, append([]string{"--emulate", strconv.Itoa(gpus), "--gpu-memory", "16GiB"}, flags...)...)
	b.start()
	return b
}

// start starts the daemon and waits until it serves.
func (b *bed) start() {
	b.t.Helper()
	if err := b.tryStart(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) tryStart() error {
	cmd := exec.Command(built.Weft, append([]string{"up", "--state", b.state, "--listen", "127.0.0.1:0", "--grace", "2s"}, b.flags...)...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = b.env, b.said, patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal for it alone
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	ready := make(chan error, 1)
	go func() {
		for {
			line, err := lines.ReadString('\n')
			if address, ok := strings.CutPrefix(line, "page: "); ok {
				b.mu.Lock()
				b.page = strings.TrimSpace(address)
				b.mu.Unlock()
			}
			if err != nil || strings.HasPrefix(line, "page: ") {
				ready <- err
				break
			}
		}
		_, _ = io.Copy(io.Discard, lines) // nothing that it says later may block it
	}()
	select {
	case err = <-ready:
	case <-time.After(patience):
		err = fmt.Errorf("it said nothing for %v", patience)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("weft up: %w, %w: %s", err, cmd.Wait(), b.said)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cmd = cmd
	b.Client = client.New(filepath.Join(b.state, client.SocketName))
	return nil
}

// kill ends the daemon as a crash would.
func (b *bed) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait() // killed, as wanted
	b.cmd = nil
}

// end asks the daemon to end, and returns its exit status.
func (b *bed) end() int {
	b.t.Helper()
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() {
		b.t.Error("weft up did not end")
		_ = b.cmd.Process.Kill()
	})
	defer timer.Stop()
	_ = b.cmd.Wait() // its status says it
	code := b.cmd.ProcessState.ExitCode()
	b.cmd = nil
	return code
}

// tearDown stops what runs, and holds that nothing is left of it.
func (b *bed) tearDown() {
	b.t.Helper()
	if b.cmd != nil {
		b.stopAll()
		if code := b.end(); code != 0 {
			b.t.Errorf("weft up ended with %d", code)
		}
	}
	left := b.processes()
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = b.processes() // the emulated GPUs were asked to end
	}
	if len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it is of this bed
		}
	}
	if strings.Contains(b.said.String(), "DATA RACE") || strings.Contains(b.said.String(), "panic:") {
		b.t.Error("the daemon has a fault")
	}
	if b.t.Failed() {
		b.t.Log(b.said.String())
	}
	_ = os.RemoveAll(b.dir)
}

// stopAll stops all jobs and waits for their end.
func (b *bed) stopAll() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	jobs, err := b.Jobs(ctx, false, "")
	if err != nil {
		b.t.Error(err)
		return
	}
	slices.Reverse(jobs) // those that wait first: they would start
	for _, j := range jobs {
		_, _ = b.Stop(ctx, j.ID) // it may have ended
	}
	for _, j := range jobs {
		if _, err := b.Wait(ctx, j.ID); err != nil {
			b.t.Errorf("job %d does not end: %v", j.ID, err)
			return
		}
	}
}

// processes are those that have something of this bed in their environment or their arguments, with their command lines.
func (b *bed) processes() map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc") // it is there
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environment, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // it may have ended
		command, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.Contains(environment, []byte(b.dir+"/")) || bytes.Contains(command, []byte(b.dir+"/")) {
			found[pid] = strings.ReplaceAll(string(command), "\x00", " ")
		}
	}
	return found
}

// weft is a command of this bed, to be run by the caller.
func (b *bed) weft(arguments ...string) *exec.Cmd {
	cmd := exec.Command(built.Weft, arguments...)
	cmd.Env, cmd.WaitDelay = append(slices.Clip(b.env), "WEFT_STATE="+b.state), patience
	return cmd
}

// result is what a command did.
type result struct {
	out, err string
	code     int
}

// run runs a command to its end.
func (b *bed) run(arguments ...string) result { return finish(b.weft(arguments...)) }

// finish runs a command to its end. Its output is in the result, but what goes elsewhere already.
func finish(cmd *exec.Cmd) result {
	var out, err bytes.Buffer
	if cmd.Stderr = &err; cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if fault := cmd.Run(); fault != nil && cmd.ProcessState == nil {
		return result{code: -1, err: fault.Error()}
	}
	return result{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

// spec is a job that runs a line of shell.
func spec(line string, change ...func(*box.Spec)) box.Spec {
	s := box.Spec{Name: "test", Command: []string{"sh", "-c", line}, Path: "/bin/sh", Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Floor: 0.5, GPUs: 1,
		Memory: unit.GiB, Priority: 10}
	for _, c := range change {
		c(&s)
	}
	return s
}

// submit hands a job in.
func (b *bed) submit(s box.Spec) box.ID {
	b.t.Helper()
	ids, err := b.Submit(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return ids[0]
}

// done waits for a job's end.
func (b *bed) done(id box.ID) box.Job {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*patience)
	defer cancel()
	j, err := b.Wait(ctx, id)
	if err != nil || j.State != box.Done {
		b.t.Fatalf("job %d: %v: %s %+v", id, err, j.State, j.Reason)
	}
	return j
}

// until waits until a job is as it is to be.
func (b *bed) until(id box.ID, what string, is func(*box.Job) bool) box.Job {
	b.t.Helper()
	for end := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		j, err := b.Job(b.t.Context(), id)
		if err == nil && is(&j) {
			return j
		}
		if time.Now().After(end) {
			b.t.Fatalf("job %d is not %s: %v: %+v", id, what, err, j)
		}
	}
}

func runs(j *box.Job) bool { return j.State == box.Running }

// output is what a job wrote so far.
func (b *bed) output(id box.ID) (stdout, stderr string) {
	b.t.Helper()
	in, err := b.Log(b.t.Context(), id, 0, false)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // only read from
	var streams [256]bytes.Buffer
	frames := shepherd.NewDecoder(in)
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return streams[shepherd.Stdout].String(), streams[shepherd.Stderr].String()
		}
		if err != nil {
			b.t.Fatal(err)
		}
		streams[f.Stream].Write(f.Bytes)
	}
}

// untilPrinted waits until what a job wrote is as it is to be.
func (b *bed) untilPrinted(id box.ID, what string, is func(stdout string) bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		stdout, stderr := b.output(id)
		if is(stdout) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("job %d has not printed %s: %q %q", id, what, stdout, stderr)
		}
	}
}

// program is the path of a program that is built beside libweft.so.
func program(name string) string { return filepath.Join(built.Lib, name) }
