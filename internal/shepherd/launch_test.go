package shepherd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

func put(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	file := put(t, filepath.Join(dir, "plain"), "text", 0o644)
	for i, c := range []struct {
		path, dir string
		status    int
		fault     string
	}{
		{filepath.Join(dir, "missing"), dir, 127, "missing was not found"},
		{filepath.Join(file, "below"), dir, 127, "below was not found"},
		{file, dir, 126, "plain is not executable"},
		{dir, dir, 126, " is a folder"},
		{put(t, filepath.Join(dir, "bad"), "#!/no/such/python\nx", 0o755), dir, 126, "bad: /no/such/python: no such file or directory"},
		{put(t, filepath.Join(dir, "worse"), "#! "+file+" -x\nx", 0o755), dir, 126, "plain: permission denied"},
		{put(t, filepath.Join(dir, "folder"), "#!/tmp\nx", 0o755), dir, 126, "folder: permission denied"},
		{put(t, filepath.Join(dir, "noise"), "\x7fELFnoise", 0o755), dir, 126, "noise is no program for this machine"},
		{put(t, filepath.Join(dir, "bare"), "echo no line\n", 0o755), dir, 126, "bare is no program for this machine, and has no #! line"},
		{put(t, filepath.Join(dir, "empty"), "", 0o755), dir, 126, "empty is no program"},
		{"/bin/true", filepath.Join(dir, "away"), 126, "the folder " + filepath.Join(dir, "away") + ": no such file"},
		{"/bin/true", file, 126, "plain: not a directory"},
	} {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		e := ended(t, start(t, at, Task{ID: 1, Attempt: 1, Path: c.path, Command: []string{"x"}, Dir: c.dir}, nil))
		if e.Status != c.status || !strings.Contains(e.Fault, c.fault) || !e.Started.IsZero() || e.Ended.IsZero() || e.Cause != "" {
			t.Errorf("%s: %+v", c.path, e)
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	good := Task{ID: 1, Attempt: 1, Path: "/bin/true", Command: []string{"true"}, Dir: "/"}
	for name, change := range map[string]func(*Task){
		"attempt": func(t *Task) { t.Attempt = 0 }, "command": func(t *Task) { t.Command = nil },
		"path": func(t *Task) { t.Path = "true" }, "folder": func(t *Task) { t.Dir = "." },
	} {
		task := good
		change(&task)
		if _, err := Start("/proc/self/exe", dir, task, nil); err == nil {
			t.Errorf("%s: started", name)
		}
	}
	if _, err := Start("/no/such/weft", dir, good, nil); err == nil {
		t.Error("started without a program")
	}
	if _, err := Start("/bin/true", dir, good, nil); err == nil || !strings.Contains(err.Error(), "before it began") {
		t.Errorf("a shepherd that ends: %v", err)
	}
	if _, err := Start("/proc/self/exe", filepath.Join(dir, "missing"), good, nil); err == nil {
		t.Error("started in a folder that is not there")
	}
	if _, err := Adopt(dir, 1); !errors.Is(err, ErrNone) {
		t.Errorf("something claimed it: %v", err)
	}
	ended(t, start(t, dir, good, nil))
	if _, err := Start("/proc/self/exe", dir, good, nil); !errors.Is(err, ErrClaimed) {
		t.Errorf("started again: %v", err)
	}
}

// TestUser runs programs as another user, with nothing of root's.
func TestUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "shepherd") // others may pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	job, open, shut := filepath.Join(dir, "job"), filepath.Join(dir, "open"), filepath.Join(dir, "shut")
	for d, mode := range map[string]os.FileMode{job: 0o700, open: 0o777, shut: 0o700} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, mode); err != nil {
			t.Fatal(err)
		}
	}
	secret := put(t, filepath.Join(dir, "secret"), "#!/bin/sh\n", 0o700)
	task := script(open, "id -u; id -g; id -G; touch made; stat -c %a,%u made; cat "+secret+" || echo refused; grep -c '' /proc/self/status > /dev/null; grep CapEff /proc/self/status")
	task.UID, task.GID, task.Groups = nobody, nobody-1, []int{4242, 4243}
	e := ended(t, start(t, job, task, nil))
	want := fmt.Sprintf("%d\n%d\n%d 4242 4243\n644,%d\nrefused\nCapEff:\t0000000000000000\n", nobody, nobody-1, nobody-1, nobody)
	if out := printed(t, job, Stdout); e.Status != 0 || out != want {
		t.Errorf("%+v, printed %q, not %q", e, out, want)
	}
	for i, c := range []struct{ path, dir, fault string }{
		{"/bin/true", shut, "the folder " + shut + ": permission denied"},
		{secret, open, "secret is not executable"},
		{put(t, filepath.Join(shut, "tool"), "#!/bin/sh\n", 0o755), open, "tool is not executable"},
		{put(t, filepath.Join(open, "tool"), "#!"+secret+"\n", 0o755), open, secret + ": permission denied"},
	} {
		task.Attempt, task.Path, task.Dir = i+2, c.path, c.dir
		if e := ended(t, start(t, job, task, nil)); e.Status != 126 || !strings.Contains(e.Fault, c.fault) {
			t.Errorf("%s: %+v", c.path, e)
		}
	}
}

