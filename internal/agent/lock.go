package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultLocks is where agents lock GPUs against each other.
const DefaultLocks = "/run/weft/gpu"

// lock is a locked file. It ends with its holder, however that ends.
type lock struct{ file *os.File }

// LockedError says who holds what an agent needs.
type LockedError struct {
	What string
	PID  int // 0 where the holder did not say
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is in use by pid %d: end that agent first", e.What, e.PID)
}

// lockFile locks a file and writes our pid into it.
func lockFile(path, what string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }() // not ours
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", what, err)
		}
		text, _ := io.ReadAll(io.LimitReader(f, 32)) // the holder may not have said yet
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return nil, &LockedError{what, pid}
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintln(os.Getpid()))); err != nil {
		_ = f.Close() // its failure is in err
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	return &lock{f}, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// release unlocks. The file stays: to remove it would let two hold a lock of one name.
func (l *lock) release() { _ = l.file.Close() }

// lock takes the agent's folder and its GPUs, all or none.
func (a *Agent) lock() error {
	l, err := lockFile(filepath.Join(a.o.Dir, "lock"), a.o.Dir)
	if err != nil {
		return err
	}
	a.locks = append(a.locks, l)
	dir := a.o.Locks
	if dir == "" {
		dir = DefaultLocks
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of the GPUs' locks: %w", err)
	}
	for i, g := range a.o.Machine.GPUs() {
		l, err := lockFile(filepath.Join(dir, g.UUID.String()), fmt.Sprintf("gpu%d (%s)", i, g.UUID))
		if err != nil {
			return err
		}
		a.locks = append(a.locks, l)
	}
	return nil
}

// longestSocket is the longest path of a unix socket.
const longestSocket = 107

// makeDir makes the agent's folder. Users of jobs pass through it to their own, and see nothing else.
func makeDir(dir string) error {
	if longest := filepath.Join(dir, "alloc", "18446744073709551615", SocketName); len(longest) > longestSocket {
		return fmt.Errorf("folder %s: its sockets would have paths of %d bytes, and at most %d are possible: choose a shorter one", dir, len(longest), longestSocket)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make the agent's folder: %w", err)
	}
	return nil
}
