package emugpu

import (
	"encoding/binary"
	"math"

	"weft.dev/weft/internal/unit"
)

// gpu is the GPU that a request names; it is refused when there is none.
func (s *session) gpu(q *request, r *reply) (int, bool) {
	if q.GPU < 0 || int(q.GPU) >= len(s.b.gpus) {
		r.refuse(statusNoDevice, "gpu %d is not there; there are %d", q.GPU, len(s.b.gpus))
		return 0, false
	}
	return int(q.GPU), true
}

// context is the context that a request names.
func (s *session) context(q *request, r *reply) (*context, bool) {
	c := s.process.contexts[q.Context]
	switch {
	case c == nil:
		r.Status = uint32(statusNoContext)
	case c.broken != 0:
		r.Status = uint32(c.broken)
	}
	return c, r.Status == 0
}

func (s *session) deviceGet(q *request, r *reply) {
	i, ok := s.gpu(q, r)
	if !ok {
		return
	}
	g := s.b.gpus[i]
	d := device{UUID: g.uuid, Major: uint32(g.Major), Minor: uint32(g.Minor), Processors: uint32(g.Processors), Health: uint32(g.health),
		LastXID: g.lastXID, Total: uint64(g.Total), Usable: uint64(g.Usable), Context: uint64(g.Context),
		CopyRate: uint64(g.CopyRate), MemoryRate: uint64(g.MemoryRate)}
	copy(d.Name[:len(d.Name)-1], g.Name)
	copy(d.BusID[:], busID(i))
	r.put(0, &d)
}

func (s *session) contextCreate(q *request, r *reply) {
	gpu, ok := s.gpu(q, r)
	if !ok {
		return
	}
	c, status, err := s.b.create(s.process, gpu)
	if c == nil {
		r.refuse(status, "no context on gpu %d: %v", gpu, err)
		return
	}
	r.A = uint64(c.id)
	s.send(c.page.fd)
}

func (s *session) contextDestroy(q *request, r *reply) {
	if c := s.process.contexts[q.Context]; c != nil {
		s.b.destroy(c, statusNoContext)
		return
	}
	r.Status = uint32(statusNoContext)
}

func (s *session) streamCreate(q *request, r *reply) {
	c, ok := s.context(q, r)
	if !ok {
		return
	}
	ring := s.b.addRing(c)
	if ring == nil {
		r.refuse(statusOOM, "a context has at most %d streams", maxStreams)
		return
	}
	r.A = uint64(ring.index)
}

func (s *session) streamDestroy(q *request, r *reply) {
	c := s.process.contexts[q.Context]
	if c == nil || q.A == 0 || q.A >= maxStreams || c.rings[q.A] == nil || c.rings[q.A].closing {
		r.Status = uint32(statusNoHandle)
		return
	}
	ring := c.rings[q.A]
	ring.closing = true
	s.b.retire(ring)
}

// holder is who is to hold an allocation: the context that a request names, or else the process on the GPU that it names.
func (s *session) holder(q *request, r *reply) (holder, int, bool) {
	h := holder{process: s.process}
	if q.Context == 0 {
		gpu, ok := s.gpu(q, r)
		return h, gpu, ok
	}
	c, ok := s.context(q, r)
	if !ok {
		return h, 0, false
	}
	h.context = c
	return h, c.gpu, true
}

func (s *session) memAlloc(q *request, r *reply) {
	h, gpu, ok := s.holder(q, r)
	if !ok {
		return
	}
	g := s.b.gpus[gpu]
	switch {
	case q.A == 0 || q.B >= memoryKinds:
		r.Status = uint32(statusInvalid)
		return
	case g.health == lost:
		r.Status = uint32(statusUnavailable)
		return
	case g.failures > 0 && q.B != memoryHost:
		g.failures--
		r.Status = uint32(statusOOM)
		return
	}
	if r.A = s.b.memory.allocate(h, gpu, bytesOf(q.A), q.B == memoryHost, s.b.random); r.A == 0 {
		r.Status = uint32(statusOOM)
	}
}

// bytesOf is a number of bytes; more than there can be is more than any GPU has.
func bytesOf(n uint64) unit.Bytes { return unit.Bytes(min(n, math.MaxInt64)) }

