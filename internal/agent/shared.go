package agent

import (
	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/wire"
)

// exportKey names exported memory within a job. Another job cannot take a key before its owner does, nor find memory by it.
type exportKey struct {
	gpu int
	key [wire.KeySize]byte
}

// export says that other processes may import memory. The first one to say it of a key is right; a process exports what is
// its own.
func (s *session) export(m *wire.Export) {
	p, known := s.pieces[m.Handle]
	if !known {
		return
	}
	k, h := exportKey{p.gpu.number, m.Key}, s.handle(m.Handle)
	if _, taken := s.alloc.exports[k]; !taken && len(s.alloc.exports) < mostPieces {
		s.alloc.exports[k] = h
		s.alloc.keys[h] = append(s.alloc.keys[h], k)
	}
}

// importShared gives exported memory a further name. It stays charged once.
func (s *session) importShared(m *wire.Import) bool {
	g := s.alloc.gpuAt(m.GPU)
	if g == nil || m.Handle == 0 {
		return false
	}
	if p, known := s.pieces[m.Handle]; known {
		if !p.stale {
			return false
		}
		s.confirm(m.Handle, p)
		s.sayMemory(m.Handle, m.GPU, wire.OK, 0)
		return true
	}
	outcome := wire.Unknown
	from, known := s.alloc.exports[exportKey{g.number, m.Key}]
	if known && len(s.pieces) < mostPieces &&
		g.ledger.Import(s.alloc.account(), s.handle(m.Handle), s.alloc.account(), from).Outcome == ledger.Granted {
		s.pieces[m.Handle] = piece{gpu: g}
		outcome = wire.OK
	}
	s.sayMemory(m.Handle, m.GPU, outcome, 0)
	return true
}

// forgetExport takes back the keys of one piece of memory.
func (s *session) forgetExport(handle uint64) {
	h := s.handle(handle)
	for _, k := range s.alloc.keys[h] {
		delete(s.alloc.exports, k)
	}
	delete(s.alloc.keys, h)
}

func (s *session) forgetExports() {
	for handle := range s.pieces {
		s.forgetExport(handle)
	}
}
