package shepherd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a shepherd may take to begin its program. A file system that hangs may hold it up.
const patience = 30 * time.Second

// troubleName is where a shepherd says what it has nobody to tell of.
const troubleName = "shepherd.err"

// Start runs an attempt under a shepherd of its own: executable is this program (its argument "shepherd" leads to Main), and
// dir the folder of the job, which is there. The program's input is stdin, which stays the caller's to close, or nothing.
// Start returns once the program began or could not begin: that is an Exit with status 126 or 127.
//
// With an error, nothing was run and this Start will run nothing; the attempt is not claimed (ErrClaimed: it was by another).
func Start(executable, dir string, t Task, stdin *os.File) (*Process, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t.Mark = newMark()
	if err := writeJSON(taskPath(dir, t.Attempt), &t, false); err != nil {
		return nil, err
	}
	ready, other, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }() // only read from
	child, err := spawn(executable, dir, t.Attempt, stdin, other)
	_ = other.Close() // the shepherd has it
	if err != nil {
		return nil, err
	}
	return child.begun(dir, t.Attempt, ready)
}

// spawn starts the process of a shepherd: in a session of its own, with nothing of this process but its input.
func spawn(executable, dir string, attempt int, stdin, ready *os.File) (*spawned, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }() // nothing is written to it
	if stdin == nil {
		stdin = null
	}
	trouble, err := os.OpenFile(filepath.Join(dir, troubleName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, filesMode)
	if err != nil {
		return nil, err
	}
	defer func() { _ = trouble.Close() }() // the shepherd has it
	// What this process itself inherited, or a library opened, is not for the shepherd: it would keep it open for days.
	_ = unix.CloseRange(readyFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // else the shepherd keeps it from the program
	pid, err := syscall.ForkExec(executable, []string{"weft", "shepherd", dir, strconv.Itoa(attempt)}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=50"}, // few threads, little memory
		Files: []uintptr{stdin.Fd(), null.Fd(), trouble.Fd(), ready.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", executable, err)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // a child of this process that is not reaped
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return &spawned{pid, os.NewFile(uintptr(fd), "pidfd")}, nil
}

// spawned is the process of a shepherd that may not have claimed its attempt yet.
type spawned struct {
	pid   int
	pidfd *os.File
}

// begun waits until the program began, and is the process, or why there is none.
func (s *spawned) begun(dir string, attempt int, ready *os.File) (*Process, error) {
	_ = ready.SetReadDeadline(time.Now().Add(patience)) // pipes have deadlines
	text, err := io.ReadAll(ready)
	c, unclaimed := readClaim(dir, attempt)
	if unclaimed == nil && c.PID == s.pid {
		return watchOver(dir, attempt, c, s.pidfd, s.pid), nil
	}
	_ = unix.Kill(s.pid, unix.SIGKILL) // a child of this process that is not reaped
	_, _ = unix.Wait4(s.pid, nil, 0, nil)
	_ = s.pidfd.Close() // nothing is written to it
	if c, claimed := readClaim(dir, attempt); claimed == nil {
		if c.PID == s.pid { // between the two looks
			return Adopt(dir, attempt)
		}
		return nil, ErrClaimed
	}
	switch {
	case len(text) > 0:
		return nil, errors.New(string(bytes.TrimSpace(text)))
	case err != nil && !errors.Is(unclaimed, fs.ErrNotExist):
		return nil, errors.Join(err, unclaimed)
	case err != nil:
		return nil, fmt.Errorf("the shepherd did not begin within %v", patience)
	}
	return nil, errors.New("the shepherd was killed before it began")
}
