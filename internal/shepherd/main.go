package shepherd

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors of a shepherd.
const (
	stdinFD = 0
	readyFD = 3 // Start reads from it: nothing once the program began or could not, or why this shepherd gave up
)

// drain is how long output is still read when all processes that this shepherd could end have ended.
const drain = 2 * time.Second

// Main is the process of a shepherd: its arguments are the folder of the job and the number of the attempt. It returns the
// exit status of the process, which nobody looks at.
func Main(args []string) int {
	runtime.LockOSThread() // the program dies with the thread that starts it
	ready := os.NewFile(readyFD, "ready")
	keepDescriptors()
	if err := shepherd(args, ready); err != nil {
		if ready != nil {
			_, _ = fmt.Fprintln(ready, err) // whoever reads it may be gone
		}
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// keepDescriptors keeps what this process has open from the program.
func keepDescriptors() {
	if unix.CloseRange(readyFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd") // without it there is nothing to do
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= readyFD {
			unix.CloseOnExec(fd)
		}
	}
}

// signals are what a shepherd listens to. Each has its own place, so that none crowds out another.
type signals struct{ child, stop, move chan os.Signal }

// listen is before the claim: who sees that can signal this process.
func listen() signals {
	s := signals{make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)}
	signal.Notify(s.child, unix.SIGCHLD)
	signal.Notify(s.stop, unix.SIGTERM, unix.SIGINT)
	signal.Notify(s.move, unix.SIGUSR1)
	// A handler, and not to ignore them: the program has the defaults then.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE, unix.SIGTSTP,
		unix.SIGTTIN, unix.SIGTTOU, unix.SIGXFSZ, unix.SIGXCPU)
	return s
}

// shepherd runs an attempt. An error is of the time before its claim: nothing was run, and nothing will be.
func shepherd(args []string, ready *os.File) error {
	if len(args) != 2 {
		return errors.New("weft shepherd is for weft up: it takes a folder and the number of an attempt")
	}
	dir := args[0]
	attempt, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("no attempt %q", args[1])
	}
	var t Task
	if err := readJSON(taskPath(dir, attempt), &t); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	unix.Umask(0o022)
	s := listen()
	lock, err := claimIt(dir, &t)
	if err != nil {
		return err
	}
	exit := Exit{}
	attend(dir, &t, s, &exit, ready)
	exit.keep(dir, attempt)
	_ = ready.Close() // the program could not begin, or it is closed already
	return lock.Close()
}

// claimIt takes the attempt, once there is room for what has to be recorded of it.
func claimIt(dir string, t *Task) (*os.File, error) {
	self, err := lookAt(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(reserve(beganPath(dir, t.Attempt)), reserve(exitPath(dir, t.Attempt))); err != nil {
		return nil, err
	}
	return claim{PID: self.pid, Start: self.start, Mark: t.Mark}.take(dir, t.Attempt)
}

// attend runs the program until it and all that it left has ended.
func attend(dir string, t *Task, s signals, exit *Exit, ready *os.File) {
	log := &output{w: appendLog(LogPath(dir), t.LogLimit)}
	pid, err := log.launch(t)
	if err != nil {
		exit.Status, exit.Fault = explain(t, err)
		exit.Ended = time.Now()
		log.close()
		exit.Dropped = log.w.dropped
		return
	}
	exit.Started = time.Now()
	program := key{pid: pid}
	if p, err := lookAt(pid); err == nil {
		program.start = p.start
	} // else it cannot be seen, and nothing it leaves
	b := began{program.pid, program.start, exit.Started}
	if err := writeJSON(beganPath(dir, t.Attempt), &b, false); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // its pid stays unknown
	}
	_ = ready.Close() // only tells
	slim()
	newGuard(program, t, s, exit).watch()
	exit.Ended = time.Now()
	log.close()
	exit.Dropped = log.w.dropped
}

// keep records the exit, however long that takes: until then this process is the record.
func (e *Exit) keep(dir string, attempt int) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := e.record(dir, attempt)
		if err == nil {
			return
		}
		if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
			return // nobody wants to know
		}
		_, _ = fmt.Fprintln(os.Stderr, err)
		time.Sleep(wait)
	}
}

// output copies what a program prints to the log.
type output struct {
	mu      sync.Mutex
	w       *writer
	pipes   []*os.File
	copiers sync.WaitGroup
}

// launch starts the program with its output in pipes to the log.
func (o *output) launch(t *Task) (int, error) {
	stdout, err := o.pipe(Stdout)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stdout.Close() }() // the program has it
	stderr, err := o.pipe(Stderr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stderr.Close() }() // likewise
	_ = unix.SetNonblock(stdinFD, false)  // as programs expect it; not of all files
	pid, err := launch(t, stdinFD, int(stdout.Fd()), int(stderr.Fd()))
	dropStdin()
	return pid, err
}

// pipe is the end for a program of a pipe to the log.
func (o *output) pipe(s Stream) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	r := os.NewFile(uintptr(fds[0]), s.String())
	o.pipes = append(o.pipes, r)
	o.copiers.Go(func() { o.copy(s, r) })
	return os.NewFile(uintptr(fds[1]), s.String()), nil
}

// dropStdin lets the input go: its writer is to see when the program does.
func dropStdin() {
	null, err := os.Open(os.DevNull)
	if err != nil {
		_ = unix.Close(stdinFD)
		return
	}
	_ = unix.Dup3(int(null.Fd()), stdinFD, 0) // both are valid
	_ = null.Close()
}

func (o *output) copy(s Stream, r *os.File) {
	buffer := make([]byte, mostBytes)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			o.mu.Lock()
			o.w.write(s, buffer[:n])
			o.mu.Unlock()
		}
		if err != nil {
			_ = r.Close() // only read from
			return
		}
	}
}

// close reads what is still to be read. Only processes that this one could not end hold a pipe open longer.
func (o *output) close() {
	for _, r := range o.pipes {
		_ = r.SetReadDeadline(time.Now().Add(drain)) // it is closed, or has none
	}
	o.copiers.Wait()
	o.w.close()
}
