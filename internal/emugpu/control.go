package emugpu

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// session is one connection to the control socket.
type session struct {
	b        *Broker
	c        *net.UnixConn
	pid      int32
	greeted  bool
	driver   bool
	process  *attachment // of a driver
	outgoing []int       // descriptors to send with the reply, duplicates of the broker's
}

// handler answers one request, under the broker's lock and with the model at now.
type handler struct {
	do      func(*session, *request, *reply)
	driver  bool // refused to observers
	changes bool // may end something earlier than was foreseen
}

// handlers are all requests. hello is apart: it comes first.
var handlers = [ops]handler{
	opDeviceGet:      {do: (*session).deviceGet},
	opContextCreate:  {do: (*session).contextCreate, driver: true, changes: true},
	opContextDestroy: {do: (*session).contextDestroy, driver: true, changes: true},
	opStreamCreate:   {do: (*session).streamCreate, driver: true},
	opStreamDestroy:  {do: (*session).streamDestroy, driver: true},
	opMemAlloc:       {do: (*session).memAlloc, driver: true},
	opMemFree:        {do: (*session).memFree, driver: true},
	opMemRetain:      {do: (*session).memRetain, driver: true},
	opMemResize:      {do: (*session).memResize, driver: true},
	opMemExport:      {do: (*session).memExport, driver: true},
	opMemImport:      {do: (*session).memImport, driver: true},
	opMemInfo:        {do: (*session).memInfo},
	opProcesses:      {do: (*session).processes},
	opUtilisation:    {do: (*session).utilisation},
	opEventNext:      {do: (*session).eventNext},
	opAuditOpen:      {do: (*session).auditOpen},
	opFault:          {do: (*session).fault, changes: true},
	opStats:          {do: (*session).stats},
}

// serve answers a connection's requests until it ends.
func (b *Broker) serve(c *net.UnixConn) {
	s := &session{b: b, c: c, pid: peer(c)}
	defer s.end()
	buffer := make([]byte, requestSize+1)
	for {
		n, err := c.Read(buffer) // descriptors that a client sends are dropped by the kernel
		if err != nil {
			return
		}
		if delay := time.Duration(b.slow.Load()); delay > 0 && s.driver {
			select {
			case <-time.After(delay):
			case <-b.quit:
				return
			}
		}
		r, fds := s.answer(buffer[:n])
		_, _, err = c.WriteMsgUnix(r.bytes(), rights(fds), nil)
		closeAll(fds)
		if err != nil {
			return
		}
	}
}

// end frees what the connection stands for.
func (s *session) end() {
	s.b.mu.Lock()
	delete(s.b.connections, s.c)
	if s == s.b.audit.by && !s.b.closed {
		s.b.pass()
		s.b.take() // what was launched before counts
		s.b.audit.lapse(s)
	}
	if s.process != nil && !s.process.gone && !s.b.closed {
		s.b.detach(s.process)
		s.b.waiter.poke()
	}
	s.b.mu.Unlock()
	_ = s.c.Close()
}

// answer is the reply to a packet, and the descriptors that go with it; the caller closes them.
func (s *session) answer(packet []byte) (*reply, []int) {
	r := &reply{}
	q, err := parseRequest(packet)
	if err != nil {
		r.refuse(statusRequest, "%v", err)
		return r, nil
	}
	r.Op = q.Op
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.counts.requests++
	if s.b.closed || s.process != nil && s.process.gone {
		r.Status = uint32(statusUnavailable)
		return r, nil
	}
	s.handle(&q, r)
	if r.Status != 0 {
		s.b.counts.refused++
	}
	fds := s.outgoing
	s.outgoing = nil
	return r, fds
}

func (s *session) handle(q *request, r *reply) {
	b := s.b
	if op(q.Op) == opHello {
		s.hello(q, r)
		return
	}
	if q.Op == 0 || op(q.Op) >= ops {
		r.refuse(statusRequest, "request %d is unknown to protocol %d", q.Op, wireProtocol)
		return
	}
	h := handlers[q.Op]
	switch {
	case !s.greeted:
		r.refuse(statusRequest, "the first request has to be hello")
		return
	case h.driver && !s.driver:
		r.refuse(statusRole, "request %d is for drivers; this connection said that it observes", q.Op)
		return
	}
	b.pass()
	h.do(s, q, r)
	b.publish()
	if h.changes || b.clock.mode == Virtual {
		b.waiter.poke()
	}
}

func (s *session) hello(q *request, r *reply) {
	b := s.b
	switch {
	case q.A != wireProtocol:
		r.refuse(statusVersion, "the emulated GPUs speak protocol %d, this library speaks %d: use the libcuda.so.1 and "+
			"libnvidia-ml.so.1 that were built with this weft", wireProtocol, q.A)
		return
	case s.greeted:
		r.refuse(statusRequest, "hello was said before on this connection")
		return
	case q.B > roleObserver:
		r.refuse(statusRole, "role %d is unknown", q.B)
		return
	}
	s.greeted = true
	r.A, r.B, r.C = uint64(s.pid), uint64(len(b.gpus)), uint64(b.clock.mode)
	if q.B == roleObserver {
		return
	}
	b.pass()
	a, err := b.attach(s.pid, text(q.Text[:]))
	if err != nil {
		r.refuse(statusOOM, "attach: %v", err)
		return
	}
	s.process, s.driver = a, true
	table, err := b.audit.page.reader()
	if err != nil {
		r.refuse(statusOOM, "attach: %v", err)
		return
	}
	s.send(b.clock.page.fd)
	s.outgoing = append(s.outgoing, table)
	s.send(a.page.fd)
	s.send(a.bell)
}

// send adds a duplicate of a descriptor to the reply: the original may be closed before it is sent.
func (s *session) send(fd int) {
	if twin, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		s.outgoing = append(s.outgoing, twin)
	}
}

// peer is the process at the other end of a connection; 0 when it cannot be told.
func peer(c *net.UnixConn) int32 {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var pid int32
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	return pid
}

func rights(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
