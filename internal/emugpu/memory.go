package emugpu

import (
	"math/rand/v2"

	"weft.dev/weft/internal/unit"
)

// maxAllocations bounds what the broker keeps for all processes together.
const maxAllocations = 4 << 20

// memory is who holds which device memory. What is charged is exactly what was asked for: the driver rounds.
type memory struct {
	pools       []pool
	allocations map[uint64]*allocation
	last        uint64
}

// pool is the memory of a GPU.
type pool struct{ usable, used unit.Bytes }

// holder is who refers to an allocation: a process, by one of its contexts or, where that is nil, by itself.
type holder struct {
	process *attachment
	context *context
}

// allocation is a piece of memory that lives while somebody holds it.
type allocation struct {
	gpu     int
	bytes   unit.Bytes
	host    bool // not charged
	secret  uint64
	holders map[holder]int
	charged *attachment
}

func newMemory(gpus []GPU) *memory {
	m := &memory{allocations: map[uint64]*allocation{}}
	for _, g := range gpus {
		m.pools = append(m.pools, pool{usable: g.Usable})
	}
	return m
}

func (m *memory) free(gpu int) unit.Bytes { return m.pools[gpu].usable - m.pools[gpu].used }

// charge takes memory of a GPU for a process; false when there is not so much.
func (m *memory) charge(a *attachment, gpu int, n unit.Bytes) bool {
	if n < 0 || n > m.free(gpu) {
		return false
	}
	m.pools[gpu].used += n
	a.bytes[gpu] += n
	a.peak[gpu] = max(a.peak[gpu], a.bytes[gpu])
	return true
}

func (m *memory) refund(a *attachment, gpu int, n unit.Bytes) {
	m.pools[gpu].used -= n
	a.bytes[gpu] -= n
}

// allocate makes an allocation; 0 when the GPU has not so much.
func (m *memory) allocate(h holder, gpu int, n unit.Bytes, host bool, random *rand.Rand) uint64 {
	if len(m.allocations) >= maxAllocations || !host && !m.charge(h.process, gpu, n) {
		return 0
	}
	m.last++
	m.allocations[m.last] = &allocation{gpu: gpu, bytes: n, host: host, secret: random.Uint64(),
		holders: map[holder]int{h: 1}, charged: h.process}
	return m.last
}

// held is an allocation that a process holds, and one of its holds of it.
func (m *memory) held(a *attachment, id uint64) (*allocation, holder) {
	l := m.allocations[id]
	if l == nil {
		return nil, holder{}
	}
	if h := (holder{a, nil}); l.holders[h] > 0 {
		return l, h
	}
	for _, id := range sortedKeys(a.contexts) {
		if h := (holder{a, a.contexts[id]}); l.holders[h] > 0 {
			return l, h
		}
	}
	return nil, holder{}
}

// drop gives up one hold, or all of a holder's.
func (m *memory) drop(id uint64, h holder, all bool) {
	l := m.allocations[id]
	if l.holders[h]--; l.holders[h] <= 0 || all {
		delete(l.holders, h)
	}
	var heir *attachment
	for other := range l.holders {
		if other.process == l.charged {
			return
		}
		if heir == nil || other.process.pid < heir.pid {
			heir = other.process
		}
	}
	if !l.host {
		m.refund(l.charged, l.gpu, l.bytes)
		if heir != nil {
			m.charge(heir, l.gpu, l.bytes)
		}
	}
	if l.charged = heir; heir == nil {
		delete(m.allocations, id)
	}
}

// resize changes the bytes of an allocation; false when the GPU has not so much.
func (m *memory) resize(l *allocation, n unit.Bytes) bool {
	switch {
	case l.host:
	case n > l.bytes:
		if !m.charge(l.charged, l.gpu, n-l.bytes) {
			return false
		}
	default:
		m.refund(l.charged, l.gpu, l.bytes-n)
	}
	l.bytes = n
	return true
}

// leave drops all that a process holds.
func (m *memory) leave(a *attachment) { m.dropWhere(func(h holder) bool { return h.process == a }) }

// leaveContext drops all that is held by a context.
func (m *memory) leaveContext(c *context) { m.dropWhere(func(h holder) bool { return h.context == c }) }

func (m *memory) dropWhere(leaves func(holder) bool) {
	for id, l := range m.allocations {
		for h := range l.holders {
			if leaves(h) {
				m.drop(id, h, true)
			}
		}
	}
}
