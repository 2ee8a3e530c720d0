package emugpu

import (
	"weft.dev/weft/internal/unit"
)

// maxExamples bounds the violations that are told in full.
const maxExamples = 8

// auditor holds launches against what the node agent says about tokens. It judges while an audit is open.
type auditor struct {
	page     *page
	opened   bool     // ever
	by       *session // who has it open; nil for nobody
	newest   []newest
	totals   Verdict
	examples []Violation
}

// Verdict counts launches by how they stand to the token of their GPU, since the audit was opened.
type Verdict struct {
	Launches   uint64 `json:"launches"`
	Violations uint64 `json:"violations"`  // outside and two holders
	Outside    uint64 `json:"outside"`     // of processes that the agent knows, without a token
	TwoHolders uint64 `json:"two_holders"` // under an older token than an earlier launch of another process
	Overrun    uint64 `json:"overrun"`     // after the token was taken from a hung holder; no violation of the gate
	Unmanaged  uint64 `json:"unmanaged"`   // of processes that the agent does not know
}

// Violation is an example.
type Violation struct {
	Kind       string    `json:"kind"` // outside or two_holders
	PID        int32     `json:"pid"`
	GPU        int       `json:"gpu"`
	Epoch      uint64    `json:"epoch"`
	Submit     unit.Time `json:"submit_ns"`
	OtherPID   int32     `json:"other_pid,omitempty"`
	OtherEpoch uint64    `json:"other_epoch,omitempty"`
}

// stamp is the newest token under which a process launched on a GPU, and when it first did.
type stamp struct {
	pid   int32
	epoch uint64
	first unit.Time
}

// newest are the newest token of a GPU and the newest one of any other process.
type newest [2]stamp

func newAuditor(gpus int) (*auditor, error) {
	p, err := newPage("weft-emu-audit", auditSize)
	if err != nil {
		return nil, err
	}
	p.u32(4).Store(wireProtocol)
	return &auditor{page: p, newest: make([]newest, gpus)}, nil
}

// launch judges one launch. Launches of a GPU come in the order of their submission, but for those that their process
// published late.
func (a *auditor) launch(p *attachment, gpu int, epoch uint64, at unit.Time) {
	if a.by == nil {
		return
	}
	a.count(p, func(v *Verdict) { v.Launches++ })
	switch {
	case epoch == epochUnmanaged:
		a.count(p, func(v *Verdict) { v.Unmanaged++ })
	case epoch&epochOverrun != 0:
		a.count(p, func(v *Verdict) { v.Overrun++ })
	case epoch == 0:
		a.count(p, func(v *Verdict) { v.Outside++; v.Violations++ })
		a.example(Violation{Kind: "outside", PID: p.pid, GPU: gpu, Submit: at})
	default:
		n := &a.newest[gpu]
		if other := n.other(p.pid); other.epoch > epoch && other.first < at {
			a.count(p, func(v *Verdict) { v.TwoHolders++; v.Violations++ })
			a.example(Violation{Kind: "two_holders", PID: p.pid, GPU: gpu, Epoch: epoch, Submit: at, OtherPID: other.pid, OtherEpoch: other.epoch})
		}
		n.add(stamp{p.pid, epoch, at})
	}
}

func (a *auditor) count(p *attachment, add func(*Verdict)) {
	add(&a.totals)
	add(&p.judged)
}

func (a *auditor) example(v Violation) {
	if len(a.examples) < maxExamples {
		a.examples = append(a.examples, v)
	}
}

// other is the newest stamp of any other process.
func (n *newest) other(pid int32) stamp {
	if n[0].pid != pid {
		return n[0]
	}
	return n[1]
}

func (n *newest) add(s stamp) {
	switch {
	case s.pid == n[0].pid:
		if s.epoch > n[0].epoch {
			n[0] = s
		}
	case s.epoch > n[0].epoch:
		n[0], n[1] = s, n[0]
	case s.pid == n[1].pid && s.epoch <= n[1].epoch:
	case s.epoch > n[1].epoch:
		n[1] = s
	}
}

// lapse ends the audit of a session: what the table says of processes is no longer true.
func (a *auditor) lapse(s *session) {
	if a.by != s {
		return
	}
	a.by = nil
	for i := range auditSlots {
		at := auditFirst + i*auditSlotSize
		a.clear(at)
		a.page.u32(at + auditSlotPID).Store(0)
	}
}

func (a *auditor) clear(slot int) {
	for g := range maxGPUs {
		a.page.u64(slot + auditSlotEpoch + 8*g).Store(0)
	}
}

// forget frees the slot of a process that ended.
func (a *auditor) forget(pid int32) {
	if at := findSlot(a.page, pid); at >= 0 {
		a.clear(at)
		a.page.u32(at+auditSlotPID).CompareAndSwap(uint32(pid), auditGone)
	}
}

// findSlot is where the slot of a process begins; -1 when it has none.
func findSlot(p *page, pid int32) int {
	for i := range auditProbes {
		at := slotAt(pid, i)
		switch p.u32(at + auditSlotPID).Load() {
		case uint32(pid):
			return at
		case 0:
			return -1
		}
	}
	return -1
}

func slotAt(pid int32, probe int) int {
	const shift = 20 // a hash of 12 bits for 4096 slots
	n := uint32(pid) * uint32(auditHash&(1<<32-1)) >> shift
	return auditFirst + int((n+uint32(probe))%auditSlots)*auditSlotSize
}
