package agent

import (
	"fmt"
	"math"
	"time"

	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// piece is memory of a process, as the agent needs to know it beside the ledger.
type piece struct {
	gpu   *gpu
	bytes unit.Bytes // 0 for memory that another process exported
	stale bool       // from before a restart or a lost connection, and not confirmed yet
}

// wait is an allocation that waits for the pool.
type wait struct {
	session *session
	conn    *conn // over which it came
	alloc   wire.Alloc
	bytes   unit.Bytes
	family  ledger.Family
	since   unit.Time
}

// mostPieces bounds the books of one process: beyond, it is told that its memory is full.
const mostPieces = 1 << 18

func (s *session) process() ledger.Process { return ledger.Process(s.number) }

func (s *session) handle(number uint64) ledger.Handle {
	return ledger.Handle{Process: s.process(), Number: number}
}

// allocate charges memory. It says false to a message that no shim sends.
func (s *session) allocate(m *wire.Alloc) bool {
	g := s.alloc.gpuAt(m.GPU)
	if g == nil || m.Flags&^wire.Held != 0 || m.Family > uint16(ledger.Host) || m.Handle == 0 || m.Bytes == 0 {
		return false
	}
	w := &wait{session: s, conn: s.conn, alloc: *m, bytes: size(m.Bytes), family: ledger.Family(m.Family), since: s.a.clock.now()}
	if p, known := s.pieces[m.Handle]; known {
		if m.Flags&wire.Held == 0 || !p.stale {
			return false
		}
		s.confirm(m.Handle, p)
		s.answer(w, wire.OK)
		return true
	}
	switch {
	case len(s.pieces) >= mostPieces:
		s.answer(w, wire.OutOfMemory)
	case m.Flags&wire.Held != 0:
		s.holdPiece(g, w)
	case g.waits[s.waitOf(m.Handle)] != nil:
		return false
	case s.a.unsettled:
		s.sweep()
		s.a.waiting = append(s.a.waiting, func() { s.reserveLate(g, w) })
	default:
		s.sweep() // it has come to something new: what it did not confirm is gone
		s.reserve(g, w)
	}
	s.a.books(g)
	return true
}

// reserveLate is for an allocation that came before all others had said what they hold.
func (s *session) reserveLate(g *gpu, w *wait) {
	if s.a.sessions[s.number] == s && s.conn == w.conn {
		s.reserve(g, w)
		s.a.books(g)
	}
}

func (s *session) waitOf(handle uint64) ledger.Request {
	return ledger.Request{Process: s.process(), Number: handle}
}

// reserve makes room for an allocation and charges it, or lets it wait.
func (s *session) reserve(g *gpu, w *wait) {
	now := s.a.clock.now()
	for {
		outcome := ledger.Granted
		if w.family != ledger.Host {
			outcome = g.ledger.Reserve(now, s.alloc.account(), s.waitOf(w.alloc.Handle), w.bytes).Outcome
		}
		if outcome == ledger.Waits {
			g.waits[s.waitOf(w.alloc.Handle)] = w
			s.alloc.waits[g.number]++
			return
		}
		if outcome == ledger.Granted {
			outcome = g.ledger.Alloc(now, s.alloc.account(), s.handle(w.alloc.Handle), w.bytes, w.family).Outcome
		}
		switch outcome {
		case ledger.Short:
			continue // another thread took the room
		case ledger.Granted:
			s.pieces[w.alloc.Handle] = piece{gpu: g, bytes: w.bytes}
			s.answer(w, wire.OK)
		default:
			s.alloc.tally.refused++
			s.a.counts.on(g.number).refused++
			s.answer(w, wire.OutOfMemory)
		}
		return
	}
}

// holdPiece charges memory that exists already, as far as there is room in the books.
func (s *session) holdPiece(g *gpu, w *wait) {
	now := s.a.clock.now()
	if w.family == ledger.Host {
		g.ledger.Alloc(now, s.alloc.account(), s.handle(w.alloc.Handle), w.bytes, w.family)
	} else if a := g.ledger.Hold(now, s.alloc.account(), s.handle(w.alloc.Handle), w.bytes, w.family); a.Outcome == ledger.Short {
		s.a.note(s.event(EventOverLimit, fmt.Sprintf("%v on %s are in use beyond what the job may have", a.Need, g.name())))
	}
	s.pieces[w.alloc.Handle] = piece{gpu: g, bytes: w.bytes}
	s.answer(w, wire.OK)
}

// answer ends an allocation.
func (s *session) answer(w *wait, outcome wire.Outcome) {
	waited := s.a.clock.now().Sub(w.since)
	s.sayMemory(w.alloc.Handle, w.alloc.GPU, outcome, uint64(max(0, waited)))
}

// sayMemory says what the allocation has and uses on a GPU.
func (s *session) sayMemory(handle uint64, gpu uint32, outcome wire.Outcome, waited uint64) {
	m := &wire.Memory{Handle: handle, GPU: gpu, Outcome: outcome, Waited: waited}
	if g := s.alloc.gpuAt(gpu); g != nil {
		v, _ := g.ledger.View(s.alloc.account())
		m.Total, m.Used = uint64(v.Total), uint64(v.Used)
	}
	s.say(m)
}

// view answers how much memory the allocation has and uses.
func (s *session) view(m *wire.View) {
	outcome := wire.OK
	if s.alloc.gpuAt(m.GPU) == nil {
		outcome = wire.Unknown
	}
	s.sayMemory(m.Handle, m.GPU, outcome, 0)
}

// free takes memory off the books. What is unknown, or was freed before, changes nothing.
func (s *session) free(handle uint64) {
	p, known := s.pieces[handle]
	if !known {
		s.forgetWait(handle)
		return
	}
	delete(s.pieces, handle)
	if p.stale {
		s.stale--
	}
	s.forgetExport(handle)
	p.gpu.ledger.Free(s.a.clock.now(), s.alloc.account(), s.handle(handle))
	s.a.books(p.gpu)
}

// iteration is the boundary at which a job hands its unused memory over. One that was not known to do so does from its
// first one on.
func (s *session) iteration(count uint64) {
	s.sweep()
	now := s.a.clock.now()
	s.alloc.tally.iterations += count
	if !s.alloc.spec.Cooperates && s.alloc.spec.Peak > 0 {
		s.alloc.cooperate(now)
	}
	for i, g := range s.alloc.gpus {
		if s.mask&(1<<i) == 0 {
			continue
		}
		if a := g.ledger.Yield(now, s.alloc.account()); a.Outcome == ledger.Kept && !s.alloc.kept {
			s.alloc.kept = true
			s.a.note(s.event(EventKept, fmt.Sprintf("%v are in use on %s between iterations, and %v are reserved", a.Need, g.name(), a.Limit)))
		}
		s.a.books(g)
	}
}

// sweep ends replays that say nothing new.
func (al *allocation) sweep() {
	for _, s := range al.sessions {
		if s.conn != nil && s.stale > 0 && s.a.clock.now().Sub(s.conn.since) > time.Second {
			s.sweep()
		}
	}
}

// markStale begins a replay: what the process does not confirm until it does something new is gone.
func (s *session) markStale() {
	s.stale = 0
	for h, p := range s.pieces {
		p.stale = true
		s.pieces[h] = p
		s.stale++
	}
}

func (s *session) confirm(handle uint64, p piece) {
	p.stale = false
	s.pieces[handle] = p
	s.stale--
}

// sweep ends a replay.
func (s *session) sweep() {
	if s.stale == 0 {
		return
	}
	for h, p := range s.pieces {
		if p.stale {
			s.free(h)
		}
	}
}

// forgetWaits takes back what the process waits for.
func (s *session) forgetWaits() {
	for _, g := range s.alloc.gpus {
		for r := range g.waits {
			if r.Process == s.process() {
				s.forgetWait(r.Number)
			}
		}
	}
}

// forgetWait takes back one wait. The ledger may grant it all the same; the room then goes back.
func (s *session) forgetWait(handle uint64) {
	for _, g := range s.alloc.gpus {
		if r := s.waitOf(handle); g.waits[r] != nil {
			delete(g.waits, r)
			s.alloc.waits[g.number]--
		}
	}
}

// books delivers what the ledger of a GPU decided, and tells who should know that others wait.
func (a *Agent) books(g *gpu) {
	for list := g.ledger.Ready(); len(list) > 0; list = g.ledger.Ready() {
		for _, d := range list {
			a.deliver(g, d)
		}
	}
	a.crowd(g)
}

// deliver ends one wait.
func (a *Agent) deliver(g *gpu, d ledger.Decision) {
	if d.Request == (ledger.Request{}) {
		if al := a.allocs[uint64(d.Account)]; al != nil {
			al.opened(g)
		}
		return
	}
	w := g.waits[d.Request]
	if w == nil {
		if d.Bytes > 0 {
			g.ledger.Return(a.clock.now(), d.Account, d.Bytes)
		}
		return
	}
	delete(g.waits, d.Request)
	w.session.alloc.waits[g.number]--
	w.session.alloc.tally.stall.add(d.Stalled)
	if d.Outcome != ledger.Granted {
		w.session.alloc.tally.refused++
		a.counts.on(g.number).refused++
		w.session.answer(w, wire.OutOfMemory)
		return
	}
	w.session.reserve(g, w)
}

// crowd tells the jobs that hold chunks of a GPU's pool whether others wait for it, where that changed.
func (a *Agent) crowd(g *gpu) {
	waiting := g.ledger.Waiting()
	if waiting == 0 && !g.crowded {
		return
	}
	g.crowded = waiting > 0
	for _, al := range a.allocs {
		if _, on := al.waits[g.number]; !on {
			continue
		}
		v, _ := g.ledger.View(al.account())
		if wanted := waiting > al.waits[g.number] && v.Held > 0; wanted != al.wanted[g.number] {
			al.wanted[g.number] = wanted
			for _, s := range al.sessions {
				al.tellWantedOf(s, g)
			}
		}
	}
}

func (g *gpu) name() string { return fmt.Sprintf("gpu%d", g.number) }

// size is what a process says in bytes.
func size(b uint64) unit.Bytes { return unit.Bytes(min(b, math.MaxInt64)) }
