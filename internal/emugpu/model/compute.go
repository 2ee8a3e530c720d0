package model

import (
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// compute is the engine that runs kernels, one at a time: the contexts that have some take turns of a slice, and one
// that runs out passes its turn on at once. A kernel that its slice interrupts goes on at the next.
type compute struct {
	m       *Model
	gpu     *gpu
	round   []*Context // with work; the first has its turn
	loaded  *Context   // whose state the GPU holds
	loading bool       // until the end of loading; then the first of the round runs
	until   unit.Time
	turn    unit.Time // when the present slice began
	since   unit.Time // up to when work and accounts are brought
	factor  int64     // slowdown of the running context, in thousandths
}

// thousand is a slowdown of 1.
const thousand = 1000

// arrive takes a stream whose front is for this engine.
func (e *compute) arrive(s *Stream) {
	c := s.context
	c.work.push(s)
	if c.listed {
		return
	}
	e.touch()
	c.listed = true
	e.round = append(e.round, c)
	switch len(e.round) {
	case 1:
		e.dispatch()
	case 2: // slices went by unnoticed
		if slice := e.m.options.Slice; !e.loading && slice > 0 {
			e.turn = e.m.now.Add(-(e.m.now.Sub(e.turn) % slice))
		}
	}
	e.slow()
}

// next is when loading, the running kernel or the slice ends.
func (e *compute) next() unit.Time {
	switch {
	case len(e.round) == 0:
		return unit.Never
	case e.loading:
		return e.until
	}
	end := e.end()
	if len(e.round) > 1 && !e.m.options.FIFO {
		end = min(end, e.turn.Add(e.m.options.Slice))
	}
	return end
}

// end is when the running kernel ends unless its slice does before.
func (e *compute) end() unit.Time {
	s := *e.round[0].work.at(0)
	if s.queue.at(0).Endless {
		return unit.Never
	}
	if e.factor == thousand {
		return e.since.Add(s.left)
	}
	return e.since.Add(time.Duration((int64(s.left)*e.factor - s.carry + thousand - 1) / thousand))
}

// fire does what is due at the present instant.
func (e *compute) fire() {
	if e.loading {
		e.touch()
		e.loading, e.turn = false, e.m.now
		return
	}
	ended := e.end() <= e.m.now
	e.touch()
	c := e.round[0]
	if ended {
		s := c.work.pop()
		if s.queue.at(0).Kind != Device {
			c.usage.Kernels++
		}
		e.m.end(s)
		e.m.look(s)
		e.m.settle() // the stream's next kernel keeps the turn
	}
	e.pass(c)
}

// pass hands the turn on where the context that has it lost it.
func (e *compute) pass(c *Context) {
	switch {
	case c.work.len() == 0:
		c.listed = false
		e.round = slices.Delete(e.round, 0, 1)
		e.dispatch()
		e.slow()
	case e.m.options.FIFO:
		e.dispatch()
		e.slow()
	case len(e.round) > 1 && e.m.now >= e.turn.Add(e.m.options.Slice):
		copy(e.round, e.round[1:])
		e.round[len(e.round)-1] = c
		e.dispatch()
		e.slow()
	}
}

// dispatch starts the turn of the context that is to run next.
func (e *compute) dispatch() {
	e.since, e.loading = e.m.now, false
	if len(e.round) == 0 {
		return
	}
	if e.m.options.FIFO {
		e.first()
	}
	c := e.round[0]
	e.turn = e.m.now
	if e.loaded != nil && e.loaded != c && e.m.options.Switch > 0 {
		e.loading, e.until = true, e.m.now.Add(e.m.options.Switch)
	}
	e.loaded = c
}

// first brings the context forward whose kernel could start first.
func (e *compute) first() {
	least := 0
	for i, c := range e.round {
		if (*c.work.at(0)).ticket < (*e.round[least].work.at(0)).ticket {
			least = i
		}
	}
	e.round[0], e.round[least] = e.round[least], e.round[0]
}

// slow sets the slowdown of the running context beside the others that have work: what each pair loses adds up.
func (e *compute) slow() {
	e.factor = thousand
	if len(e.round) < 2 || len(e.m.options.Slowdown) == 0 {
		return
	}
	sum := 1.0
	for _, other := range e.round[1:] {
		sum += e.m.slowdown(e.round[0].name, other.name) - 1
	}
	e.factor = int64(math.Round(min(sum, MaxSlowdown) * thousand))
}

func (m *Model) slowdown(of, beside string) float64 {
	f, ok := m.options.Slowdown[Pair{of, beside}]
	if !ok {
		f = m.options.Slowdown[Pair{beside, of}]
	}
	return max(f, 1)
}

// touch brings work and accounts to the present instant.
func (e *compute) touch() {
	passed := e.m.now.Sub(e.since)
	if passed <= 0 || len(e.round) == 0 {
		e.since = e.m.now
		return
	}
	from := e.since
	e.since = e.m.now
	if e.loading {
		e.gpu.account.Switching += passed
		return
	}
	c := e.round[0]
	c.usage.Busy += passed
	e.gpu.account.Busy += passed
	e.gpu.history.add(from, e.m.now)
	s := *c.work.at(0)
	if s.queue.at(0).Endless {
		return
	}
	if e.factor == thousand {
		s.left -= passed
		return
	}
	work := int64(passed)*thousand + s.carry
	s.left = max(0, s.left-time.Duration(work/e.factor))
	s.carry = work % e.factor
}

// forget removes a closed context.
func (e *compute) forget(c *Context) {
	if e.loaded == c {
		e.loaded = nil
	}
	if !c.listed {
		return
	}
	e.touch()
	running := e.round[0] == c
	c.listed, c.work = false, fifo[*Stream]{}
	e.round = slices.DeleteFunc(e.round, func(o *Context) bool { return o == c })
	if running {
		e.dispatch()
	}
	e.slow()
}
