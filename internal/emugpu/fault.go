package emugpu

import (
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// FaultKind is what goes wrong.
type FaultKind int

// The faults, numbered as on the wire.
const (
	Hang  FaultKind = iota + 1 // the next Number kernels never end
	OOM                        // the next Number allocations fail
	XID                        // the driver reports XID Number
	Lost                       // the GPU is gone
	Slow                       // every request of a driver takes Number nanoseconds more
	Reset                      // the GPU is well again
	faultEnd
)

// faultNames are the faults as users write them.
var faultNames = [...]string{Hang: "hang", OOM: "oom", XID: "xid", Lost: "lost", Slow: "slow", Reset: "reset"}

// Faults are the names of all faults.
func Faults() []string { return faultNames[1:] }

// FaultNamed is the fault of a name.
func FaultNamed(name string) (FaultKind, bool) {
	i := slices.Index(faultNames[1:], name)
	return FaultKind(i + 1), i >= 0
}

// String is the fault's name.
func (k FaultKind) String() string {
	if k < Hang || k >= faultEnd {
		return fmt.Sprintf("fault %d", int(k))
	}
	return faultNames[k]
}

// Fault is one thing that goes wrong on a GPU.
type Fault struct {
	Kind   FaultKind
	GPU    int
	Number uint64
}

// health of a GPU.
type health uint32

const (
	well health = iota
	unhealthy
	lost
)

// healthNames are how health is told.
var healthNames = [...]string{well: "ok", unhealthy: "unhealthy", lost: "lost"}

// String is health in a word.
func (h health) String() string { return healthNames[h] }

// maxSlow bounds the delay of a request, so that a slip of units does not hang everything.
const maxSlow = time.Minute

// xidEvent is what NVML tells of an XID.
type xidEvent struct {
	gpu int
	xid uint32
	at  unit.Time
}

// xidErrors is what an XID does to contexts; others are reported only. The emulator does not know which context an
// application's fault comes from: all of the GPU have it.
var xidErrors = map[uint64]status{
	13: statusLaunch, 31: statusIllegal, 43: statusLaunch, 45: statusLaunch, 48: statusECC, 62: statusLaunch, 94: statusECC,
	95: statusECC, 109: statusLaunch, 119: statusLaunch, 120: statusLaunch,
}

// applicationXIDs come from programs: the GPU stays healthy.
var applicationXIDs = []uint64{13, 31, 43, 45, 68, 109}

// offBus is the XID of a GPU that has fallen off the bus.
const offBus = 79

// Fault makes something go wrong.
func (b *Broker) Fault(f Fault) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass()
	err := b.inject(f)
	b.publish()
	b.waiter.poke()
	return err
}

func (b *Broker) inject(f Fault) error {
	if f.Kind < Hang || f.Kind >= faultEnd {
		return fmt.Errorf("%v is unknown", f.Kind)
	}
	if f.Kind == Slow {
		if f.Number > uint64(maxSlow) {
			return fmt.Errorf("slow by %d ns: at most %v", f.Number, maxSlow)
		}
		b.slow.Store(int64(f.Number))
		return nil
	}
	if f.GPU < 0 || f.GPU >= len(b.gpus) {
		return fmt.Errorf("gpu %d is not there; there are %d, from 0", f.GPU, len(b.gpus))
	}
	g := b.gpus[f.GPU]
	switch f.Kind {
	case Hang:
		g.hangs = f.Number
	case OOM:
		g.failures = f.Number
	case XID:
		if f.Number < 1 || f.Number > 1000 {
			return fmt.Errorf("XID %d is outside [1, 1000]", f.Number)
		}
		b.xid(f.GPU, f.Number)
	case Lost:
		b.xid(f.GPU, offBus)
	case Reset:
		g.health, g.lastXID, g.hangs, g.failures = well, 0, 0, 0
	}
	return nil
}

// xid reports an XID and does to the GPU and its contexts what comes with it.
func (b *Broker) xid(gpu int, xid uint64) {
	g := b.gpus[gpu]
	b.xids = append(b.xids, xidEvent{gpu, uint32(xid), b.model.Now()})
	g.lastXID = uint32(xid)
	why := xidErrors[xid]
	switch {
	case xid == offBus:
		g.health, why = lost, statusLaunch
	case !slices.Contains(applicationXIDs, xid) && g.health == well:
		g.health = unhealthy
	}
	if why == 0 {
		return
	}
	for _, a := range b.attachments {
		for _, id := range sortedKeys(a.contexts) {
			if c := a.contexts[id]; c.gpu == gpu {
				b.breakContext(c, why)
			}
		}
	}
}
