package shepherd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is a shepherd where it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shepherd" {
		os.Exit(Main(os.Args[2:]))
	}
	if dir := os.Getenv(daemonDir); dir != "" {
		daemon(dir)
	}
	if ready := os.Getenv(firstThread); ready != "" {
		endFirstThread(ready)
	}
	goleak.VerifyTestMain(m)
}

const within = 20 * time.Second // that anything takes at most on a machine that does other things

// script is a task of a shell's.
func script(dir, text string) Task {
	return Task{ID: 44, Attempt: 1, Path: "/bin/sh", Command: []string{"sh", "-c", text}, Dir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, UID: os.Getuid(), GID: os.Getgid()}
}

func start(t *testing.T, dir string, task Task, stdin *os.File) *Process {
	t.Helper()
	p, err := Start("/proc/self/exe", dir, task, stdin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stop(Stopped) // it may have ended
		if p.pidfd != nil {
			select {
			case <-p.Done():
			case <-time.After(within):
				_ = unix.Kill(p.claim.PID, unix.SIGKILL)
			}
		}
		_ = p.Close()
	})
	return p
}

func ended(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(within):
		t.Fatalf("it goes on: %v", of(p.claim.Mark))
	}
	e, err := p.Exit()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// printed is what a log has of some streams.
func printed(t *testing.T, dir string, streams ...Stream) string {
	t.Helper()
	l, err := Open(LogPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var text strings.Builder
	for {
		f, err := l.Next()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range streams {
			if f.Stream == s {
				text.Write(f.Bytes)
			}
		}
	}
}

// eventually waits for something to be so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within reason: " + what)
		}
	}
}

// exists waits for a file that a program makes, and returns what is in it.
func exists(t *testing.T, path string) string {
	t.Helper()
	var b []byte
	eventually(t, filepath.Base(path), func() bool {
		var err error
		b, err = os.ReadFile(path)
		return err == nil && len(b) > 0 && b[len(b)-1] == '\n'
	})
	return strings.TrimSpace(string(b))
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		text           string
		status, signal int
		out, err       string
	}{
		{"echo one; echo two >&2; printf three", 0, 0, "one\nthree", "two\n"},
		{"exit 7", 7, 0, "", ""},
		{"kill -9 $$", 137, 9, "", ""},
		{"kill -15 $$", 143, 15, "", ""},
		{"echo $WEFT_JOB_ID $WEFT_ATTEMPT ${#WEFT_JOB}", 0, 0, "44 1 32\n", ""},
		{"umask; ls -l /proc/self/fd | wc -l", 0, 0, "0022\n5\n", ""},
	} {
		dir := t.TempDir()
		e := ended(t, start(t, dir, script(dir, c.text), nil))
		if e.Status != c.status || e.Signal != c.signal || e.Cause != "" || e.Fault != "" || e.Forced || e.Started.IsZero() || e.Ended.Before(e.Started) {
			t.Errorf("%s: %+v", c.text, e)
		}
		if out, err := printed(t, dir, Stdout), printed(t, dir, Stderr); out != c.out || err != c.err {
			t.Errorf("%s: printed %q and %q", c.text, out, err)
		}
	}
}
