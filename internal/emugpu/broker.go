// Package emugpu is the broker of emulated GPUs: it owns devices, contexts, streams and memory, and computes when the
// work of all processes ends. Processes see the GPUs through an emulated libcuda.so.1 (shim/emu), which shares memory
// with the broker; shim/emu/emu_wire.h is the contract between the two.
package emugpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weft.dev/weft/internal/emugpu/model"
)

// Broker serves emulated GPUs over a socket until it is closed.
type Broker struct {
	options Options
	folder  string // made for the socket; removed at the end
	socket  string
	clock   *clock
	audit   *auditor
	listen  *net.UnixListener
	waiter  *waiter
	ended   sync.WaitGroup
	slow    atomic.Int64 // nanoseconds more per request of a driver
	quit    chan struct{}

	mu          sync.Mutex
	closed      bool
	model       *model.Model
	gpus        []*gpuState
	attachments []*attachment // in the order of attaching
	rings       []*ring       // of all contexts, in their order
	byStream    map[*model.Stream]*ring
	batch       []arrival
	memory      *memory
	xids        []xidEvent
	connections map[*net.UnixConn]bool
	past        []ProcessStats // of ended attachments
	counts      counts
	random      *rand.Rand
	lastContext uint32
}

// gpuState is the state of a device that the model knows nothing of.
type gpuState struct {
	GPU
	uuid     [16]byte
	health   health
	lastXID  uint32
	hangs    uint64 // kernels still to be made endless
	failures uint64 // allocations still to be refused
	launches uint64
}

// counts are what the broker notes about its clients.
type counts struct {
	requests, refused, nonsense uint64
}

// Start serves emulated GPUs.
func Start(o Options) (*Broker, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	b := &Broker{options: o, byStream: map[*model.Stream]*ring{}, memory: newMemory(o.GPUs),
		connections: map[*net.UnixConn]bool{}, quit: make(chan struct{}), random: rand.New(rand.NewPCG(o.Seed, 0x77656674)),
		model: model.New(model.Options{GPUs: len(o.GPUs), Slice: o.Slice, Switch: o.Switch, FIFO: o.FIFO, Slowdown: o.Slowdown})}
	for _, g := range o.GPUs {
		b.gpus = append(b.gpus, &gpuState{GPU: g, uuid: b.uuid()})
	}
	if err := b.open(); err != nil {
		b.release()
		return nil, err
	}
	b.ended.Go(b.accept)
	b.ended.Go(b.run)
	return b, nil
}

// uuid is a random UUID of version 4. They are drawn in the order of the GPUs: index and seed make it.
func (b *Broker) uuid() [16]byte {
	var u [16]byte
	for i := range u {
		u[i] = byte(b.random.Uint32())
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// open acquires everything outside of the process's own memory.
func (b *Broker) open() (err error) {
	if b.clock, err = newClock(b.options.Clock, b.options.Scale, len(b.gpus)); err != nil {
		return err
	}
	if b.audit, err = newAuditor(len(b.gpus)); err != nil {
		return err
	}
	if b.waiter, err = newWaiter(); err != nil {
		return err
	}
	return b.bind()
}

// bind makes the socket. One that a dead broker left is replaced; any other file is not.
func (b *Broker) bind() error {
	b.socket = b.options.Socket
	if b.socket == "" {
		folder, err := os.MkdirTemp("", "weft-emu-")
		if err != nil {
			return err
		}
		b.folder, b.socket = folder, filepath.Join(folder, "gpus.sock")
	}
	path, err := filepath.Abs(b.socket)
	if err != nil {
		return err
	}
	b.socket = path
	address := &net.UnixAddr{Name: path, Net: "unixpacket"}
	b.listen, err = net.ListenUnix("unixpacket", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := dropStale(address); err != nil {
			return err
		}
		b.listen, err = net.ListenUnix("unixpacket", address)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: folder %s is not there; make it first", path, filepath.Dir(path))
	}
	return err
}

// dropStale removes a socket that nobody listens on.
func dropStale(address *net.UnixAddr) error {
	info, err := os.Lstat(address.Name)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("socket %s: a file that is no socket is in its place; name another path", address.Name)
	}
	c, err := net.DialUnix("unixpacket", nil, address)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("socket %s: emulated GPUs are served there already; end them or name another path", address.Name)
	}
	return os.Remove(address.Name)
}

// Socket is the path to hand to programs as WEFT_EMU_SOCKET.
func (b *Broker) Socket() string { return b.socket }

// Close ends all service. Processes that still use the GPUs find their contexts broken.
func (b *Broker) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	close(b.quit)
	_ = b.listen.Close() // removes the socket
	for c := range b.connections {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.waiter.poke()
	b.ended.Wait()
	b.release()
	return nil
}

// release returns what open acquired, as far as it came.
func (b *Broker) release() {
	for len(b.attachments) > 0 {
		b.detach(b.attachments[0])
	}
	if b.waiter != nil {
		b.waiter.close()
	}
	if b.audit != nil {
		b.audit.page.close()
	}
	if b.clock != nil {
		b.clock.page.close()
	}
	if b.folder != "" {
		_ = os.RemoveAll(b.folder)
	}
}

// Connections is how many programs, agents and observers are connected.
func (b *Broker) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.connections)
}

// accept serves every connection in a goroutine of its own.
func (b *Broker) accept() {
	for {
		c, err := b.listen.AcceptUnix()
		if err != nil {
			b.mu.Lock()
			closed := b.closed
			b.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			_ = c.Close()
			return
		}
		b.connections[c] = true
		b.ended.Go(func() { b.serve(c) })
		b.mu.Unlock()
	}
}

// byOrder orders rings by context and index.
func byOrder(x, y *ring) int {
	return cmp.Or(cmp.Compare(x.context.id, y.context.id), cmp.Compare(x.index, y.index))
}
