package arbiter

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// idleGrace is how long a gate waits before it says that it is idle.
const idleGrace = 500 * time.Microsecond

// ready says whether all gates are open, and the least of their windows.
func (p *process) ready() (bool, time.Duration) {
	window := time.Duration(0)
	for _, g := range p.sessions {
		if !g.open {
			return false, 0
		}
		if g.window > 0 && (window == 0 || g.window < window) {
			window = g.window
		}
	}
	return true, window
}

// launch goes on with the iteration as far as the gates and the window let.
func (p *process) launch() {
	if p.quit || p.left == 0 || p.m.now < p.resume {
		return
	}
	open, window := p.ready()
	if !open {
		p.ask()
		return
	}
	if p.wanted > 0 {
		p.waits = append(p.waits, p.m.now.Sub(p.wanted))
		p.wanted = 0
	}
	for _, g := range p.sessions {
		g.first = min(g.first, p.m.now)
	}
	p.end = max(p.end, p.m.now)
	n := p.left
	if window > 0 {
		n = min(n, int((window-p.end.Sub(p.m.now)+p.kernel-1)/p.kernel)) // as long as less than the window is outstanding
	}
	if n > 0 {
		p.run(n)
	}
	p.turn++
	turn := p.turn
	next := p.end
	if p.left > 0 {
		next = max(p.m.now.Add(1), min(p.end, p.end.Add(1-window)))
	}
	p.m.at(next, func() {
		switch {
		case turn != p.turn:
		case p.left > 0:
			p.launch()
		default:
			p.finish()
		}
	})
}

func (p *process) run(n int) {
	work := time.Duration(n) * p.kernel
	p.m.occupy(p, p.end, p.end.Add(work))
	p.end = p.end.Add(work)
	p.left -= n
	p.used += work
	p.ran += work
}

// ask requests the token through each closed gate, once.
func (p *process) ask() {
	for _, g := range p.sessions {
		if !g.open && g.epoch == 0 && !g.asked {
			g.asked = true
			if p.wanted == 0 {
				p.wanted = p.m.now
			}
			p.m.send(func(now unit.Time) []Decision { return p.m.a.Request(now, g.id) })
		}
	}
}

// finish ends an iteration: a synchronisation, then the gap.
func (p *process) finish() {
	p.done++
	p.last, p.past = p.m.now, p.gaps
	p.left = p.kernels
	gap := p.gap()
	p.gaps += gap
	p.resume = p.m.now.Add(gap)
	p.m.at(p.resume, p.launch)
	p.synced()
	turn := p.turn
	p.m.after(idleGrace, func() {
		if turn != p.turn || p.m.now >= p.resume || p.quit {
			return
		}
		for _, g := range p.sessions {
			if g.open {
				p.m.send(func(now unit.Time) []Decision { return p.m.a.Idle(now, g.id) })
			}
		}
	})
}

// synced returns the tokens that others wait for, if nothing is outstanding.
func (p *process) synced() {
	if p.m.now < p.end || p.m.now >= p.resume {
		return
	}
	for _, g := range p.sessions {
		switch at := p.end.Add(g.spare); {
		case !g.yield || !g.open:
		case g.spare > 0 && !(g.ahead && g.first == unit.Never) && p.m.now < at:
			p.m.at(at, p.synced)
		default:
			p.shut(g)
		}
	}
}

// shut closes a gate and releases when its kernels are done.
func (p *process) shut(g *gate) {
	if !g.open {
		return
	}
	g.open = false
	p.turn++
	epoch, told := g.epoch, p.m.now
	if p.stuck != nil {
		p.m.occupy(p, p.end, max(p.end, p.m.now).Add(1))
		p.end = max(p.end, p.m.now).Add(p.stuck())
	}
	p.m.at(p.end, func() {
		if p.quit || g.epoch != epoch {
			return
		}
		g.epoch = 0
		used := p.used - g.from
		r := Release{Epoch: epoch, Used: used, Overrun: max(0, p.m.now.Sub(told)-g.window), Launched: g.first < unit.Never}
		if g.ahead && r.Launched {
			r.Rested = g.first.Sub(g.granted)
		}
		p.m.send(func(now unit.Time) []Decision { return p.m.a.Released(now, g.id, r) })
		if p.left == 0 && p.end <= p.m.now {
			p.finish()
		} else {
			p.launch()
		}
	})
}

// every is a gap that is always as long.
func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