// Each kind of input reaches the program, and its writer sees when the program has ended.
func TestInput(t *testing.T) {
	text := "one\ntwo\n"
	dir := t.TempDir()
	file, err := os.Open(put(t, filepath.Join(dir, "input"), text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		stdin *os.File
		want  string
	}{{nil, ""}, {file, text}, {r, text}} {
		task := script(dir, "cat")
		task.Attempt = i + 1
		before := printed(t, dir, Stdout)
		ended(t, start(t, dir, task, c.stdin))
		if out := printed(t, dir, Stdout); out != before+c.want {
			t.Errorf("input %d: %q", i, out)
		}
	}
}

func TestInputOfAPipeEndsWithTheProgram(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// The shepherd lives on while the program's child does, and holds no input.
	p := start(t, dir, script(dir, "read x; echo $x; exec sleep 1000 < /dev/null"), r)
	_ = r.Close()
	if _, err := w.WriteString("word\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a broken pipe", func() bool { _, err := w.WriteString("word\n"); return err != nil })
	if err := p.Stop(Stopped); err != nil {
		t.Fatal(err)
	}
	ended(t, p)
}

func TestTerminal(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	dir := t.TempDir()
	p := start(t, dir, script(dir, "test -t 0 && echo terminal; read x; echo $x"), slave)
	if _, err := master.WriteString("word\n"); err != nil {
		t.Fatal(err)
	}
	if ended(t, p); printed(t, dir, Stdout) != "terminal\nword\n" {
		t.Errorf("printed %q", printed(t, dir, Stdout))
	}
}

// libcs are the signals 32 and 33, which are the C library's own: that of the race detector ignores one of them.
const libcs = 3 << 31

// signalsIn are those of a line of /proc/PID/status.
func signalsIn(t *testing.T, line string) uint64 {
	t.Helper()
	_, mask, _ := strings.Cut(line, "\t")
	set, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return set
}

// Nothing of whoever starts the daemon reaches a program: descriptors, ignored signals, environment.
func TestInherited(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil { // as inherited from a careless parent
		t.Fatal(err)
	}
	t.Setenv("SECRET", "yes")
	limit, err := exec.Command("sh", "-c", "ulimit -n").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := start(t, dir, script(dir, "ulimit -n; ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls -l /proc/$PPID/fd | grep -c pipe; env | grep -c SECRET; tr '\\0' '\\n' < /proc/$PPID/environ | grep -c SECRET; cut -d' ' -f6 /proc/self/stat"), nil)
	ended(t, p)
	// Of the shepherd: the two pipes that it reads from, and for the moment the one that it is ready on.
	lines := strings.Split(strings.TrimPrefix(printed(t, dir, Stdout), string(limit)), "\n")
	if len(lines) < 7 || lines[0] != "4" || !strings.HasSuffix(lines[1], "0000000000000000") || signalsIn(t, lines[2])&^libcs != 0 ||
		lines[3] > "5" || lines[4] != "0" || lines[5] != "0" || lines[6] != fmt.Sprint(p.PID()) {
		t.Errorf("%q", lines)
	}
}
