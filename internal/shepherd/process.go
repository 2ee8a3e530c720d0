package shepherd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What there may not be.
var (
	ErrNone    = errors.New("no shepherd claimed the attempt")
	ErrClaimed = errors.New("the attempt is claimed already")
	errLives   = errors.New("the attempt has not ended")
)

// Process is an attempt that a shepherd claimed: it runs, or has ended.
type Process struct {
	dir     string
	attempt int
	claim   claim
	child   int      // pid of the shepherd when it is a child of this process
	pidfd   *os.File // of the shepherd; nil when it has ended
	done    chan struct{}
	watcher sync.WaitGroup

	exit Exit // both once done is closed
	err  error

	mu  sync.Mutex
	pid int
}

// Adopt finds an attempt again, as the daemon does after a restart. ErrNone: no shepherd claimed it yet, or it was revoked.
func Adopt(dir string, attempt int) (*Process, error) {
	c, err := readClaim(dir, attempt)
	if errors.Is(err, fs.ErrNotExist) || c.Revoked {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	pidfd, err := c.open(dir, attempt)
	if err != nil {
		return nil, err
	}
	return watchOver(dir, attempt, c, pidfd, 0), nil
}

// open is the descriptor of a shepherd, nil when it has ended. It lives when its lock is held and the process is there.
func (c claim) open(dir string, attempt int) (*os.File, error) {
	fd, err := key{c.PID, c.Start}.open()
	gone := c.PID == 0 || errors.Is(err, unix.ESRCH)
	if err != nil && !gone {
		return nil, fmt.Errorf("shepherd %d: %w", c.PID, err)
	}
	for wait := time.Now().Add(drain); ; time.Sleep(soon) {
		locked, err := held(dir, attempt)
		switch {
		case err == nil && locked && !gone:
			return os.NewFile(uintptr(fd), "pidfd"), nil
		case err == nil && locked && time.Now().Before(wait):
			continue // a child of it that is about to begin holds the lock a little longer
		case err == nil && locked:
			err = fmt.Errorf("shepherd %d lives, but cannot be seen from here", c.PID)
		}
		if fd >= 0 {
			_ = unix.Close(fd) // the machine was started anew, and another process has the pid
		}
		return nil, err
	}
}

// watchOver is the process of a claim, whose shepherd has a descriptor, or has ended.
func watchOver(dir string, attempt int, c claim, pidfd *os.File, child int) *Process {
	p := &Process{dir: dir, attempt: attempt, claim: c, child: child, pidfd: pidfd, done: make(chan struct{})}
	if pidfd == nil && readJSON(exitPath(dir, attempt), &p.exit) == nil {
		close(p.done)
		return p
	}
	p.watcher.Go(p.watch)
	return p
}

// watch waits for the shepherd and settles how the attempt ended.
func (p *Process) watch() {
	if p.pidfd != nil {
		if !ends(p.pidfd) {
			return // closed
		}
		if p.child != 0 {
			_, _ = unix.Wait4(p.child, nil, unix.WNOHANG, nil) // its status says nothing
		}
	}
	p.exit, p.err = settle(p.dir, p.attempt, p.claim)
	close(p.done)
}

// again is how often a process is looked at without a reason: should one be missed, it is late and not forgotten.
const again = 5 * time.Second

// ends waits for a process; false when its descriptor was closed.
func ends(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	for {
		_ = pidfd.SetReadDeadline(time.Now().Add(again)) // without one, it only waits
		err := conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return err == nil && n > 0
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err == nil
		}
	}
}

// settle is the exit of an attempt whose shepherd has ended. Without its record it was killed: what is left of the job is
// ended now.
func settle(dir string, attempt int, c claim) (Exit, error) {
	var e Exit
	if readJSON(exitPath(dir, attempt), &e) == nil {
		return e, nil
	}
	var b began
	_ = readJSON(beganPath(dir, attempt), &b) // without it, it did not begin
	e = Exit{Status: bySignal + int(unix.SIGKILL), Signal: int(unix.SIGKILL), Cause: Lost, Started: b.Started}
	if err := sweep(key{b.PID, b.Start}, c.Mark); err != nil {
		e.Fault = err.Error()
	}
	e.Ended = time.Now()
	return e, e.record(dir, attempt)
}

// PID is the program's, 0 before it began.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b began
	if p.pid == 0 && readJSON(beganPath(p.dir, p.attempt), &b) == nil {
		p.pid = b.PID
	}
	return p.pid
}

// Done is closed when the attempt has ended, with all of its processes.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended, once it has. An error says that this could not be recorded; the exit counts all the same.
func (p *Process) Exit() (Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	default:
		return Exit{}, errLives
	}
}

// Stop asks the job to end for a cause, Stopped or Moved, and kills it after its grace. It does not wait, and is no error for
// a job that has ended.
func (p *Process) Stop(cause string) error {
	s := unix.SIGTERM
	switch cause {
	case Stopped:
	case Moved:
		s = unix.SIGUSR1
	default:
		return fmt.Errorf("no cause %q to stop for", cause)
	}
	if p.pidfd == nil {
		return nil
	}
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	if errors.Is(failed, unix.ESRCH) {
		failed = nil
	}
	return errors.Join(err, failed)
}

// Close lets the attempt go on without this process. Done is not closed by it.
func (p *Process) Close() error {
	var err error
	if p.pidfd != nil {
		err = p.pidfd.Close()
	}
	p.watcher.Wait()
	return err
}
