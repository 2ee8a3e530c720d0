package shepherd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trainer is a program with data loaders: it writes its checkpoint on SIGTERM, for which it needs them.
const trainer = `
import multiprocessing, os, signal, sys, time
def load(pipe):
    while True:
        pipe.recv()
        pipe.send("batch")
def stop(*_):
    for p in pipes:
        p.send(0)
        assert p.recv() == "batch"
    time.sleep(0.3)
    print("checkpoint", len(pipes), flush=True)
    sys.exit(3)
if __name__ == "__main__":
    pipes, loaders = [], []
    for _ in range(3):
        ours, theirs = multiprocessing.Pipe()
        loaders.append(multiprocessing.Process(target=load, args=(theirs,), daemon=True))
        loaders[-1].start()
        pipes.append(ours)
    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    with open("made", "w") as f:
        f.write("yes\n")
    os.rename("made", "ready") # not before the file is closed: what is raised in a destructor is ignored
    while True:
        time.sleep(0.01)
`

// in is a folder with a trainer.
func in(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(trainer), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStopReachesTheProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, after string
		status      int
	}{
		{"exec python3 train.py", "", 3},
		{"python3 train.py; echo next", "", 3},
		{"python3 train.py && echo next", "", 3},
		{"bash -c 'python3 train.py; echo next'; echo next", "", 3},
		{"timeout 1000 nice env A=B stdbuf -oL sh -c 'python3 train.py; echo next'; echo next", "", 3},
		{"while true; do python3 train.py; echo next; done", "", 3},
		{"python3 train.py | tee copy; echo next", "", 3},
		{"python3 train.py 2>&1 | cat | tee copy", "", 3},
		{"python3 train.py 2>&1 | (cat; sleep 0.3; echo trailer) | tee copy; echo next", "", 3},
		{"exec nohup python3 train.py", "", 3},
		{"trap 'echo trapped; exit 9' TERM; python3 train.py; echo next", "trapped\n", 9},
		{"trap 'sleep 0.2; echo saved; exit 9' TERM; python3 train.py; echo next", "saved\n", 9},
		{"echo a | xargs -n1 python3 train.py; echo next", "", 3},
		{"setsid -w python3 train.py; echo next", "", 3},
	} {
		t.Run(c.text, func(t *testing.T) {
			t.Parallel()
			dir := in(t)
			p := start(t, dir, script(dir, c.text), nil)
			exists(t, filepath.Join(dir, "ready"))
			for range 3 { // once or more often, it is the same
				if err := p.Stop(Stopped); err != nil {
					t.Fatal(err)
				}
			}
			e := ended(t, p)
			want := "ready\ncheckpoint 3\n" + c.after
			if e.Cause != Stopped || e.Forced || e.Status != c.status {
				t.Errorf("%+v", e)
			}
			if out := printed(t, dir, Stdout); out != want {
				t.Errorf("printed %q, not %q; errors: %s", out, want, printed(t, dir, Stderr))
			}
			gone(t, p)
		})
	}
}

// gone checks that nothing is left of an attempt.
func gone(t *testing.T, p *Process) {
	t.Helper()
	if left := of(p.claim.Mark); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// of are the pids of the processes with a mark, dead or alive.
func of(mark string) []string {
	var list []string
	all, err := processes()
	if err != nil {
		panic(err)
	}
	for pid, p := range all {
		if is, _ := p.marked(markName + "=" + mark); is {
			list = append(list, fmt.Sprintf("%d below %d, %c, %s", pid, p.parent, p.state, program(pid)))
		}
	}
	return list
}

func TestStopByForce(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"ignored":            "trap '' TERM; echo > ready; while :; do sleep 0.05; done",
		"ignored below":      "sh -c 'trap \"\" TERM; echo > ready; while :; do sleep 0.05; done'; echo next",
		"stopped and deaf":   "trap '' TERM; echo > ready; kill -STOP $$; while :; do sleep 0.05; done",
		"goes on":            "trap 'echo no' TERM; echo > ready; while :; do sleep 0.05; done",
		"with children deaf": "trap '' TERM; sleep 1000 & sleep 1000 & echo > ready; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			task := script(dir, text)
			task.Grace = 500 * time.Millisecond
			p := start(t, dir, task, nil)
			exists(t, filepath.Join(dir, "ready"))
			began := time.Now()
			if err := p.Stop(Moved); err != nil {
				t.Fatal(err)
			}
			e := ended(t, p)
			if e.Cause != Moved || !e.Forced || e.Status != 137 || e.Signal != 9 {
				t.Errorf("%+v", e)
			}
			if took := time.Since(began); took < task.Grace {
				t.Errorf("it took %v", took)
			}
			gone(t, p)
		})
	}
}

// Filters that nothing else feeds are asked at once.
func TestStopOfFilters(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := start(t, dir, script(dir, "cat | tee copy"), r)
	_ = r.Close()
	if _, err := w.WriteString("fed\n"); err != nil {
		t.Fatal(err)
	}
	exists(t, filepath.Join(dir, "copy")) // else it may be the shell that is asked, which has not started them yet
	if err := p.Stop(Stopped); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, p); e.Cause != Stopped || e.Forced {
		t.Errorf("%+v", e)
	}
}

