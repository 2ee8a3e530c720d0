package agent

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What /proc says of processes. Whoever has ended, or may not be looked at, is nothing in particular: zero values.

// procStat is a line of /proc/PID/stat.
type procStat struct {
	parent  int
	session int    // of processes, as setsid makes them
	started uint64 // clock ticks since boot
}

func statOf(pid int) procStat {
	var room [1024]byte // such a line is half as long
	text := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", room[:])
	if text == nil {
		return procStat{}
	}
	// The name, in brackets, may hold anything: fields are counted from its end. They are state, parent, group, session, and
	// the 20th is the start.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return procStat{}
	}
	var s procStat
	s.parent, _ = strconv.Atoi(fields[1])
	s.session, _ = strconv.Atoi(fields[3])
	s.started, _ = strconv.ParseUint(fields[19], 10, 64)
	return s
}

// readOnce reads what fits into room with three system calls: os.ReadFile makes a dozen, for each of hundreds of processes that
// start at once. It is nil where there is nothing to read.
func readOnce(path string, room []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	n, err := unix.Read(fd, room)
	_ = unix.Close(fd) // nothing is lost with it
	if err != nil || n <= 0 {
		return nil
	}
	return room[:n]
}

// startOf tells processes apart that have the same number one after the other; 0 where it is not known.
func startOf(pid int) uint64 {
	if pid == 0 {
		return 0
	}
	return statOf(pid).started
}

// nameOf is the short name of a process's program.
func nameOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}

// userOf is whose process it is; -1 where that is not known.
func userOf(pid int) int {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) != nil {
		return -1
	}
	return int(st.Uid)
}

// cgroupOf names the control group of a process that limits or names containers: that of version 2, or all of version 1.
func cgroupOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return string(text)
}

// socketOf is the socket of an allocation that a process's environment named when its program started.
func socketOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(text, []byte{0}) {
		if path, is := bytes.CutPrefix(v, []byte("WEFT_SOCKET=")); is {
			return string(path)
		}
	}
	return ""
}

// ancestors are a process's parent, its parent, and so on, as far as they are there.
func ancestors(pid int) []int {
	const most = 64
	var list []int
	for range most {
		if pid = statOf(pid).parent; pid <= 1 {
			break
		}
		list = append(list, pid)
	}
	return list
}

// numbersOf are the numbers of a process in all pid namespaces that it is in, outermost (as this /proc sees it) first.
func numbersOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		rest, is := strings.CutPrefix(line, "NSpid:")
		if !is {
			continue
		}
		var list []int
		for _, field := range strings.Fields(rest) {
			n, err := strconv.Atoi(field)
			if err != nil {
				return nil
			}
			list = append(list, n)
		}
		return list
	}
	return nil
}

// spaceOf is the pid namespace of a process.
func spaceOf(pid int) uint64 {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", pid), &st) != nil {
		return 0
	}
	return st.Ino
}

// bootID tells the uptimes of a machine apart.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// tick is the unit in which /proc tells when a process began (USER_HZ, which is 100 on all that Linux runs on today).
const tick = 10 * time.Millisecond

// never is a moment, in ticks, that does not come.
const never = math.MaxUint64

// ticks is now in those units; never where there is no such clock.
func ticks() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return never
	}
	return uint64(time.Duration(now.Nano()) / tick)
}
