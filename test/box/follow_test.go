package box

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/test/suite"
)

// TestInputs: what goes into weft run comes to the program, from a pipe, a file and a terminal.
func TestInputs(t *testing.T) {
	b := up(t, 1)
	const text = "one\ntwo \x00\xff without an end"
	pipe := b.weft("run", "--", "cat")
	pipe.Stdin = strings.NewReader(text)
	if r := finish(pipe); r.code != 0 || r.out != text {
		t.Errorf("a pipe: %+v", r)
	}
	path := filepath.Join(b.dir, "input")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read from
	file := b.weft("run", "--", "cat")
	file.Stdin = f
	if r := finish(file); r.code != 0 || r.out != text {
		t.Errorf("a file: %+v", r)
	}
	if r := b.run("run", "--", "cat"); r.code != 0 || r.out != "" {
		t.Errorf("nothing: %+v", r)
	}
	needs(t, "script")
	terminal := exec.Command("script", "-qec", built.Weft+" run -- head -n 1", "/dev/null")
	terminal.Env = append(b.env, "WEFT_STATE="+b.state, "SHELL=/bin/sh")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	terminal.Stdin = in
	timer := time.AfterFunc(time.Second, func() { _, _ = out.WriteString("typed\n") }) // a terminal is typed into later
	defer timer.Stop()
	if r := finish(terminal); r.code != 0 || strings.Count(r.out, "typed") < 1 {
		t.Errorf("a terminal: %+v", r)
	}
	_ = out.Close() // all is written
	_ = in.Close()
}

// TestInterruptedRun sends Ctrl-C to weft run at every time of its life: nothing is left of the job.
func TestInterruptedRun(t *testing.T) {
	b := up(t, 1)
	tries := 20
	if testing.Short() || suite.Raced {
		tries = 4
	}
	for i := range tries {
		cmd := b.weft("run", "--", "sh", "-c", "sleep 1000 & setsid sleep 1001 & sleep 1002")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(i) * 1200 * time.Millisecond / time.Duration(tries)
		time.Sleep(after)
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its status says it
		timer.Stop()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if code := status.ExitStatus(); code != 130 && !(status.Signaled() && status.Signal() == syscall.SIGINT) {
			t.Errorf("after %v: exit %d, %q", after, code, said.String())
		}
		if left := b.jobProcesses(); len(left) > 0 {
			t.Errorf("after %v: left behind: %v", after, left)
		}
		jobs, err := b.Jobs(t.Context(), false, "")
		if err != nil || len(jobs) > 0 {
			t.Errorf("after %v: %v %+v", after, err, jobs)
		}
	}
}

// TestFollowersSurviveRestarts kills the daemon under a weft run and a weft logs -f: both tell all of the output, byte for byte.
func TestFollowersSurviveRestarts(t *testing.T) {
	b := up(t, 1)
	const line = `i=0; while [ $i -lt 60 ]; do i=$((i + 1)); printf 'out %d \001\377\n' $i; printf 'err %d\n' $i >&2; sleep 0.1; done; printf last; exit 3`
	var results [2]result
	var followers sync.WaitGroup
	var heard [2]suite.Log
	follow := func(i int, arguments ...string) {
		cmd := b.weft(arguments...)
		cmd.Stdout = &heard[i]
		followers.Go(func() { results[i] = finish(cmd) })
	}
	follow(0, "run", "--", "sh", "-c", line)
	b.untilJobs(1)
	follow(1, "logs", "-f", "1")
	for i := range heard { // both follow
		b.until(1, "followed", func(*box.Job) bool { return heard[i].String() != "" })
	}
	kills := 4
	if testing.Short() || suite.Raced {
		kills = 2
	}
	for range kills {
		time.Sleep(700 * time.Millisecond)
		b.kill()
		time.Sleep(300 * time.Millisecond)
		b.start()
	}
	followers.Wait()
	var out, errs strings.Builder
	for i := range 60 {
		fmt.Fprintf(&out, "out %d \x01\xff\n", i+1)
		fmt.Fprintf(&errs, "err %d\n", i+1)
	}
	out.WriteString("last")
	for i, name := range []string{"run", "logs"} {
		r := results[i]
		r.out = heard[i].String()
		if r.out != out.String() {
			t.Errorf("weft %s: %d bytes of %d: %q", name, len(r.out), out.Len(), r.out)
		}
		var own []string
		for l := range strings.Lines(r.err) {
			if !strings.HasPrefix(l, "weft: ") {
				own = append(own, l)
			}
		}
		if strings.Join(own, "") != errs.String() {
			t.Errorf("weft %s: errors %q", name, r.err)
		}
	}
	if results[0].code != 3 || results[1].code != 0 {
		t.Errorf("exit %d and %d: %s", results[0].code, results[1].code, results[0].err)
	}
}

