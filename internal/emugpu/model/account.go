package model

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// Account is what a GPU's compute engine did. What is neither is idle.
type Account struct {
	Busy      time.Duration // running kernels, slowdowns included
	Switching time.Duration // loading contexts
}

// Usage is what a context had of its GPU.
type Usage struct {
	Busy    time.Duration // of the compute engine
	Copying time.Duration // of the copy engines
	Kernels uint64        // ended; a graph counts as one
}

// Usage is what a context has had up to now. It stays when the context is closed.
func (m *Model) Usage(c *Context) Usage {
	m.touch(c.gpu)
	return c.usage
}

// Account is what a GPU has done up to now.
func (m *Model) Account(gpu int) Account {
	m.touch(gpu)
	return m.gpus[gpu].account
}

// Utilisation is the share of the last second in which the compute engine of a GPU ran kernels, in [0, 1].
func (m *Model) Utilisation(gpu int) float64 {
	m.touch(gpu)
	return m.gpus[gpu].history.share(m.now)
}

// touch brings the accounts of a GPU to the present instant.
func (m *Model) touch(gpu int) {
	d := &m.gpus[gpu]
	d.compute.touch()
	for i := range d.copiers {
		d.copiers[i].touch()
	}
}

// history keeps how long an engine was busy in each of the last parts of a second.
type history [parts + 1]struct {
	part unit.Time // which part since time 0
	busy time.Duration
}

const (
	parts = 10
	part  = time.Second / parts
)

// add notes that the engine was busy from one instant to another.
func (h *history) add(from, to unit.Time) {
	from = max(from, to.Add(-parts*part-part)) // nothing older is asked for
	for from < to {
		n := from / unit.Time(part)
		end := min(to, (n+1)*unit.Time(part))
		slot := &h[n%unit.Time(len(h))]
		if slot.part != n {
			slot.part, slot.busy = n, 0
		}
		slot.busy += end.Sub(from)
		from = end
	}
}

// share is the busy share of the second before the part that an instant is in, or of the time since 0 when that is
// shorter.
func (h *history) share(now unit.Time) float64 {
	n := now / unit.Time(part)
	if n == 0 {
		return 0
	}
	var busy time.Duration
	first := max(0, n-parts)
	for i := range h {
		if h[i].part >= first && h[i].part < n {
			busy += h[i].busy
		}
	}
	return float64(busy) / float64(time.Duration(n-first)*part)
}
