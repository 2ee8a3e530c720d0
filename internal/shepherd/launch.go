package shepherd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses of what could not begin, as shells have them.
const (
	notExecutable = 126
	notFound      = 127
	bySignal      = 128 // and the signal
)

// launch starts the program of a task. It dies with the thread that calls this, which must be there as long as this process.
func launch(t *Task, stdin, stdout, stderr int) (int, error) {
	return syscall.ForkExec(t.Path, t.Command, &syscall.ProcAttr{
		Dir: t.Dir, Env: t.environment(), Files: []uintptr{uintptr(stdin), uintptr(stdout), uintptr(stderr)},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: t.credential()},
	})
}

// credential is whose rights the program has; nil for those of this process.
func (t *Task) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	groups := make([]uint32, len(t.Groups))
	for i, g := range t.Groups {
		groups[i] = uint32(g)
	}
	c := &syscall.Credential{Uid: uint32(t.UID), Gid: uint32(t.GID), Groups: groups}
	if own, err := os.Getgroups(); err == nil && len(own) == 0 && len(groups) == 0 {
		c.NoSetGroups = true // a namespace may forbid what changes nothing
	}
	return c
}

// explain says why a program could not begin, and with which status a shell would end.
func explain(t *Task, err error) (status int, fault string) {
	as := t.eyes()
	if err := as.enter(t.Dir); err != nil {
		return notExecutable, fmt.Sprintf("the folder %s: %v", t.Dir, cause(err))
	}
	info, failed := os.Stat(t.Path)
	switch {
	case errors.Is(failed, unix.ENOENT), errors.Is(failed, unix.ENOTDIR):
		return notFound, t.Path + " was not found"
	case failed == nil && info.IsDir():
		return notExecutable, t.Path + " is a folder"
	case failed != nil, as.execute(t.Path) != nil:
		return notExecutable, t.Path + " is not executable"
	}
	interpreter := interpreterOf(t.Path)
	switch {
	case interpreter != "" && as.execute(interpreter) != nil:
		return notExecutable, fmt.Sprintf("the interpreter in the first line of %s: %s: %v", t.Path, interpreter, cause(as.execute(interpreter)))
	case errors.Is(err, unix.ENOEXEC):
		return notExecutable, t.Path + " is no program for this machine, and has no #! line"
	case errors.Is(err, unix.ENOENT):
		return notExecutable, t.Path + ": its loader was not found"
	}
	return notExecutable, fmt.Sprintf("%s: %v", t.Path, cause(err))
}

// interpreterOf is what the first line of a script names.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                         // only read from
	line, _ := bufio.NewReaderSize(f, 4<<10).ReadSlice('\n') // a longer one is cut, as by the kernel
	text, is := strings.CutPrefix(string(line), "#!")        //
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' })
	if !is || len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// eyes are what a user may see.
type eyes struct {
	uid, gid int
	groups   []int
}

func (t *Task) eyes() eyes {
	if t.credential() == nil {
		groups, _ := os.Getgroups() // without them less is explained
		return eyes{os.Geteuid(), os.Getegid(), groups}
	}
	return eyes{t.UID, t.GID, t.Groups}
}

// enter says why the user may not enter a folder.
func (e eyes) enter(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unix.ENOTDIR
	}
	return e.execute(dir)
}

// execute says why the user may not execute a file, or search a folder, or one on the way to it. Access lists are not read:
// it only explains.
func (e eyes) execute(path string) error {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if err := e.may(dir); err != nil {
			return err
		}
	}
	return e.may(path)
}

func (e eyes) may(path string) error {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return err
	}
	bit := uint32(0o001)
	switch {
	case e.uid == 0:
		bit = 0o111
		if s.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil
		}
	case int(s.Uid) == e.uid:
		bit = 0o100
	case int(s.Gid) == e.gid || slices.Contains(e.groups, int(s.Gid)):
		bit = 0o010
	}
	if s.Mode&bit == 0 {
		return unix.EACCES
	}
	return nil
}
