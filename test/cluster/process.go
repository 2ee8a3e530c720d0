package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process that no later one with its number is taken for.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks between the machine's start and its own
}

// identify is the process that has a number now.
func identify(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	fields, err := statFields(string(text))
	if err != nil {
		return process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return process{}, os.ErrProcessDone
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("process %d: its start: %w", pid, err)
	}
	return process{pid, start}, nil
}

// statFields are the fields of /proc/PID/stat from the third on: a name may hold anything, parentheses and blanks included.
func statFields(stat string) ([]string, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return nil, fmt.Errorf("no stat line: %q", stat)
	}
	return fields, nil
}

// alive says whether it runs. A process that has ended and waits for its parent does not.
func (p process) alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := identify(p.PID)
	return err == nil && now == p
}

// signal sends a signal; to one that is gone none.
func (p process) signal(s syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	return nil
}

// end waits until it is gone.
func (p process) end(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for p.alive() {
		if err := pause(ctx, 20*time.Millisecond); err != nil && p.alive() { // it may have gone while nobody looked
			return fmt.Errorf("process %d does not end: %w", p.PID, err)
		}
	}
	return nil
}

// memory is how many bytes of it are resident; 0 when it is gone.
func (p process) memory() int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/statm")
	if err != nil || !p.alive() {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// tick is the unit in which Linux counts the time of processes, on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// processor is how long all its threads ran so far; 0 when it is gone.
func (p process) processor() time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
	if err != nil || !p.alive() {
		return 0
	}
	fields, err := statFields(string(text))
	if err != nil {
		return 0
	}
	user, first := strconv.ParseInt(fields[11], 10, 64)
	system, second := strconv.ParseInt(fields[12], 10, 64)
	if errors.Join(first, second) != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

// mark is in the environment of every process of a cluster, shims of containers included, with the cluster's folder: so they
// are found when nobody could write down their numbers.
const mark = "WEFT_CLUSTER_OF"

// marked are the processes of the cluster in a folder.
func marked(dir string) []process {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	var list []process
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !hasVariable(text, mark+"="+dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if p, err := identify(pid); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func hasVariable(environment []byte, variable string) bool {
	for v := range bytes.SplitSeq(environment, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// spawner starts processes that end with this one. Linux ties their end to the thread that started them, so one goroutine
// keeps one thread for it.
type spawner struct {
	work chan func()
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start starts a command whose output goes to a file. A detached one outlives this process; another one is killed when this
// process ends, however that happens. ended is closed when it has ended and was waited for.
func (s *spawner) start(cmd *exec.Cmd, logFile string, detached bool) (p process, ended <-chan struct{}, err error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return process{}, nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !detached {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error)
	s.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return process{}, nil, err
	}
	done := make(chan struct{})
	p, err = identify(cmd.Process.Pid)
	if errors.Is(err, os.ErrProcessDone) { // ended already; what it said is in the log
		p, err = process{PID: cmd.Process.Pid}, nil
	}
	go func() {
		_ = cmd.Wait() // how it ended is of no interest: it is watched by what it does
		close(done)
	}()
	return p, done, err
}

// close ends the thread, and with it what runs of it still.
func (s *spawner) close() { close(s.work) }
