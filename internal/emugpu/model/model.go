// Package model computes when work on GPUs ends: a discrete-event model of streams, a compute engine that contexts
// share by time slices or in order, and two copy engines per GPU. It is pure: submissions go in with their time, and
// ends, records and accounts come out. All of it is exact: an engine works, loads a context or idles, and the three add
// up to the time that passed.
package model

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// MaxCost bounds one operation, so that no product of a cost and a slowdown overflows.
const MaxCost = 24 * time.Hour

// MaxSlowdown bounds the slowdown of one context beside all others.
const MaxSlowdown = 100

// Options say what the GPUs are like.
type Options struct {
	GPUs     int
	Slice    time.Duration    // a context's turn while others wait; 1 ns or more
	Switch   time.Duration    // what loading another context than the last costs
	FIFO     bool             // operations run to their end in the order in which they could start; no slices
	Slowdown map[Pair]float64 // at least 1; pairs that are not named do not slow each other down
}

// Pair is whose slowdown, beside whom: names of contexts. Where the reverse is not named, it is the same.
type Pair struct{ Of, Beside string }

// Model is the state of all GPUs at one time.
type Model struct {
	options  Options
	now      unit.Time
	gpus     []gpu
	contexts int           // made so far
	ready    fifo[*Stream] // whose front is to be looked at
	changed  []*Stream
	records  []Record
	ticket   uint64 // rises with every start of waiting for an engine
}

// gpu is one device.
type gpu struct {
	compute compute
	copiers [2]copier // host to device, device to host
	account Account
	history history
}

// engine is something that has a next instant at which it does something.
type engine interface {
	next() unit.Time
	fire()
}

// New is a model at time 0, with nothing on its GPUs.
func New(o Options) *Model {
	o.Slice = max(o.Slice, time.Nanosecond)
	m := &Model{options: o, gpus: make([]gpu, o.GPUs)}
	for g := range m.gpus {
		m.gpus[g].compute = compute{m: m, gpu: &m.gpus[g]}
		for i := range m.gpus[g].copiers {
			m.gpus[g].copiers[i] = copier{m: m}
		}
	}
	return m
}

// Now is how far the model has advanced.
func (m *Model) Now() unit.Time { return m.now }

// Next is when something happens next if nothing is submitted; unit.Never when nothing would.
func (m *Model) Next() unit.Time {
	t, _ := m.first()
	return t
}

// first is the engine that acts first; the earlier one in the order of GPUs and engines on a tie.
func (m *Model) first() (unit.Time, engine) {
	t, e := unit.Never, engine(nil)
	for g := range m.gpus {
		d := &m.gpus[g]
		if n := d.compute.next(); n < t {
			t, e = n, &d.compute
		}
		for i := range d.copiers {
			if n := d.copiers[i].next(); n < t {
				t, e = n, &d.copiers[i]
			}
		}
	}
	return t, e
}

// Advance lets time pass up to and including an instant. Earlier ones than Now are Now.
func (m *Model) Advance(to unit.Time) {
	for {
		t, e := m.first()
		if e == nil || t > to {
			break
		}
		m.now = max(m.now, t)
		e.fire()
	}
	m.now = max(m.now, to)
}

// Submit appends an operation to a stream at the present instant. Operations of closed contexts vanish.
func (m *Model) Submit(s *Stream, op Op) {
	if s.context.closed {
		return
	}
	op.Cost = min(max(op.Cost, 0), MaxCost)
	s.push(op)
	if s.Pending() == 1 {
		m.look(s)
		m.settle()
	}
}

// HostDone says that host functions of a stream up to an entry have returned.
func (m *Model) HostDone(s *Stream, entry uint64) {
	if entry <= s.hostDone || s.context.closed {
		return
	}
	s.hostDone = entry
	if s.queue.len() > 0 && s.queue.at(0).Kind == Host {
		m.look(s)
		m.settle()
	}
}

// Changed are the streams on which something ended since it was last called, in the order of their first end.
func (m *Model) Changed() []*Stream {
	list := m.changed
	for _, s := range list {
		s.changed = false
	}
	m.changed = nil
	return list
}

// Record says when an event was recorded.
type Record struct {
	Stream     *Stream
	Event      uint32
	Generation uint64
	At         unit.Time
}

// Records are the records since it was last called, in their order.
func (m *Model) Records() []Record {
	list := m.records
	m.records = nil
	return list
}
