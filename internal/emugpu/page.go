package emugpu

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page is memory shared with other processes. Its size is sealed: nobody can cut it short under the broker.
type page struct {
	data []byte
	fd   int
}

// newPage makes a page and maps it.
func newPage(name string, size int) (*page, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	p, err := mapPage(fd, size)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return p, nil
}

func mapPage(fd, size int) (*page, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	p := &page{data, fd}
	p.u32(0).Store(wireMagic)
	return p, nil
}

// keepReading seals the page against new writable mappings: whoever receives it from now on can only read.
func (p *page) keepReading() error {
	const futureWrite = 0x10 // F_SEAL_FUTURE_WRITE
	_, err := unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, futureWrite)
	return err
}

// reader is a descriptor of the page that can only be read.
func (p *page) reader() (int, error) {
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

func (p *page) close() {
	_ = unix.Munmap(p.data)
	_ = unix.Close(p.fd)
}

// u32 is an atomic word of the page.
func (p *page) u32(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&p.data[at])) }

// u64 is an atomic word of the page.
func (p *page) u64(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p.data[at])) }

// wake wakes whoever waits for a word of shared memory.
func wake(word *atomic.Uint32) {
	const futexWake = 1
	_, _, _ = unix.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30)
}

// fileOf is a sealed file of memory with a content, for a reply.
func fileOf(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(content, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
