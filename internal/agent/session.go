package agent

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// session is one process of a job, from its HELLO to its death. Where its connection breaks and the process lives on, its
// memory stays charged until it comes back or dies; its tokens do not wait for that.
type session struct {
	a        *Agent
	alloc    *allocation
	number   uint64
	conn     *conn // nil while it is away
	peer     peer
	started  uint64 // of its process, as /proc says, to tell it from a later one of its number
	observer bool
	born     unit.Time
	away     unit.Time // since when
	heard    unit.Time // when it last said something
	pinged   unit.Time // when it was asked whether it is there; 0 when it is not being asked
	watched  unit.Time // since when it holds what others wait for; 0 when it does not
	names    []int     // of its process in the pid namespaces, outermost first; nil until asked for
	space    uint64    // inode of its pid namespace

	mask   uint32 // GPUs of the allocation on which it has a context
	token  token
	pieces map[uint64]piece // its memory, by handle
	stale  int              // pieces from before a restart that it did not confirm yet
}

// greet makes a session of a connection whose first message this is.
func (c *conn) greet(m wire.Message) {
	hello, is := m.(*wire.Hello)
	if !is || hello.Flags&^wire.Observer != 0 || bits.Len32(hello.GPUs) > len(c.alloc.gpus) {
		c.refuse(wire.RefusedProtocol, "no HELLO at first")
		return
	}
	s := c.a.claim(c, hello)
	resumed := s != nil
	if s == nil {
		c.a.ids.session++
		s = &session{a: c.a, alloc: c.alloc, number: c.a.ids.session, peer: nobody, pieces: map[uint64]piece{}, started: startOf(c.peer.pid), born: c.since}
		c.a.sessions[s.number] = s
		c.alloc.sessions[s.number] = s
	}
	s.observer = hello.Flags&wire.Observer != 0
	s.attach(c)
	if !s.observer && hello.Session == 0 && s.started > c.a.served {
		s.supervise()
	}
	var epoch uint64
	if resumed && hello.Epoch <= c.a.state.before {
		epoch = hello.Epoch
	}
	s.mask = hello.GPUs
	c.a.enter(s)
	decisions, held := s.join(epoch)
	s.say(s.welcome(held))
	s.a.registration.add(s.a.clock.now().Sub(c.since))
	c.a.act(decisions)
	c.a.back(s)
	c.alloc.tellWanted(s)
}

// supervise tells the audit that the process launches under tokens alone. One that was without an agent for a while, or began
// before this one served, may go on to launch freely until it learns that there is one, which its next request shows.
func (s *session) supervise() {
	if s.a.o.Audit != nil {
		s.a.o.Audit.Enter(s.peer.pid)
	}
}

// attach gives a session its connection, and its process to be watched.
func (s *session) attach(c *conn) {
	s.forgetProcess()
	s.conn, c.session, s.peer, s.away, s.pinged, s.heard = c, s, c.peer, 0, 0, c.since
	s.watchProcess()
}

func (s *session) watchProcess() {
	if s.peer.pidfd < 0 {
		return
	}
	if s.a.poll.add(s.peer.pidfd, unix.EPOLLIN, func(uint32) { s.a.later(s.end) }) != nil {
		s.forgetProcess() // the socket alone tells then
	}
}

func (s *session) forgetProcess() {
	if s.peer.pidfd >= 0 {
		s.a.poll.remove(s.peer.pidfd)
		s.peer.pidfd = -1
	}
}

// claim is the session that a process says to have had, where it is its own: of the same allocation and process. Sessions
// that the same process had before and does not claim are over: its program was replaced, or its library was loaded anew.
func (a *Agent) claim(c *conn, hello *wire.Hello) *session {
	if hello.Flags&wire.Observer != 0 || c.peer.pid == 0 {
		return nil
	}
	var claimed *session
	for _, s := range c.alloc.sessions {
		if s.peer.pid != c.peer.pid || s.observer {
			continue
		}
		switch {
		case s.number == hello.Session:
			claimed = s
		case s.conn == nil:
			a.later(s.end)
		}
	}
	if claimed != nil && claimed.conn != nil {
		claimed.conn.close() // of a process that comes back before its hang-up was seen
		claimed.cut()
	}
	if claimed == nil || a.sessions[claimed.number] != claimed {
		return nil
	}
	claimed.markStale()
	return claimed
}

