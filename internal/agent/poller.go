package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
)

// poller waits for descriptors, for an instant and for calls from other goroutines. All its methods but call belong to one
// goroutine, which is locked to its thread: Go's own timers are up to a millisecond late, a timer descriptor some ten
// microseconds.
type poller struct {
	epoll, timer, wake int
	ready              map[int]watched
	added              int32 // descriptors so far
	events             [batch]unix.EpollEvent
	armed              unit.Time

	mu     sync.Mutex
	calls  []func()
	closed bool
}

// watched is a descriptor. Its number may be another's before all events of a batch are served; the count of add may not.
type watched struct {
	count int32
	f     func(events uint32)
}

// batch is how many descriptors are looked at before the others and the clock have their turn.
const batch = 64

func newPoller() (*poller, error) {
	p := &poller{epoll: -1, timer: -1, wake: -1, ready: map[int]watched{}, armed: unit.Never}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("timer descriptor: %w", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("event descriptor: %w", err)
	}
	if err := errors.Join(p.add(p.timer, unix.EPOLLIN, p.expired), p.add(p.wake, unix.EPOLLIN, p.called)); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// add watches a descriptor until remove. f is called with what is ready.
func (p *poller) add(fd int, events uint32, f func(events uint32)) error {
	p.added++
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd), Pad: p.added}); err != nil {
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	p.ready[fd] = watched{p.added, f}
	return nil
}

// watch changes what of a descriptor is watched.
func (p *poller) watch(fd int, events uint32) {
	// It fails for a descriptor that is not watched alone, which is then not to be heard of anyway.
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd), Pad: p.ready[fd].count})
}

// remove forgets a descriptor, and closes it.
func (p *poller) remove(fd int) {
	if _, watched := p.ready[fd]; watched {
		delete(p.ready, fd)
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) // another process may hold it open: closing is not enough
	}
	_ = unix.Close(fd) // nothing is lost with it
}

// wait waits until an instant at most, and calls after for each descriptor that it served.
func (p *poller) wait(until unit.Time, after func()) error {
	p.arm(until)
	n, err := unix.EpollWait(p.epoll, p.events[:], -1)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for descriptors: %w", err)
	}
	for _, e := range p.events[:max(0, n)] {
		if w := p.ready[int(e.Fd)]; w.f != nil && w.count == e.Pad {
			w.f(e.Events)
			after()
		}
	}
	return nil
}

// arm sets the timer. An instant of the past fires at once.
func (p *poller) arm(until unit.Time) {
	if until == p.armed {
		return
	}
	p.armed = until
	var at unix.ItimerSpec // zero disarms
	if until < unit.Never {
		at.Value = unix.NsecToTimespec(max(1, int64(until)))
	}
	_ = unix.TimerfdSettime(p.timer, unix.TFD_TIMER_ABSTIME, &at, nil) // only a bad argument fails
}

func (p *poller) expired(uint32) {
	p.armed = unit.Never
	drain(p.timer)
}

// call runs f on the poller's goroutine. It says false, and f will not run, once the poller is closed.
func (p *poller) call(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls = append(p.calls, f)
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, _ = unix.Write(p.wake, one) // fails only where it is ready already
	return true
}

func (p *poller) called(uint32) {
	drain(p.wake)
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// close takes no more calls, and drops those that did not run. It may be called twice.
func (p *poller) close() {
	p.mu.Lock()
	closed := p.closed
	p.calls, p.closed = nil, true
	p.mu.Unlock()
	if closed {
		return
	}
	for _, fd := range []int{p.timer, p.wake, p.epoll} {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing is lost with them
		}
	}
}

// drain reads a descriptor that counts.
func drain(fd int) {
	var count [8]byte
	_, _ = unix.Read(fd, count[:]) // its number says nothing
}

// niceness of the reactor: it computes little, and hundreds of processes that compute much wait for it.
const niceness = -20

// urgent lets this thread run when it wants to, and its timers be as exact as the kernel can.
func urgent() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)   // otherwise they are 50 us late
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) // of the thread alone; an agent without the right waits like others
}

// peer is who connected a socket.
type peer struct {
	pid   int // 0 where its pid namespace is not below ours
	uid   int
	pidfd int // -1 where there is none
}

// nobody is a peer before there is one.
var nobody = peer{pidfd: -1}

// soPeerPidfd is SO_PEERPIDFD of Linux 6.5.
const soPeerPidfd = 77

// peerOf asks the kernel who connected a socket.
func peerOf(fd int) (peer, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nobody, fmt.Errorf("who connected: %w", err)
	}
	p := peer{pid: int(c.Pid), uid: int(c.Uid), pidfd: -1}
	if p.pid == 0 {
		return p, nil
	}
	if own, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPidfd); err == nil {
		p.pidfd = own
		return p, nil
	}
	if p.pidfd, err = unix.PidfdOpen(p.pid, 0); errors.Is(err, unix.ESRCH) {
		return p, fmt.Errorf("process %d is gone: %w", p.pid, err)
	} else if err != nil {
		p.pidfd = -1 // before Linux 5.3: the socket alone tells
	}
	return p, nil
}

// alive says whether the process behind a descriptor runs.
func alive(pidfd int) bool {
	set := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(set, 0)
	return err == nil && n == 0
}
