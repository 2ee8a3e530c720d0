package agent

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// conn is one connection of a process. Whatever comes over it can close it, and harms no other.
type conn struct {
	a       *Agent
	alloc   *allocation
	fd      int
	peer    peer
	session *session // nil before HELLO
	since   unit.Time
	in, out wire.Sequence
	queue   [][]byte // what the socket did not take yet
	paused  bool
	closed  bool
}

// Bounds of a connection.
const (
	greeting   = 10 * time.Second     // until HELLO has to be there
	burst      = 8                    // messages read before others have their turn
	mostQueued = 64                   // messages that a process may leave unread, beyond the socket's own room
	rate       = 50                   // messages per millisecond of an allocation, on average: above what 4 processes that
	credit     = 5000                 // only allocate and free can send; and at once
	pause      = 2 * time.Millisecond // for one that says more
)

// interest watches for what is wanted of the socket now.
func (c *conn) interest() {
	if c.closed {
		return
	}
	var events uint32 // a hang-up is told in any case
	if !c.paused {
		events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if len(c.queue) > 0 {
		events |= unix.EPOLLOUT
	}
	c.a.poll.watch(c.fd, events)
}

// ready serves the socket.
func (c *conn) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.flush()
	}
	if !c.paused {
		c.read()
	}
	if events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 && c.paused {
		c.close()
	}
}

// read takes a few messages.
func (c *conn) read() {
	var packet [wire.Max + 1]byte
	for range burst {
		if c.closed {
			return
		}
		if !c.alloc.spend(c.a.clock.now()) {
			c.pause()
			return
		}
		n, err := unix.Read(c.fd, packet[:])
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			return
		case err != nil || n == 0:
			c.close()
			return
		}
		c.take(packet[:n])
	}
}

// pause lets what the process says wait in its socket.
func (c *conn) pause() {
	c.paused = true
	if len(c.a.paused) == 0 {
		c.a.resumes = c.a.clock.now().Add(pause)
	}
	c.a.paused = append(c.a.paused, c)
	c.interest()
}

// take serves one packet.
func (c *conn) take(packet []byte) {
	c.a.messages.in++
	number, m, err := wire.Parse(packet)
	switch {
	case errors.Is(err, wire.ErrVersion):
		c.refuse(wire.RefusedVersion, err.Error())
	case err != nil:
		c.refuse(wire.RefusedProtocol, err.Error())
	case !c.in.Take(number):
		c.refuse(wire.RefusedProtocol, "a message out of sequence")
	case c.session == nil:
		c.greet(m)
	case !c.session.take(m):
		c.refuse(wire.RefusedProtocol, "a message that is not expected")
	}
}

// send hands a message to the socket, or to the queue before it. It never waits.
func (c *conn) send(m wire.Message) {
	if c.closed {
		return
	}
	c.a.messages.out++
	var room [wire.Max]byte
	packet := wire.Append(room[:0], c.out.Next(), m)
	if len(c.queue) == 0 && c.push(packet) {
		return
	}
	if c.closed {
		return
	}
	if len(c.queue) >= mostQueued {
		c.a.note(c.event(EventUnread, "it does not read what it is told: connection closed"))
		c.close()
		return
	}
	c.queue = append(c.queue, append([]byte(nil), packet...))
	c.interest()
}

// push says whether the socket took a packet.
func (c *conn) push(packet []byte) bool {
	_, err := unix.SendmsgN(c.fd, packet, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
		c.close()
	}
	return err == nil
}

// flush sends what is queued as far as the socket takes it.
func (c *conn) flush() {
	for len(c.queue) > 0 && !c.closed && c.push(c.queue[0]) {
		c.queue = c.queue[1:]
	}
	c.interest()
}

// refuse says why and closes. What the peer has sent is read away first: otherwise it would learn of a reset instead.
func (c *conn) refuse(reason wire.Refusal, why string) {
	if c.closed {
		return
	}
	if reason == wire.RefusedProtocol || reason == wire.RefusedUser {
		c.a.note(c.event(EventRefused, why))
	}
	c.send(&wire.Refused{Reason: reason, Version: wire.Version})
	var packet [1]byte
	for range mostQueued {
		if n, err := unix.Read(c.fd, packet[:]); err != nil || n == 0 {
			break // also where it had hung up: the message closed the connection
		}
	}
	c.close()
}

// close ends the connection, now; what follows for its session is done after the event at hand.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.queue = nil
	c.a.poll.remove(c.fd)
	c.fd = -1 // its number may be another's at once
	if _, known := c.a.conns[c]; known {
		delete(c.a.conns, c)
		c.alloc.conns--
	}
	if s := c.session; s != nil && s.conn == c {
		s.conn = nil
		c.a.later(s.cut)
	} else if c.peer.pidfd >= 0 {
		_ = unix.Close(c.peer.pidfd) // it was only looked at
	}
}

// resume reads again from connections that had said too much.
func (a *Agent) resume(now unit.Time) {
	if len(a.paused) == 0 || now < a.resumes {
		return
	}
	list := a.paused
	a.paused = nil
	for _, c := range list {
		c.paused = false
		c.interest()
	}
}

// event is an event about a connection.
func (c *conn) event(kind, text string) Event {
	return Event{Type: kind, Job: c.alloc.spec.Name, ID: c.alloc.id, PID: c.peer.pid, Text: text}
}
