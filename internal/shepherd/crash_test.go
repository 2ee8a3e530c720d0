package shepherd

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside are the processes that have a folder, or one below it, as their own.
func inside(t *testing.T, dir string) []string {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for pid, p := range all {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err == nil && !p.dead() && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			list = append(list, fmt.Sprintf("%d %s", pid, program(pid)))
		}
	}
	return list
}

// attended says whether there is a process of a shepherd of a folder.
func attended(dir string) bool {
	all, err := processes()
	for pid, p := range all {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		if !p.dead() && strings.HasPrefix(string(line), "weft\x00shepherd\x00"+dir+"\x00") {
			return true
		}
	}
	return err != nil
}

// shepherdOf waits for the process of the shepherd of a folder.
func shepherdOf(dir string, until <-chan struct{}) int {
	for {
		select {
		case <-until:
			return 0
		default:
		}
		all, _ := processes() // it is tried again
		for pid, p := range all {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && p.parent == os.Getpid() && strings.HasPrefix(string(line), "weft\x00shepherd\x00"+dir+"\x00") {
				return pid
			}
		}
	}
}

// usual is how long it takes on this machine, now, to start an attempt.
func usual(t *testing.T) time.Duration {
	t.Helper()
	dir := t.TempDir()
	began := time.Now()
	p := start(t, dir, script(dir, "true"), nil)
	took := time.Since(began)
	ended(t, p)
	return took
}

// TestShepherdKilled kills the shepherd at random instants, from before it claims on: nothing of the job is left, and the
// attempt was run or was not.
func TestShepherdKilled(t *testing.T) {
	lost, never, ran := 0, 0, 0
	usual := usual(t)
	for range 30 {
		dir := t.TempDir()
		text := "echo >> ran; setsid sleep 1000 & (setsid sh -c 'sleep 1001 & sleep 1002' &) ; sh -c 'trap \"\" TERM; sleep 1003; sleep 1004' & sleep 1005"
		returned, killed := make(chan struct{}), sync.WaitGroup{}
		delay := rand.N(2 * usual)
		killed.Go(func() {
			if pid := shepherdOf(dir, returned); pid != 0 {
				time.Sleep(delay)
				_ = unix.Kill(pid, unix.SIGKILL) // it may have been killed by Start
			}
		})
		p, err := Start("/proc/self/exe", dir, script(dir, text), nil)
		if err != nil {
			close(returned)
			killed.Wait()
			never++
			if _, err := Adopt(dir, 1); !errors.Is(err, ErrNone) {
				t.Fatalf("after %v, %v: adopted", delay, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Fatalf("after %v: it ran", delay)
			}
			continue
		}
		killed.Wait()
		close(returned)
		if pid := p.claim.PID; unix.Kill(pid, 0) == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // Start was faster than the look
		}
		e := ended(t, p)
		if e.Cause != Lost || e.Status != 137 || e.Fault != "" {
			t.Fatalf("after %v: %+v", delay, e)
		}
		lost++
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			ran++
		}
		if left := inside(t, dir); len(left) > 0 {
			t.Fatalf("after %v: %v are left", delay, left)
		}
		_ = p.Close()
		q, err := Adopt(dir, 1) // it stays so
		if err != nil {
			t.Fatal(err)
		}
		if again := ended(t, q); again.Cause != Lost || !again.Ended.Equal(e.Ended) {
			t.Fatalf("%+v, and then %+v", e, again)
		}
	}
	t.Logf("%d never claimed, %d lost, of which %d had run", never, lost, ran)
}

// TestSweepsBetweenPrograms kills the shepherds of processes that begin one program after the other: they have no environment
// meanwhile, and a single look misses many.
func TestSweepsBetweenPrograms(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "again"), "exec sh again\n", 0o600)
		p := start(t, dir, script(dir, "setsid sh again & exec sleep 1000"), nil)
		eventually(t, "both are there", func() bool { return len(inside(t, dir)) == 2 })
		if err := unix.Kill(p.claim.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := ended(t, p); e.Cause != Lost || e.Fault != "" {
			t.Fatalf("%+v", e)
		}
		if left := inside(t, dir); len(left) > 0 {
			t.Fatalf("%v are left", left)
		}
	}
}

