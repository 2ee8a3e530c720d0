package model

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// copier is a copy engine: copies in one direction, one after the other in the order in which they could start.
type copier struct {
	m     *Model
	queue []*Stream
	since unit.Time // up to when the first copy is accounted for
}

func (e *copier) arrive(s *Stream) {
	if len(e.queue) == 0 {
		e.since = e.m.now
	}
	e.queue = append(e.queue, s)
}

func (e *copier) next() unit.Time {
	if len(e.queue) == 0 {
		return unit.Never
	}
	return e.since.Add(e.queue[0].left)
}

func (e *copier) fire() {
	e.touch()
	s := e.queue[0]
	e.queue = e.queue[1:]
	e.m.end(s)
	e.m.look(s)
	e.m.settle()
}

// touch brings work and accounts to the present instant.
func (e *copier) touch() {
	if len(e.queue) > 0 {
		passed := e.m.now.Sub(e.since)
		s := e.queue[0]
		s.left -= passed
		s.context.usage.Copying += passed
	}
	e.since = e.m.now
}

// forget removes the copies of a closed context.
func (e *copier) forget(c *Context) {
	e.touch()
	e.queue = slices.DeleteFunc(e.queue, func(s *Stream) bool { return s.context == c })
}
