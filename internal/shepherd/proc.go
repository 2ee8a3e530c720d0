package shepherd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// proc is a process at one instant.
type proc struct {
	pid, parent int
	start       uint64          // in ticks since the machine started: with the pid, it names a process
	state       byte            // as /proc has it: Z is a zombie
	threads     int             // of a zombie, those that go on and itself
	kernel      bool            // it is one of the kernel's own
	end         unix.WaitStatus // of a zombie, where this process may see it
}

// key names a process for as long as the machine runs.
type key struct {
	pid   int
	start uint64
}

func (p proc) key() key { return key{p.pid, p.start} }

// dead says whether a process only waits to be reaped. One whose first thread has ended is a zombie while others go on.
func (p proc) dead() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// lookAt is the process with a pid. There is none: fs.ErrNotExist, or ESRCH.
func lookAt(pid int) (proc, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, err
	}
	return parseStat(pid, b)
}

// kernelThread is the flag of a process that is the kernel's own.
const kernelThread = 0x0020_0000

// parseStat reads /proc/PID/stat. The second field, the name, may hold anything, also blanks and parentheses.
func parseStat(pid int, b []byte) (proc, error) {
	_, rest, found := cutLast(b, ')')
	fields := bytes.Fields(rest)
	if !found || len(fields) < 20 || len(fields[0]) != 1 {
		return proc{}, fmt.Errorf("process %d: unreadable stat", pid)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	start, err2 := strconv.ParseUint(string(fields[19]), 10, 64)
	flags, err3 := strconv.ParseUint(string(fields[6]), 10, 64)
	threads, err4 := strconv.Atoi(string(fields[17]))
	p := proc{pid: pid, parent: parent, start: start, state: fields[0][0], threads: threads, kernel: flags&kernelThread != 0}
	if len(fields) > 49 && p.dead() { // where it may not be seen, it is 0
		end, _ := strconv.ParseUint(string(fields[49]), 10, 32)
		p.end = unix.WaitStatus(end)
	}
	return p, errors.Join(err, err2, err3, err4)
}

func cutLast(b []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

// processes are all that are visible, by pid.
func processes() (map[int]proc, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]proc, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := lookAt(pid)
		switch {
		case err == nil:
			all[pid] = p
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH): // else it has just ended
			return nil, err
		}
	}
	return all, nil
}

// children is the tree of processes: who has which children.
func children(all map[int]proc) map[int][]proc {
	tree := make(map[int][]proc, len(all))
	for _, p := range all {
		tree[p.parent] = append(tree[p.parent], p)
	}
	return tree
}

// below are the processes below one, itself not among them.
func below(tree map[int][]proc, root int) []proc {
	list := tree[root]
	for i := 0; i < len(list); i++ {
		list = append(list[:len(list):len(list)], tree[list[i].pid]...)
	}
	return list
}

// program is the base name of what a process runs, or "" where that may not be seen.
func program(pid int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSuffix(path, " (deleted)"))
}

// marked says whether a process began with an entry in its environment. It is unsure of one that has none: it may be about to begin
// another program, or to end, and there is something to read a moment later, or no process.
func (p proc) marked(entry string) (is, unsure bool) {
	if p.kernel {
		return false, false
	}
	b, err := environment(p.pid)
	if len(b) == 0 {
		return false, !errors.Is(err, fs.ErrPermission)
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if string(v) == entry {
			return true, false
		}
	}
	return false, false
}

// environment is what a process began with, by its first thread that has not ended.
func environment(pid int) ([]byte, error) {
	b, err := readWhole(fmt.Sprintf("/proc/%d/environ", pid))
	if len(b) > 0 || errors.Is(err, fs.ErrPermission) {
		return b, err
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		if b, err = readWhole(fmt.Sprintf("/proc/%d/task/%s/environ", pid, t.Name())); len(b) > 0 {
			break
		}
	}
	return b, err
}

// readWhole reads a file of /proc at once: in parts, it would end where the process begins another program in between.
func readWhole(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	for b := make([]byte, 16<<10); ; b = make([]byte, 4*len(b)) {
		n, err := f.ReadAt(b, 0)
		if n < len(b) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return b[:n], err
		}
	}
}

// lives says whether a process is there and has not ended.
func (k key) lives() bool {
	p, err := lookAt(k.pid)
	return err == nil && p.key() == k && !p.dead()
}

// open is a descriptor of a process, which stays that one's. There is no such process any more: ESRCH.
func (k key) open() (int, error) {
	fd, err := unix.PidfdOpen(k.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	p, err := lookAt(k.pid)
	if err == nil && p.start == k.start {
		return fd, nil
	}
	_ = unix.Close(fd) // nothing was done with it
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return -1, unix.ESRCH // another process has the pid by now
	}
	return -1, err
}

// signal sends signals to a process, and never to another that has its pid by now. One that is gone is no error.
func (k key) signal(signals ...unix.Signal) error {
	fd, err := k.open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	for _, s := range signals {
		if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