// welcome are the terms of the session.
func (s *session) welcome(held bool) *wire.Welcome {
	m := &wire.Welcome{Session: s.number, Count: uint32(len(s.alloc.gpus)), Class: uint32(s.alloc.spec.Class), Grace: grace}
	if held {
		m.Held = 1
	}
	for i, g := range s.alloc.gpus {
		m.GPUs[i] = wire.GPU{UUID: g.UUID, Limit: uint64(s.alloc.spec.Reserved + s.alloc.spec.Peak), Reserved: uint64(s.alloc.spec.Reserved)}
	}
	return m
}

// grace is how long nothing has to be outstanding for a holder to be idle, us. Half a millisecond cost jobs that take turns
// most of their rate.
const grace = 200

// take serves a message. It says false to one that this session may not send.
func (s *session) take(m wire.Message) bool {
	_, pong := m.(*wire.Pong)
	s.hear(pong)
	switch m := m.(type) {
	case *wire.View:
		s.view(m)
		return true
	case *wire.ProcessesOf:
		s.list(m)
		return true
	case *wire.Pong:
		s.a.messages.token++
		return true
	}
	return !s.observer && (s.takeToken(m) || s.takeMemory(m))
}

// takeToken serves a message about tokens.
func (s *session) takeToken(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Use:
		return s.use(m.GPUs)
	case *wire.Request:
		s.request()
	case *wire.Released:
		s.released(m)
	case *wire.Idle:
		s.idle(m.Epoch.Epoch)
	default:
		return false
	}
	s.a.messages.token++
	return true
}

// takeMemory serves a message about memory.
func (s *session) takeMemory(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Alloc:
		return s.allocate(m)
	case *wire.Free:
		s.free(m.Handle)
	case *wire.Export:
		s.export(m)
	case *wire.Import:
		return s.importShared(m)
	case *wire.Iteration:
		s.iteration(m.Count)
	default:
		return false
	}
	s.a.messages.memory++
	return true
}

// say sends a message to the process, if it is there.
func (s *session) say(m wire.Message) {
	if s.conn != nil {
		s.conn.send(m)
	}
}

// cut is the loss of the connection.
func (s *session) cut() {
	if s.conn != nil || s.a.sessions[s.number] != s {
		return // it is back, or over
	}
	if s.observer || s.peer.pidfd < 0 || !alive(s.peer.pidfd) {
		s.end()
		return
	}
	s.away = s.a.clock.now()
	s.leave()
	s.token.wants = false
	s.forgetWaits()
}

// end is the end of the session: its token, its memory and its waits go.
func (s *session) end() {
	if s.a.sessions[s.number] != s {
		return
	}
	now := s.a.clock.now()
	delete(s.a.sessions, s.number)
	delete(s.alloc.sessions, s.number)
	if c := s.conn; c != nil {
		s.conn, c.session = nil, nil
		c.peer.pidfd = -1 // the session's own
		c.close()
	}
	s.forgetProcess()
	s.leave()
	s.clear()
	s.forgetWaits()
	s.forgetExports()
	for _, g := range s.alloc.gpus {
		g.ledger.Exit(now, s.alloc.account(), s.process())
		s.a.books(g)
	}
	s.a.back(s)
	s.a.later(s.alloc.releaseOrphan)
}

// gpusOf are the machine's GPUs on which the process has a context.
func (s *session) gpusOf() []int {
	var list []int
	for i, g := range s.alloc.gpus {
		if s.mask&(1<<i) != 0 {
			list = append(list, g.number)
		}
	}
	return list
}

func (s *session) id() arbiter.SessionID { return arbiter.SessionID(s.number) }

func (s *session) event(kind, text string) Event {
	return Event{Type: kind, Job: s.alloc.spec.Name, ID: s.alloc.id, PID: s.peer.pid, Text: text}
}