func (b *bed) untilJobs(n int) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if jobs, err := b.Jobs(b.t.Context(), true, ""); err == nil && len(jobs) >= n && jobs[n-1].State == box.Running {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("there are no %d jobs", n)
		}
	}
}

// TestEndlessLine: a job prints a gigabyte without a line's end. Its log keeps the last part and says so, and the daemon stays small.
func TestEndlessLine(t *testing.T) {
	suite.Long(t)
	b := newBed(t, "--emulate", "1", "--gpu-memory", "16GiB")
	if err := os.WriteFile(filepath.Join(b.dir, "config.yaml"), []byte("log_limit: 16MiB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.start()
	id := b.submit(spec("head -c 1000000000 /dev/zero | tr '\\000' x; echo end"))
	if j := b.done(id); *j.Exit != 0 {
		t.Fatalf("%+v", j)
	}
	counter := exec.Command("sh", "-c", built.Weft+" logs "+id.String()+" 2>said | tail -c 5; grep -c 'no longer kept' said; ls -s --block-size=1M state/jobs/"+id.String()+"/log | head -1")
	counter.Env, counter.Dir = append(b.env, "WEFT_STATE="+b.state), b.dir
	r := finish(counter)
	var total int
	if _, err := fmt.Sscanf(r.out, "xend\n1\ntotal %d", &total); err != nil || total > 20 {
		t.Errorf("%v: %+v", err, r)
	}
	if memory := b.memory(); memory > memoryLimit {
		t.Errorf("the daemon has %v", memory)
	}
}

// TestRefusedJobs: what cannot be is refused at once, with where and why.
func TestRefusedJobs(t *testing.T) {
	b := up(t, 2)
	script := filepath.Join(b.dir, "script")
	if err := os.WriteFile(script, []byte("echo no"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code int
		text string
		args []string
	}{
		"not executable": {126, "not executable", []string{"--", script}},
		"missing":        {127, "not found", []string{"--", "no-such-program"}},
		"a million":      {2, "at most 10000", []string{"--array", "0-999999", "--", "true"}},
		"too large":      {2, "no GPU above", []string{"--memory", "64GiB", "--", "true"}},
		"too many":       {2, "has 2 GPUs", []string{"--gpus", "3", "--", "true"}},
		"floor":          {2, "floor", []string{"--floor", "1.2", "--", "true"}},
		"profile":        {2, "mobilenet", []string{"--profile", "mobilnet:64", "--", "true"}},
		"a range":        {2, "1-12", []string{"--max-time", "1-12", "--", "true"}},
		"no unit":        {2, "90", []string{"--max-time", "90", "--", "true"}},
	} {
		for _, flags := range [][]string{{"run"}, {"run", "-d"}} {
			r := b.run(append(flags, c.args...)...)
			if r.code != c.code || r.out != "" || !strings.Contains(strings.ReplaceAll(r.err, ",", ""), c.text) {
				t.Errorf("%s: weft %v %v: exit %d, want %d: %s", name, flags, c.args, r.code, c.code, r.err)
			}
		}
	}
	if jobs, err := b.Jobs(t.Context(), true, ""); err != nil || len(jobs) != 0 {
		t.Errorf("filed: %v %v", jobs, err)
	}
}
