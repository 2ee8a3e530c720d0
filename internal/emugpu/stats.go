package emugpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// maxPast bounds the ended processes whose figures are kept.
const maxPast = 4096

// Stats are exact figures of everything the broker has seen, in model time.
type Stats struct {
	Schema    int            `json:"schema"`
	Now       unit.Time      `json:"now_ns"`
	Clock     string         `json:"clock"`
	GPUs      []GPUStats     `json:"gpus"`
	Processes []ProcessStats `json:"processes"` // ended ones first, each group in the order of attaching or ending
	Audited   bool           `json:"audited"`   // somebody opened an audit; until then the verdict is empty
	Verdict
	Examples []Violation `json:"examples"` // the first few violations
	Requests uint64      `json:"requests"`
	Refused  uint64      `json:"refused"`
	Nonsense uint64      `json:"nonsense"` // rings and entries that made no sense
}

// GPUStats are the figures of a device.
type GPUStats struct {
	Index     int           `json:"gpu"`
	UUID      string        `json:"uuid"`
	Name      string        `json:"name"`
	Health    string        `json:"health"`
	LastXID   uint32        `json:"last_xid"`
	Usable    unit.Bytes    `json:"usable_bytes"`
	Used      unit.Bytes    `json:"used_bytes"`
	Busy      time.Duration `json:"busy_ns"`
	Switching time.Duration `json:"switching_ns"`
	Launches  uint64        `json:"launches"`
}

// ProcessStats are the figures of a process.
type ProcessStats struct {
	PID   int32             `json:"pid"`
	Name  string            `json:"name"`
	Ended bool              `json:"ended"`
	GPUs  []ProcessGPUStats `json:"gpus"` // on which it had or has something
	Audit Verdict           `json:"audit"`
}

// ProcessGPUStats are the figures of a process on a device.
type ProcessGPUStats struct {
	Index    int           `json:"gpu"`
	Contexts int           `json:"contexts"`
	Bytes    unit.Bytes    `json:"bytes"`
	Peak     unit.Bytes    `json:"peak_bytes"`
	Busy     time.Duration `json:"busy_ns"`
	Copying  time.Duration `json:"copying_ns"`
	Kernels  uint64        `json:"kernels"`  // ended
	Launches uint64        `json:"launches"` // submitted
}

// Stats are the figures up to now.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.pass()
	}
	return b.statsNow()
}

func (b *Broker) statsNow() Stats {
	s := Stats{Schema: 1, Now: b.model.Now(), Clock: b.clock.mode.String(), Processes: slices.Clone(b.past),
		Audited: b.audit.opened, Verdict: b.audit.totals, Examples: append([]Violation{}, b.audit.examples...),
		Requests: b.counts.requests, Refused: b.counts.refused, Nonsense: b.counts.nonsense}
	for i, g := range b.gpus {
		p, account := b.memory.pools[i], b.model.Account(i)
		s.GPUs = append(s.GPUs, GPUStats{Index: i, UUID: UUID(g.uuid), Name: g.Name, Health: g.health.String(), LastXID: g.lastXID,
			Usable: p.usable, Used: p.used, Busy: account.Busy, Switching: account.Switching, Launches: g.launches})
	}
	for _, a := range b.attachments {
		s.Processes = append(s.Processes, b.processStats(a))
	}
	return s
}

// processStats are the figures of a process, its ended contexts included.
func (b *Broker) processStats(a *attachment) ProcessStats {
	s := ProcessStats{PID: a.pid, Name: a.name, Ended: a.gone, Audit: a.judged}
	for g := range b.gpus {
		past := a.past[g]
		p := ProcessGPUStats{Index: g, Bytes: a.bytes[g], Peak: a.peak[g], Busy: past.Busy, Copying: past.Copying, Kernels: past.Kernels,
			Launches: a.launched[g]}
		for _, c := range a.contexts {
			if c.gpu == g {
				u := b.model.Usage(c.model)
				p.Contexts++
				p.Busy, p.Copying, p.Kernels, p.Launches = p.Busy+u.Busy, p.Copying+u.Copying, p.Kernels+u.Kernels, p.Launches+c.launches
			}
		}
		if p.Contexts > 0 || p.Peak > 0 || p.Launches > 0 {
			s.GPUs = append(s.GPUs, p)
		}
	}
	return s
}

func appendPast(past []ProcessStats, s ProcessStats) []ProcessStats {
	if len(past) >= maxPast {
		past = slices.Delete(past, 0, 1)
	}
	return append(past, s)
}

// usages are the processes of a GPU as NVML lists them: one entry per process, by pid.
func (b *Broker) usages(gpu int) []usage {
	byPID := map[int32]*usage{}
	for _, a := range b.attachments {
		for _, p := range b.processStats(a).GPUs {
			if p.Index != gpu || p.Contexts == 0 && p.Bytes == 0 {
				continue
			}
			u := byPID[a.pid]
			if u == nil {
				u = &usage{PID: uint32(a.pid)}
				byPID[a.pid] = u
			}
			u.Contexts += uint32(p.Contexts)
			u.Bytes += uint64(p.Bytes)
			u.Busy += uint64(p.Busy)
			u.Kernels += p.Kernels
		}
	}
	list := make([]usage, 0, len(byPID))
	for _, u := range byPID {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(x, y usage) int { return cmp.Compare(x.PID, y.PID) })
	return list
}

func (s Stats) json() []byte {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // numbers and strings only
	}
	return append(text, '\n')
}

// UUID writes a UUID as the driver's tools do.
func UUID(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// busID is the PCI address of a GPU.
func busID(gpu int) string { return fmt.Sprintf("00000000:%02X:00.0", gpu+1) }

// String is the clock in a word.
func (c Clock) String() string {
	if c == Virtual {
		return "virtual"
	}
	return "real"
}
