package shepherd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

// Times of a task.
const (
	defaultGrace = 30 * time.Second
	leftGrace    = 2 * time.Second // for what a program leaves behind
)

// Task is what an attempt of a job runs.
type Task struct {
	ID       box.ID        `json:"id"`
	Attempt  int           `json:"attempt"` // from 1
	Path     string        `json:"path"`    // of the program, absolute
	Command  []string      `json:"command"` // its arguments, the first is its name
	Dir      string        `json:"dir"`     // that it begins in, absolute
	Env      []string      `json:"env"`     // all of it but WEFT_JOB, WEFT_JOB_ID and WEFT_ATTEMPT
	UID      int           `json:"uid"`     // who runs it, where the daemon is root
	GID      int           `json:"gid"`
	Groups   []int         `json:"groups"`
	Grace    time.Duration `json:"grace_ns"`        // from SIGTERM to SIGKILL; 0 is 30 s
	MaxTime  time.Duration `json:"max_time_ns"`     // of the attempt; 0 for none
	LogLimit unit.Bytes    `json:"log_limit_bytes"` // of the log of all attempts; 0 is 256 MiB

	Mark string `json:"mark"` // of the attempt alone, in the environment of its processes; Start makes it
}

// Names of what an attempt consists of.
const (
	logName   = "log"
	markName  = "WEFT_JOB"
	jobName   = "WEFT_JOB_ID"
	tryName   = "WEFT_ATTEMPT"
	filesMode = 0o600
)

// LogPath is the log of the job in a folder.
func LogPath(dir string) string { return filepath.Join(dir, logName) }

func taskPath(dir string, attempt int) string  { return attemptPath(dir, "task-%d.json", attempt) }
func claimPath(dir string, attempt int) string { return attemptPath(dir, "claim-%d", attempt) }
func beganPath(dir string, attempt int) string { return attemptPath(dir, "began-%d.json", attempt) }
func exitPath(dir string, attempt int) string  { return attemptPath(dir, "exit-%d.json", attempt) }

func attemptPath(dir, format string, attempt int) string {
	return filepath.Join(dir, fmt.Sprintf(format, attempt))
}

// check says what of a task cannot be.
func (t *Task) check() error {
	switch {
	case t.Attempt < 1:
		return fmt.Errorf("attempt %d: they count from 1", t.Attempt)
	case len(t.Command) == 0:
		return errors.New("no command")
	case !filepath.IsAbs(t.Path):
		return fmt.Errorf("the path of the program is not absolute: %q", t.Path)
	case !filepath.IsAbs(t.Dir):
		return fmt.Errorf("the folder is not absolute: %q", t.Dir)
	}
	return nil
}

// environment is that of the program.
func (t *Task) environment() []string {
	own := []string{markName + "=" + t.Mark, jobName + "=" + t.ID.String(), fmt.Sprintf("%s=%d", tryName, t.Attempt)}
	list := make([]string, 0, len(t.Env)+len(own))
	for _, v := range t.Env {
		name, _, _ := strings.Cut(v, "=")
		if name != markName && name != jobName && name != tryName {
			list = append(list, v)
		}
	}
	return append(list, own...)
}

// newMark is a name that no other attempt has.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// writeJSON puts a file there whole or not at all. Durable, it is there after a loss of power, too.
func writeJSON(path string, v any, durable bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeWhole(path, b, durable)
}

func writeWhole(path string, b []byte, durable bool) error {
	temporary := path + newSuffix
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE, filesMode)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	if durable {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// newSuffix is that of a file that is not whole yet, and reserved the bytes that one may need.
const (
	newSuffix = ".new"
	reserved  = 4 << 10
)

// reserve makes room for a file that is written later, when the disk may be full.
func reserve(path string) error {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE, filesMode)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserved)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = f.WriteAt(make([]byte, reserved), 0)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // there are file systems that cannot
	}
	return errors.Join(err, d.Close())
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// cause is what went wrong without the place.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