// TestMarkedBetweenPrograms: a process that begins one program after the other is never taken for one without the mark, whatever there is
// to read of it at that instant.
func TestMarkedBetweenPrograms(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "again"), "exec sh again\n", 0o600)
	c := exec.Command("sh", "again")
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LONG=" + strings.Repeat("x", 20<<10), markName + "=m"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }() // killed, as wanted
	marked, doubts := 0, 0
	for begin := time.Now(); time.Since(begin) < 3*time.Second; {
		p, err := lookAt(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		switch is, unsure := p.marked(markName + "=m"); {
		case is:
			marked++
		case unsure:
			doubts++
		default:
			t.Fatalf("taken for another's after %d looks", marked+doubts)
		}
	}
	if t.Logf("%d looks, %d of them in doubt", marked+doubts, doubts); marked == 0 || doubts == 0 {
		t.Error("it was not looked at between two programs, or never else")
	}
}

// TestDoubt: neither time alone, in which the machine may have stood still, nor many quick looks end it.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		looks  int
		passed time.Duration
		want   bool
	}{{1, time.Minute, false}, {doubtLooks - 1, time.Minute, false}, {doubtLooks, time.Minute, true}, {1000, doubtTime, false}, {1000, doubtTime + 1, true}} {
		if got := doubted(c.looks, c.passed); got != c.want {
			t.Errorf("%d looks in %v: %t", c.looks, c.passed, got)
		}
	}
}

// firstThread makes a process of this test one whose first thread ends, while another makes the file that it names and goes on.
const firstThread = "SHEPHERD_TEST_FIRST_THREAD"

func init() {
	if os.Getenv(firstThread) != "" {
		runtime.LockOSThread() // so that TestMain is on the first one
	}
}

func endFirstThread(ready string) {
	go func() {
		for p, err := lookAt(os.Getpid()); err != nil || p.state != 'Z'; p, err = lookAt(os.Getpid()) {
			time.Sleep(time.Millisecond)
		}
		if err := os.WriteFile(ready, []byte("\n"), 0o600); err != nil {
			panic(err)
		}
		time.Sleep(time.Hour)
	}()
	_, _, err := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of this thread alone
	panic(err)
}

// TestFirstThreadEnds: a program whose first thread has ended is a zombie to /proc. It goes on, and is ended like any other.
func TestFirstThreadEnds(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for cause, end := range map[string]func(p *Process) error{
		Stopped: func(p *Process) error { return p.Stop(Stopped) },
		Lost:    func(p *Process) error { return unix.Kill(p.claim.PID, unix.SIGKILL) },
	} {
		t.Run(cause, func(t *testing.T) {
			dir := t.TempDir()
			p := start(t, dir, script(dir, fmt.Sprintf("%[1]s=left setsid %[2]s & %[1]s=ready exec %[2]s", firstThread, program)), nil)
			exists(t, filepath.Join(dir, "left"))
			exists(t, filepath.Join(dir, "ready"))
			if list := of(p.claim.Mark); len(list) != 2 {
				t.Errorf("of the job are %v", list)
			}
			if err := end(p); err != nil {
				t.Fatal(err)
			}
			if e := ended(t, p); e.Cause != cause || e.Forced || e.Fault != "" {
				t.Errorf("%+v", e)
			}
			gone(t, p)
		})
	}
}

// daemonDir makes a process of this test one that starts attempts in a folder.
const daemonDir = "SHEPHERD_TEST_DAEMON"

// daemon starts an attempt and stays. It is killed.
func daemon(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "script"))
	if err != nil {
		panic(err)
	}
	if _, err := Start("/proc/self/exe", dir, script(dir, string(text)), nil); err != nil {
		panic(err)
	}
	fmt.Println("began")
	time.Sleep(time.Hour)
}

func startDaemon(t *testing.T, dir, text string) *exec.Cmd {
	t.Helper()
	put(t, filepath.Join(dir, "script"), text, 0o600)
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), daemonDir+"="+dir)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDaemonKilledInStart kills the daemon while it starts an attempt: it is run once, or it is not and never will be.
func TestDaemonKilledInStart(t *testing.T) {
	tries := 100
	if testing.Short() {
		tries = 10
	}
	var revoked []string
	once, usual := 0, usual(t)
	for range tries {
		dir := t.TempDir()
		c := startDaemon(t, dir, "echo ran >> ran")
		eventually(t, "a task", func() bool {
			_, err := os.Stat(taskPath(dir, 1) + newSuffix)
			_, err2 := os.Stat(taskPath(dir, 1))
			return err == nil || err2 == nil
		})
		time.Sleep(rand.N(2 * usual))
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // it was killed
		p, err := Adopt(dir, 1)
		if errors.Is(err, ErrNone) {
			first, err := Revoke(dir, 1)
			if err != nil {
				t.Fatal(err)
			}
			if first {
				revoked = append(revoked, dir)
				continue
			}
			p, err = Adopt(dir, 1)
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		if e := ended(t, p); e.Status != 0 || e.Cause != "" {
			t.Fatalf("%+v", e)
		}
		if got := exists(t, filepath.Join(dir, "ran")); got != "ran" {
			t.Fatalf("it ran %q", got)
		}
		once++
		_ = p.Close()
	}
	for _, dir := range revoked {
		eventually(t, "the end of a late shepherd", func() bool { return !attended(dir) })
	}
	for _, dir := range revoked {
		if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("revoked, and it ran: %v", err)
		}
	}
	t.Logf("%d ran once, %d were revoked in time", once, len(revoked))
}

