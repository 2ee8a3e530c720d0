package shepherd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// claim is whose an attempt is. Its file is made once and never changed; its maker holds a lock on it while it lives.
type claim struct {
	PID     int    `json:"pid"`   // of the shepherd; 0 for nobody
	Start   uint64 `json:"start"` // of that process, in ticks since the machine started
	Mark    string `json:"mark"`
	Revoked bool   `json:"revoked,omitempty"`
}

// take makes an attempt the caller's, durably: at most one of all who try has it. The file holds the lock, which ends when it
// is closed, by this process or by its death.
func (c claim) take(dir string, attempt int) (*os.File, error) {
	path := claimPath(dir, attempt)
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, fmt.Sprintf("claim-%d.*", attempt))
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the file has another name by then, or none
	if _, err = f.Write(b); err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = f.Close() // the claim failed
		if errors.Is(err, fs.ErrExist) {
			return nil, ErrClaimed
		}
		return nil, err
	}
	return f, nil
}

// readClaim is whose an attempt is. There is none: fs.ErrNotExist. What cannot be read is the claim of a process that a loss
// of power ended.
func readClaim(dir string, attempt int) (claim, error) {
	b, err := os.ReadFile(claimPath(dir, attempt))
	if err != nil {
		return claim{}, err
	}
	var c claim
	if json.Unmarshal(b, &c) != nil {
		return claim{}, nil
	}
	return c, nil
}

// held says whether the maker of a claim lives, by its lock.
func held(dir string, attempt int) (bool, error) {
	f, err := os.Open(claimPath(dir, attempt))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read from; it ends the lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Revoke claims an attempt for nobody, so that no shepherd ever runs it. It is false when a shepherd was first.
func Revoke(dir string, attempt int) (bool, error) {
	f, err := claim{Revoked: true}.take(dir, attempt)
	if errors.Is(err, ErrClaimed) {
		c, err := readClaim(dir, attempt)
		return c.Revoked, err
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}
