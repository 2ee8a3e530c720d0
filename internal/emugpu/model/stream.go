package model

import (
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// Kind is what an operation does.
type Kind uint16

// The kinds, numbered as on the wire.
const (
	Kernel       Kind = iota + 1 // compute engine
	Graph                        // compute engine, as one kernel
	HostToDevice                 // copy engine
	DeviceToHost                 // the other copy engine
	Device                       // memset and copies within device memory: compute engine
	RecordEvent                  // notes when everything before it has ended
	Wait                         // for an entry of another stream
	Host                         // for a function on the host
)

// onCompute says whether a kind takes the compute engine.
func (k Kind) onCompute() bool { return k == Kernel || k == Graph || k == Device }

// Op is an operation of a stream.
type Op struct {
	Kind       Kind
	Cost       time.Duration // engine time when alone
	Endless    bool          // on the compute engine: it never ends
	Event      uint32        // RecordEvent
	Generation uint64        // RecordEvent
	On         *Stream       // Wait; nil waits for nothing
	Entry      uint64        // Wait: the entry of On, counted from 1
}

// entry is an operation in its queue.
type entry struct {
	Op
	total time.Duration // cost of all operations of the stream up to and including this one
}

// Context is a process's part of a GPU.
type Context struct {
	gpu    int
	name   string
	order  int
	closed bool
	listed bool          // the compute engine has it in its round
	work   fifo[*Stream] // whose front waits for the compute engine or is on it, in the order of arrival
	all    []*Stream
	usage  Usage
}

// Stream is a queue of operations that run one after the other.
type Stream struct {
	context  *Context
	queue    fifo[entry] // outstanding; the front may be on an engine
	done     uint64      // how many ended
	total    time.Duration
	left     time.Duration // of the front, once it waits for an engine
	carry    int64         // thousandths of a nanosecond of its time that are no nanosecond of its work yet
	entered  bool          // the front waits for an engine or is on it
	hostDone uint64
	waiters  []*Stream // whose front waits for this stream
	changed  bool
	looked   bool
	gone     bool // forgotten: nobody waits for it
	ticket   uint64
}

// Open makes a context on a GPU. The name is for slowdowns.
func (m *Model) Open(gpu int, name string) *Context {
	m.contexts++
	return &Context{gpu: gpu, name: name, order: m.contexts}
}

// Stream makes a stream of a context. Its entries are counted on from done.
func (m *Model) Stream(c *Context, done uint64) *Stream {
	s := &Stream{context: c, done: done}
	c.all = append(c.all, s)
	return s
}

// Done is how many entries of the stream have ended.
func (s *Stream) Done() uint64 { return s.done }

// Pending is how many entries have not.
func (s *Stream) Pending() int { return s.queue.len() }

func (s *Stream) push(op Op) {
	s.total += op.Cost
	s.queue.push(entry{op, s.total})
}

// Forget removes a stream that has nothing to do. Streams that wait for an entry of it go on.
func (m *Model) Forget(s *Stream) {
	if s.queue.len() > 0 || s.gone {
		return
	}
	s.gone = true
	s.context.all = slices.DeleteFunc(s.context.all, func(o *Stream) bool { return o == s })
	m.release(s)
	m.settle()
}

// look puts a stream on the list of those whose front is to be looked at.
func (m *Model) look(s *Stream) {
	if !s.looked {
		s.looked = true
		m.ready.push(s)
	}
}

// settle brings the front of every stream to look at to where it waits for time to pass.
func (m *Model) settle() {
	for m.ready.len() > 0 {
		s := m.ready.pop()
		s.looked = false
		for s.queue.len() > 0 && !s.entered && m.begin(s) {
			m.end(s)
		}
	}
}

// begin starts the front of a stream. True when it has ended by that.
func (m *Model) begin(s *Stream) bool {
	op := s.queue.at(0)
	switch {
	case op.Kind.onCompute():
		m.enter(s, op)
		m.gpus[s.context.gpu].compute.arrive(s)
		return false
	case op.Kind == HostToDevice || op.Kind == DeviceToHost:
		m.enter(s, op)
		m.gpus[s.context.gpu].copiers[op.Kind-HostToDevice].arrive(s)
		return false
	case op.Kind == RecordEvent:
		m.records = append(m.records, Record{s, op.Event, op.Generation, m.now})
	case op.Kind == Wait && op.On != nil && op.On.done < op.Entry && !op.On.context.closed && !op.On.gone:
		op.On.waiters = append(op.On.waiters, s)
		return false
	case op.Kind == Host:
		return s.hostDone > s.done
	}
	return true
}

func (m *Model) enter(s *Stream, op *entry) {
	m.ticket++
	s.entered, s.left, s.carry, s.ticket = true, op.Cost, 0, m.ticket
}

// end takes the front off its stream.
func (m *Model) end(s *Stream) {
	s.queue.pop()
	s.done++
	s.entered = false
	if !s.changed {
		s.changed = true
		m.changed = append(m.changed, s)
	}
	m.release(s)
}

// release looks again at the streams that wait for one.
func (m *Model) release(s *Stream) {
	for _, w := range s.waiters {
		m.look(w)
	}
	s.waiters = s.waiters[:0]
}

// Close drops whatever a context still has to do. Streams that wait for one of its go on.
func (m *Model) Close(c *Context) {
	if c.closed {
		return
	}
	d := &m.gpus[c.gpu]
	c.closed = true
	d.compute.forget(c)
	for i := range d.copiers {
		d.copiers[i].forget(c)
	}
	for _, s := range c.all {
		s.queue, s.entered = fifo[entry]{}, false
		m.release(s)
	}
	m.settle()
}

// Bound is the earliest time at which an entry of a stream may end, whatever else is submitted: what is left to do on
// the stream takes at least its cost. unit.Never: it has not been submitted, or cannot end without a host function.
func (m *Model) Bound(s *Stream, entry uint64) unit.Time { return m.bound(s, entry, 4) }

// bound follows waits for other streams a few steps; any less is a lower bound as well.
func (m *Model) bound(s *Stream, entry uint64, steps int) unit.Time {
	if entry <= s.done {
		return m.now
	}
	if entry > s.done+uint64(s.queue.len()) || s.context.closed {
		return unit.Never
	}
	m.touch(s.context.gpu)
	front, last := s.queue.at(0), s.queue.at(int(entry-s.done-1))
	left := last.total - front.total
	switch {
	case front.Endless:
		return unit.Never
	case s.entered:
		return m.now.Add(left + s.left)
	case front.Kind == Wait && steps > 0:
		return m.bound(front.On, front.Entry, steps-1).Add(left)
	}
	return m.now.Add(left)
}