// TestDaemonKilled kills the daemon while a job prints: the next one has all of it.
func TestDaemonKilled(t *testing.T) {
	dir := t.TempDir()
	c := startDaemon(t, dir, "for i in $(seq 2000); do echo $i; echo $i >&2; [ $i = 1000 ] && until [ -e go ]; do sleep 0.05; done; done; exit 4")
	eventually(t, "output", func() bool { return len(printed(t, dir, Stdout)) > 100 })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	p, err := Adopt(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Exit(); err == nil {
		t.Error("it has an exit before it ended")
	}
	eventually(t, "its process is the job's", func() bool {
		program, err := lookAt(p.PID())
		is, _ := program.marked(markName + "=" + p.claim.Mark)
		return err == nil && is
	})
	put(t, filepath.Join(dir, "go"), "", 0o600)
	if e := ended(t, p); e.Status != 4 || e.Cause != "" || e.Dropped != 0 {
		t.Errorf("%+v", e)
	}
	var want strings.Builder
	for i := range 2000 {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	for _, s := range []Stream{Stdout, Stderr} {
		if printed(t, dir, s) != want.String() {
			t.Errorf("%v is not complete", s)
		}
	}
}

// TestAdoptAndStop lets one process after the other watch over the same attempt.
func TestAdoptAndStop(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, script(dir, "echo > ready; exec sleep 1000"), nil)
	exists(t, filepath.Join(dir, "ready"))
	var all []*Process
	for range 5 {
		p, err := Adopt(dir, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if revoked, err := Revoke(dir, 1); err != nil || revoked {
		t.Errorf("revoked a running attempt: %v", err)
	}
	if err := all[1].Stop(Moved); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(all[1:], first) {
		if e := ended(t, p); e.Cause != Moved || e.Status != 143 || p.PID() != first.PID() {
			t.Errorf("%+v", e)
		}
		if p != first {
			_ = p.Close()
		}
	}
	select {
	case <-all[0].Done():
		t.Error("a closed one is done")
	default:
	}
}

// TestClaims lets shepherds and revocations race for attempts: one has it.
func TestClaims(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		var won sync.Map
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				f, err := claim{PID: i}.take(dir, 1)
				if err == nil {
					won.Store(i, f)
				} else if !errors.Is(err, ErrClaimed) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		winners := 0
		won.Range(func(i, f any) bool {
			winners++
			c, err := readClaim(dir, 1)
			if locked, err2 := held(dir, 1); err != nil || err2 != nil || c.PID != i || !locked {
				t.Errorf("%v won, and it is %+v's", i, c)
			}
			_ = f.(*os.File).Close()
			if locked, err := held(dir, 1); err != nil || locked {
				t.Error("the lock outlives its holder")
			}
			return true
		})
		if entries, err := os.ReadDir(dir); err != nil || winners != 1 || len(entries) != 1 {
			t.Errorf("%d winners, %v", winners, entries)
		}
	}
}

// A claim may be of another boot of the machine, or torn by a loss of power; the pid may be somebody else's by now.
func TestOldClaims(t *testing.T) {
	self, err := lookAt(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"torn":                  "",
		"noise":                 "\x00\x00\x00",
		"another's pid":         fmt.Sprintf(`{"pid":%d,"start":1,"mark":"m-old-1"}`, os.Getpid()),
		"after a restart":       fmt.Sprintf(`{"pid":%d,"start":%d,"mark":"m-old-2"}`, self.pid, self.start),
		"a pid that is not now": `{"pid":4194000,"start":7,"mark":"m-old-3"}`,
	} {
		dir := t.TempDir()
		put(t, claimPath(dir, 1), text, 0o600)
		p, err := Adopt(dir, 1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e := ended(t, p); e.Cause != Lost || !e.Started.IsZero() {
			t.Errorf("%s: %+v", name, e)
		}
		_ = p.Close()
		if revoked, err := Revoke(dir, 1); revoked || err != nil {
			t.Errorf("%s: revoked: %v, %v", name, revoked, err)
		}
	}
}
