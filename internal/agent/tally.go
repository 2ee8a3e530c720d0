package agent

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// tally is what is counted of a job.
type tally struct {
	wait       histogram // from a request to the grant
	hold       histogram // from a grant to the release
	preemption histogram // from a drop to the release
	stall      histogram // for the pool
	launches   uint64
	iterations uint64
	overruns   uint64
	refused    uint64 // allocations beyond the job's own limit
	escaped    uint64 // processes found without a session
	recent     [10]uint64
	at         int
}

// count files the iterations of each second, for a rate over the last ten.
func (al *allocation) count(unit.Time) {
	t := &al.tally
	t.recent[t.at%len(t.recent)] = t.iterations
	t.at++
}

// rate is iterations per second over the last seconds that were counted.
func (t *tally) rate() float64 {
	if t.at < 2 {
		return 0
	}
	oldest := max(0, t.at-len(t.recent))
	first, last := t.recent[oldest%len(t.recent)], t.recent[(t.at-1)%len(t.recent)]
	return float64(last-first) / float64(t.at-1-oldest)
}

// Quantiles are what is told of a distribution of durations.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
}

func quantiles(h *histogram) Quantiles {
	return Quantiles{h.count, milliseconds(h.quantile(0.5)), milliseconds(h.quantile(0.99))}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Job is what is known of an allocation.
type Job struct {
	ID         uint64      `json:"id"`
	Name       string      `json:"name"`
	Class      Class       `json:"class"`
	Weight     int         `json:"weight"`
	GPUs       []int       `json:"gpus"`
	UID        int         `json:"uid"`
	Cooperates bool        `json:"cooperates"`
	Socket     string      `json:"socket"`
	PIDs       []int       `json:"pids"` // with a session
	Age        float64     `json:"age_s"`
	Oldest     float64     `json:"oldest_process_s"` // age of its oldest process with a context; 0 for none
	Held       float64     `json:"held_s"`
	Used       float64     `json:"used_s"`
	Lost       float64     `json:"lost_s"`
	Launches   uint64      `json:"launches"`
	Iterations uint64      `json:"iterations"`
	Rate       float64     `json:"iterations_per_s"`
	Overruns   uint64      `json:"overruns"`
	Refused    uint64      `json:"refused_allocations"`
	Waited     float64     `json:"token_wait_s"` // for the token, all its sessions together
	Wait       Quantiles   `json:"token_wait"`
	Hold       Quantiles   `json:"token_hold"`
	Preemption Quantiles   `json:"token_preemption"`
	Stall      float64     `json:"stall_s"` // for memory, all GPUs
	Memory     []JobMemory `json:"memory"`  // of each GPU
	Escaped    []Escaped   `json:"escaped,omitempty"`
	Container  *Container  `json:"container,omitempty"`
	Whole      bool        `json:"whole,omitempty"` // it has its GPUs alone, and all its processes are in Escaped
}

// JobMemory is a job's memory on one GPU.
type JobMemory struct {
	GPU      int        `json:"gpu"`
	Reserved unit.Bytes `json:"reserved_bytes"`
	Limit    unit.Bytes `json:"limit_bytes"`
	Used     unit.Bytes `json:"used_bytes"`
	Held     unit.Bytes `json:"held_bytes"` // of the pool
	Peak     unit.Bytes `json:"peak_bytes"` // the most that Used ever was
}

// Escaped is a process of a job without a session.
type Escaped struct {
	PID   int        `json:"pid"`
	GPU   int        `json:"gpu"`
	Bytes unit.Bytes `json:"bytes"`
}

// GPUState is what is known of a GPU.
type GPUState struct {
	GPU         int        `json:"gpu"`
	UUID        string     `json:"uuid"`
	Name        string     `json:"name"`
	PCI         string     `json:"pci"`
	Usable      unit.Bytes `json:"usable_bytes"`
	Reserved    unit.Bytes `json:"reserved_bytes"`
	Pool        unit.Bytes `json:"pool_bytes"`
	PoolFree    unit.Bytes `json:"pool_free_bytes"`
	Waiting     int        `json:"waiting"` // requests, for the pool
	Residents   []uint64   `json:"residents"`
	Holder      uint64     `json:"holder,omitempty"` // the allocation that has the token
	Held        float64    `json:"token_held_s"`
	Utilisation float64    `json:"utilisation_fraction"` // as the driver says
	XID         *uint64    `json:"xid"`
	Blind       string     `json:"blind,omitempty"` // why the driver does not answer for it
	Foreign     []Escaped  `json:"foreign,omitempty"`
}

// Stats are what the agent knows.
type Stats struct {
	Schema   int     `json:"schema"`
	Uptime   float64 `json:"uptime_s"`
	PID      int     `json:"pid"`
	Handover float64 `json:"handover_ms"`
	Events   int     `json:"events"`
	Sessions int     `json:"sessions"` // now

	// Of all jobs, also of those that ended.
	Grants         uint64    `json:"grants"`
	Overruns       uint64    `json:"overruns"`
	Launches       uint64    `json:"launches"`  // that processes told of when they released
	Window         float64   `json:"window_ms"` // last told
	MessagesIn     uint64    `json:"messages_in"`
	MessagesOut    uint64    `json:"messages_out"`
	TokenMessages  uint64    `json:"token_messages"` // few beside launches: what the gates save
	MemoryMessages uint64    `json:"memory_messages"`
	Registration   Quantiles `json:"registration"` // of processes: from the acceptance of a connection to the answer
	PerThousand    *float64  `json:"token_messages_per_1000_launches"`

	Jobs []Job      `json:"jobs"`
	GPUs []GPUState `json:"gpus"`
}

// describe collects what is known of an allocation.
func (al *allocation) describe(now unit.Time) Job {
	t, usage := &al.tally, al.a.arb.Usage(now, al.job())
	j := Job{
		ID: al.id, Name: al.spec.Name, Class: al.spec.Class, Weight: al.spec.Weight, UID: al.spec.UID, Cooperates: al.spec.Cooperates,
		Socket: al.socket(), Age: now.Sub(al.born).Seconds(), Held: usage.Held.Seconds(), Used: usage.Used.Seconds(), Lost: usage.Lost.Seconds(), Launches: t.launches,
		Iterations: t.iterations, Rate: t.rate(), Overruns: t.overruns, Refused: t.refused, Waited: al.waited(now).Seconds(), Wait: quantiles(&t.wait), Hold: quantiles(&t.hold),
		Preemption: quantiles(&t.preemption), PIDs: []int{}, Container: al.spec.Container, Whole: al.spec.Whole,
	}
	for _, s := range al.sessions {
		j.PIDs = append(j.PIDs, s.peer.pid)
		j.Oldest = max(j.Oldest, s.age(now).Seconds())
	}
	slices.Sort(j.PIDs)
	for _, g := range al.gpus {
		v, _ := g.ledger.View(al.account())
		j.GPUs = append(j.GPUs, g.number)
		j.Stall += g.ledger.Stall(now, al.account()).Seconds()
		j.Memory = append(j.Memory, JobMemory{g.number, al.spec.Reserved, v.Total, v.Used, v.Held, v.Highest})
	}
	for pid, e := range al.escaped {
		for g, bytes := range e.bytes {
			j.Escaped = append(j.Escaped, Escaped{pid, g, bytes})
		}
	}
	slices.SortFunc(j.Escaped, func(a, b Escaped) int { return cmp.Or(a.PID-b.PID, a.GPU-b.GPU) })
	return j
}

// waited is the time that sessions waited for the token, with the waits that last.
func (al *allocation) waited(now unit.Time) time.Duration {
	sum := al.tally.wait.sum
	for _, s := range al.sessions {
		if s.token.wants && s.token.asked > 0 {
			sum += now.Sub(s.token.asked)
		}
	}
	return sum
}

// state collects what is known of a GPU.
func (g *gpu) state(a *Agent, now unit.Time) GPUState {
	s := GPUState{GPU: g.number, UUID: g.UUID.String(), Name: g.Name, PCI: g.PCI, Usable: g.Usable, Waiting: g.ledger.Waiting(), Residents: []uint64{},
		Utilisation: g.busy, Blind: g.blind}
	g.held(now, 0)
	s.Held = g.busyFor.Seconds()
	s.Pool, s.PoolFree = g.ledger.Pool()
	s.Reserved = g.Usable - s.Pool
	if xid := g.xid; xid != 0 {
		s.XID = &xid // the reactor's own may change while the answer is read
	}
	for id, al := range a.allocs {
		if _, on := al.waits[g.number]; on {
			s.Residents = append(s.Residents, id)
		}
	}
	slices.Sort(s.Residents)
	for holder := range a.holders {
		if slices.Contains(holder.token.gpus, g.number) {
			s.Holder = holder.alloc.id
		}
	}
	for pid, bytes := range g.foreign {
		s.Foreign = append(s.Foreign, Escaped{pid, g.number, bytes})
	}
	slices.SortFunc(s.Foreign, func(a, b Escaped) int { return a.PID - b.PID })
	return s
}
