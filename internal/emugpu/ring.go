package emugpu

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

// ring is a stream as its process sees it.
type ring struct {
	context *context
	index   int
	base    int // of the ring in the context's page
	stream  *model.Stream
	taken   uint64 // entries read
	last    uint64 // submit time of the last of them
	hosts   bool   // an entry waits, or did, for a function of the process
	closing bool   // free it when its work has ended
}

// arrival is an entry of a ring that was read.
type arrival struct {
	submit uint64
	ring   *ring
	entry  uint64 // its position
	kind   uint16
	cost   uint64
	epoch  uint64
	number uint32
}

func (r *ring) word(at int) *atomic.Uint64 { return r.context.page.u64(r.base + at) }

// take reads what was submitted up to now on all rings, in the order of submit times. Now is read before any ring is:
// what was submitted in reaction to an entry, by whichever process, is taken after that entry.
func (b *Broker) take() {
	now := b.clock.now()
	b.batch = b.batch[:0]
	for _, r := range b.rings {
		if !b.read(r, uint64(now)) {
			b.counts.nonsense++
			b.breakContext(r.context, statusLaunch)
		}
	}
	if !slices.IsSortedFunc(b.batch, bySubmit) {
		slices.SortStableFunc(b.batch, bySubmit)
	}
	for i := range b.batch {
		b.submit(&b.batch[i])
	}
	for _, r := range b.rings {
		if r.hosts {
			b.model.HostDone(r.stream, min(r.word(ringHostDone).Load(), r.taken))
		}
	}
}

func bySubmit(x, y arrival) int { return cmp.Compare(x.submit, y.submit) }

// read copies the new entries of a ring, each once: the process may write to them at any time. False when the ring
// holds more than it can: the process wrote nonsense.
func (b *Broker) read(r *ring, now uint64) bool {
	if r.context.broken != 0 {
		return true
	}
	head := r.word(ringHead).Load()
	if head == r.taken {
		return true
	}
	if head < r.taken || head-r.stream.Done() > ringEntries {
		return false
	}
	for r.taken < head {
		base := r.base + ringFirst + int(r.taken%ringEntries)*entrySize
		e := arrival{ring: r, entry: r.taken, submit: r.word64(base + entrySubmit)}
		if e.submit > now {
			if b.clock.mode == Real && e.submit-now < uint64(time.Second) {
				return true // submitted since: next time
			}
			e.submit = now
		}
		e.submit = max(e.submit, r.last)
		e.cost, e.epoch = r.word64(base+entryCost), r.word64(base+entryEpoch)
		e.number = r.context.page.u32(base + entryFunction).Load()
		e.kind = uint16(r.context.page.u32(base + entryKind).Load())
		r.last = e.submit
		r.taken++
		b.batch = append(b.batch, e)
	}
	return true
}

func (r *ring) word64(at int) uint64 { return r.context.page.u64(at).Load() }

// submit hands an entry to the model.
func (b *Broker) submit(e *arrival) {
	r := e.ring
	if r.context.broken != 0 {
		return
	}
	b.model.Advance(unit.Time(e.submit))
	op := model.Op{Kind: model.Kind(e.kind)}
	switch op.Kind {
	case model.Kernel, model.Graph:
		op.Cost = costOf(e.cost)
		op.Endless = b.launch(e)
	case model.HostToDevice, model.DeviceToHost, model.Device:
		op.Cost = costOf(e.cost)
	case model.RecordEvent:
		op.Event, op.Generation = e.number, e.cost
	case model.Wait:
		op.Entry = e.cost
		if on := r.context.owner.ring(uint32(e.epoch), e.number); on != nil && e.epoch < 1<<32 {
			op.On = on.stream
		}
	case model.Host:
		r.hosts = true
	default:
		b.counts.nonsense++
		op.Kind = model.RecordEvent // it takes no time and names no event
		op.Event = maxEvents
	}
	b.model.Submit(r.stream, op)
}

func costOf(ns uint64) time.Duration { return time.Duration(min(ns, uint64(model.MaxCost))) }

// launch counts a launch, holds it against the audit, and says whether it is to hang.
func (b *Broker) launch(e *arrival) bool {
	c := e.ring.context
	g := b.gpus[c.gpu]
	g.launches++
	c.launches++
	b.audit.launch(c.owner, c.gpu, e.epoch, unit.Time(e.submit))
	if g.hangs == 0 {
		return false
	}
	g.hangs--
	return true
}

// retire frees a ring whose stream was destroyed, once its work has ended.
func (b *Broker) retire(r *ring) {
	if !r.closing || r.word(ringHead).Load() != r.stream.Done() {
		return
	}
	r.context.free(r)
	delete(b.byStream, r.stream)
	b.rings = slices.DeleteFunc(b.rings, func(o *ring) bool { return o == r })
	b.model.Forget(r.stream)
}
