package agent

import (
	"testing"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
)

// TestReusedDescriptor closes a descriptor of which an event is still to be served, and opens another one of its number: that one
// hears nothing of it. A process that has just come would otherwise be taken for the one that has just ended.
func TestReusedDescriptor(t *testing.T) {
	p, err := newPoller()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	open := func(count uint) int {
		fd, err := unix.Eventfd(count, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	fds := [2]int{open(1), open(1)}
	first := -1
	for i := range fds {
		if err := p.add(fds[i], unix.EPOLLIN, func(uint32) {
			if first >= 0 {
				t.Error("served after it was removed")
				return
			}
			first = i
			other := fds[1-i]
			p.remove(other)
			fresh := open(0)
			if fresh != other {
				t.Fatalf("descriptor %d, want %d", fresh, other)
			}
			if err := p.add(fresh, unix.EPOLLIN, func(uint32) { t.Error("an event of the one before it") }); err != nil {
				t.Error(err)
			}
			p.watch(fresh, unix.EPOLLIN)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.wait(unit.Never, func() {}); err != nil {
		t.Error(err)
	}
	if first < 0 {
		t.Error("nothing was served")
	}
	p.remove(fds[0])
	p.remove(fds[1])
}
