package emugpu

import (
	"cmp"
	"maps"
	"slices"

	"weft.dev/weft/internal/emugpu/model"
)

// context is a process's context on a GPU, and the memory that it shares with the process.
type context struct {
	id       uint32
	gpu      int
	owner    *attachment
	page     *page
	model    *model.Context
	rings    [maxStreams]*ring
	next     [maxStreams]uint64 // done of a ring that is not in use
	broken   status
	launches uint64
}

// create makes a context, with the ring of the NULL stream.
func (b *Broker) create(a *attachment, gpu int) (*context, status, error) {
	switch {
	case b.gpus[gpu].health == lost:
		return nil, statusUnavailable, nil
	case len(a.contexts) >= maxContexts:
		return nil, statusOOM, nil
	}
	id := b.lastContext + 1
	if !b.memory.charge(a, gpu, b.gpus[gpu].Context) {
		return nil, statusOOM, nil
	}
	p, err := newPage("weft-emu-context", contextSize)
	if err != nil {
		b.memory.refund(a, gpu, b.gpus[gpu].Context)
		return nil, statusOOM, err
	}
	b.lastContext = id
	p.u32(contextID).Store(id)
	p.u32(contextGPU).Store(uint32(gpu))
	c := &context{id: id, gpu: gpu, owner: a, page: p, model: b.model.Open(gpu, a.name)}
	a.contexts[id] = c
	b.addRing(c)
	return c, statusOK, nil
}

// addRing makes a stream; nil when there are too many.
func (b *Broker) addRing(c *context) *ring {
	for i, r := range &c.rings {
		if r != nil {
			continue
		}
		r = &ring{context: c, index: i, base: contextRings + i*ringSize, taken: c.next[i], stream: b.model.Stream(c.model, c.next[i])}
		r.word(ringWant).Store(0)
		c.rings[i] = r
		b.byStream[r.stream] = r
		at, _ := slices.BinarySearchFunc(b.rings, r, byOrder)
		b.rings = slices.Insert(b.rings, at, r)
		return r
	}
	return nil
}

// free hands a ring out again. Its numbers go on where they were.
func (c *context) free(r *ring) {
	c.next[r.index] = r.stream.Done()
	c.rings[r.index] = nil
}

// record notes the time of an event in the context's memory.
func (c *context) record(r model.Record) {
	if r.Event >= maxEvents {
		return
	}
	base := contextEvents + int(r.Event)*eventSize
	c.page.u64(base + eventTime).Store(uint64(r.At))
	c.page.u64(base + eventGeneration).Store(r.Generation)
}

// breakContext gives a context an error that stays, and drops its work.
func (b *Broker) breakContext(c *context, s status) {
	if c.broken != 0 {
		return
	}
	c.broken = s
	b.model.Close(c.model)
	c.page.u32(contextError).Store(uint32(s))
}

// destroy frees a context and its memory. Threads that still wait for it are told an error.
func (b *Broker) destroy(c *context, why status) {
	b.breakContext(c, why)
	u, past := b.model.Usage(c.model), c.owner.past[c.gpu]
	c.owner.past[c.gpu] = model.Usage{Busy: past.Busy + u.Busy, Copying: past.Copying + u.Copying, Kernels: past.Kernels + u.Kernels}
	c.owner.launched[c.gpu] += c.launches
	for _, r := range &c.rings {
		if r != nil {
			delete(b.byStream, r.stream)
		}
	}
	b.rings = slices.DeleteFunc(b.rings, func(r *ring) bool { return r.context == c })
	b.memory.leaveContext(c)
	b.memory.refund(c.owner, c.gpu, b.gpus[c.gpu].Context)
	delete(c.owner.contexts, c.id)
	c.page.close()
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
