package emugpu

import (
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// waiter is what the thread of the model waits with: for bells, ends of processes, and precise deadlines.
type waiter struct {
	epoll int
	own   int // eventfd by which the broker wakes its thread
}

func newWaiter() (*waiter, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	own, err := newBell()
	if err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	w := &waiter{epoll, own}
	if err := w.add(own); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// newBell is an eventfd: something written to it wakes the thread. Nobody has to read it, since waits are for edges.
func newBell() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

func (w *waiter) close() {
	_ = unix.Close(w.epoll)
	_ = unix.Close(w.own)
}

// add watches a descriptor until it is closed.
func (w *waiter) add(fd int) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)})
}

func (w *waiter) remove(fd int) { _ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// poke ends the present or the next wait.
func (w *waiter) poke() { ring8(w.own) }

func ring8(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(fd, one[:])
}

// wait returns the descriptors that something happened on, at the latest after a time; a negative one is none. Late by
// some 20 to 40 us, where a Go timer would be up to a millisecond.
func (w *waiter) wait(most time.Duration, events []unix.EpollEvent) int {
	var limit *unix.Timespec
	if most >= 0 && most < math.MaxInt64 {
		t := unix.NsecToTimespec(int64(most))
		limit = &t
	}
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(w.epoll), Events: unix.POLLIN}}, limit, nil)
	n, _ := unix.EpollWait(w.epoll, events, 0)
	return max(n, 0)
}
