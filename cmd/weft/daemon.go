package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// What a daemon is ready for: hundreds of processes that start at one instant on a machine that is full of them.
const (
	leastProcs      = 8    // goroutines that may run at once
	mostDescriptors = 4096 // without a pause; there may be more
)

// serveMany prepares this process to serve many others.
//
// On a small machine the threads of goroutines wait for a processor of the machine; the one that serves must not wait for
// theirs too, so there are more places for them than processors. And the kernel doubles the table of descriptors as they become
// more; each time, the thread that opens one too many waits for all processors, 10 ms and more while hundreds of processes
// start. The table never shrinks: it is made large once.
func serveMany() {
	runtime.GOMAXPROCS(max(leastProcs, runtime.NumCPU()))
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return // there will be pauses
	}
	defer func() { _ = unix.Close(fd) }() // nothing is lost with it
	for n := mostDescriptors; n > 64; n /= 2 {
		if high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, n-1); err == nil {
			_ = unix.Close(high) // the table stays as it is
			return
		} // beyond the limit of this process
	}
}