// Filters are asked at once, but those that have the last words of others still to come.
func TestWhenFiltersAreAsked(t *testing.T) {
	last, worker, now := proc{pid: 4194000, start: 1}, proc{pid: 4194000, start: 2}, time.Now() // neither is there
	fed := newGuard(key{}, &Task{}, signals{}, &Exit{})
	fed.askSome(request{ask: []proc{worker}}, now)
	for _, c := range []struct {
		g     *guard
		after time.Duration
		want  bool
	}{{newGuard(key{}, &Task{}, signals{}, &Exit{}), 0, true}, {fed, 0, false}, {fed, alone - 1, false}, {fed, alone, true}} {
		c.g.askSome(request{filters: []proc{last}}, now.Add(c.after))
		if got := c.g.asked[last.key()]; got != c.want {
			t.Errorf("after %v: asked: %t", c.after, got)
		}
	}
}

// A program that stands still is woken up to hear that it is to end.
func TestStopOfAStoppedProgram(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, script(dir, "echo > ready; kill -STOP $$; echo next"), nil)
	exists(t, filepath.Join(dir, "ready"))
	eventually(t, "stopped", func() bool { s, err := lookAt(p.PID()); return err == nil && s.state == 'T' })
	if err := p.Stop(Stopped); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, p); e.Status != 143 || e.Forced || printed(t, dir, Stdout) != "" {
		t.Errorf("%+v, printed %q", e, printed(t, dir, Stdout))
	}
}

func TestMaxTime(t *testing.T) {
	dir := in(t)
	task := script(dir, "python3 train.py; echo next")
	task.MaxTime = 2 * time.Second
	e := ended(t, start(t, dir, task, nil))
	if e.Cause != TimedOut || e.Forced || e.Ended.Sub(e.Started) < task.MaxTime {
		t.Errorf("%+v", e)
	}
}

// The first cause stays, but what was to be moved can be stopped for good, and not the reverse.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		causes []string
		want   string
	}{{[]string{Moved, Stopped}, Stopped}, {[]string{Stopped, Moved}, Stopped}, {[]string{Moved, Moved}, Moved}} {
		var e Exit
		g := newGuard(key{}, &Task{}, signals{}, &e)
		for _, cause := range c.causes {
			g.ask(cause)
		}
		if e.Cause != c.want {
			t.Errorf("%v: %s", c.causes, e.Cause)
		}
	}
	for _, cause := range []string{Moved, Stopped} {
		dir := t.TempDir()
		p := start(t, dir, script(dir, "trap 'exit 0' TERM; echo > ready; while :; do sleep 0.01; done"), nil)
		exists(t, filepath.Join(dir, "ready"))
		if err := p.Stop(cause); err != nil {
			t.Fatal(err)
		}
		if e := ended(t, p); e.Cause != cause || e.Status != 0 {
			t.Errorf("%s: %+v", cause, e)
		}
		if err := p.Stop(Stopped); err != nil {
			t.Errorf("stop after the end: %v", err)
		}
	}
	if err := (&Process{}).Stop("whim"); err == nil {
		t.Error("stopped on a whim")
	}
}

// What a program leaves behind ends with it, wherever it hides.
func TestLeftBehind(t *testing.T) {
	for name, text := range map[string]string{
		"background":    "sleep 1000 & sleep 1001 & exit 5",
		"session":       "setsid sleep 1000 & sleep 0.1; exit 5",
		"double fork":   "(setsid sh -c '(sleep 1000 &) ; (setsid sleep 1001 &)' &) ; sleep 0.1; exit 5",
		"no marks":      "env -i setsid sleep 1000 & sleep 0.1; exit 5",
		"deaf":          "(trap '' TERM HUP; while :; do sleep 0.1; done) & exit 5",
		"stands still":  "sleep 1000 & kill -STOP $!; exit 5",
		"shell is gone": "sh -c 'sleep 1000 & kill -9 $PPID'",
		"fork bomb":     "setsid sh -c 'trap \"\" TERM; b() { sleep 0.02; b & }; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do b & done' & sleep 1; exit 5", // one after the other, so that the machine lives
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := ended(t, start(t, dir, script(dir, text), nil))
			if want := map[bool]int{false: 5, true: 137}[name == "shell is gone"]; e.Status != want || e.Cause != "" || e.Forced {
				t.Errorf("%+v", e)
			}
			all, err := processes()
			if err != nil {
				t.Fatal(err)
			}
			for pid := range all {
				if cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err == nil && strings.HasPrefix(cwd, dir) {
					t.Errorf("process %d %s is left", pid, program(pid))
				}
			}
		})
	}
}

// A program that reaps nothing gathers no dead: what it leaves to this shepherd is reaped.
func TestZombies(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, script(dir, "for i in $(seq 50); do (sleep 0.01 &) ; done; sleep 0.5; echo > ready; exec sleep 1000"), nil)
	exists(t, filepath.Join(dir, "ready"))
	eventually(t, "one child", func() bool {
		all, err := processes()
		return err == nil && len(children(all)[p.claim.PID]) == 1
	})
	if err := unix.Kill(p.claim.PID, unix.SIGINT); err != nil { // to the shepherd itself, it is the same as Stop
		t.Fatal(err)
	}
	if e := ended(t, p); e.Cause != Stopped || e.Status != 143 {
		t.Errorf("%+v", e)
	}
}