// held is the allocation that a request names.
func (s *session) held(q *request, r *reply) (*allocation, holder) {
	l, h := s.b.memory.held(s.process, q.A)
	if l == nil {
		r.Status = uint32(statusNoHandle)
	}
	return l, h
}

func (s *session) memFree(q *request, r *reply) {
	if l, h := s.held(q, r); l != nil {
		s.b.memory.drop(q.A, h, false)
	}
}

func (s *session) memRetain(q *request, r *reply) {
	if l, h := s.held(q, r); l != nil {
		l.holders[h]++
	}
}

func (s *session) memResize(q *request, r *reply) {
	l, _ := s.held(q, r)
	if l == nil {
		return
	}
	g, grows := s.b.gpus[l.gpu], bytesOf(q.B) > l.bytes
	if grows && g.failures > 0 {
		g.failures--
		r.Status = uint32(statusOOM)
		return
	}
	if !s.b.memory.resize(l, bytesOf(q.B)) {
		r.Status = uint32(statusOOM)
	}
}

func (s *session) memExport(q *request, r *reply) {
	if l, _ := s.held(q, r); l != nil {
		binary.LittleEndian.PutUint64(r.Payload[0:], wireMagic)
		binary.LittleEndian.PutUint64(r.Payload[8:], q.A)
		binary.LittleEndian.PutUint64(r.Payload[16:], l.secret)
	}
}

func (s *session) memImport(q *request, r *reply) {
	h, _, ok := s.holder(q, r)
	if !ok {
		return
	}
	id := binary.LittleEndian.Uint64(q.Text[8:])
	l := s.b.memory.allocations[id]
	if l == nil || binary.LittleEndian.Uint64(q.Text[0:]) != wireMagic || binary.LittleEndian.Uint64(q.Text[16:]) != l.secret {
		r.Status = uint32(statusNoHandle)
		return
	}
	l.holders[h]++
	r.A, r.B, r.C = id, uint64(l.bytes), uint64(l.gpu)
}

func (s *session) memInfo(q *request, r *reply) {
	if i, ok := s.gpu(q, r); ok {
		m, g := s.b.memory, s.b.gpus[i]
		r.A, r.B, r.C, r.D = uint64(m.free(i)), uint64(g.Usable), uint64(g.Total), uint64(m.pools[i].used)
	}
}

func (s *session) processes(q *request, r *reply) {
	i, ok := s.gpu(q, r)
	if !ok {
		return
	}
	list := s.b.usages(i)
	r.C = uint64(len(list))
	for _, u := range list[min(q.A, uint64(len(list))):] {
		if (int(r.Count)+1)*usageSize > payloadBytes {
			break
		}
		r.put(int(r.Count)*usageSize, &u)
		r.Count++
	}
}

func (s *session) utilisation(q *request, r *reply) {
	if i, ok := s.gpu(q, r); ok {
		p := s.b.memory.pools[i]
		r.A = uint64(math.Round(100 * s.b.model.Utilisation(i)))
		r.B = uint64(math.Round(100 * float64(p.used) / float64(p.usable)))
	}
}

func (s *session) eventNext(q *request, r *reply) {
	end := uint64(len(s.b.xids))
	if r.A = end; q.A < end {
		x := s.b.xids[q.A]
		r.Count, r.A, r.B, r.C, r.D = 1, q.A+1, uint64(x.gpu), uint64(x.xid), uint64(x.at)
	}
}

func (s *session) auditOpen(*request, *reply) {
	s.b.audit.opened, s.b.audit.by = true, s
	s.send(s.b.audit.page.fd)
}

func (s *session) fault(q *request, r *reply) {
	if err := s.b.inject(Fault{Kind: FaultKind(q.A), GPU: int(q.GPU), Number: q.B}); err != nil {
		r.refuse(statusInvalid, "%v", err)
	}
}

func (s *session) stats(_ *request, r *reply) {
	f, err := fileOf("weft-emu-stats", s.b.statsNow().json())
	if err != nil {
		r.refuse(statusOOM, "%v", err)
		return
	}
	s.send(int(f.Fd()))
	_ = f.Close()
}

// bytes is the packet of a reply.
func (r *reply) bytes() []byte {
	packet, _ := binary.Append(nil, binary.LittleEndian, r) // the size is constant
	return packet
}
