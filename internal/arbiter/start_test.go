package arbiter

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/unit"
)

// process is a job: iterations of kernels, which are launched ahead as far as the window lets, and a gap on the host. A
// job of several sessions launches when all their gates are open, as ranks wait for each other.
type process struct {
	m        *machine
	id       JobID
	sessions []*gate
	class    Class
	weight   int
	kernel   time.Duration
	kernels  int // of an iteration
	gap      func() time.Duration
	stuck    func() time.Duration // how much longer than its kernels a release takes; nil for not

	left   int       // kernels of this iteration to be launched
	end    unit.Time // of what is launched
	resume unit.Time // end of the gap
	turn   int       // invalidates events of launching
	used   time.Duration
	ran    time.Duration // in all
	done   int           // iterations
	last   unit.Time     // when the last was
	gaps   time.Duration // in all
	past   time.Duration // until the last iteration
	wanted unit.Time     // when it asked, waiting for its gates
	waits  []time.Duration
	hangs  bool // ignores every message
	quit   bool
}

// gate is one session of a process.
type gate struct {
	id       SessionID
	gpus     []int
	open     bool
	epoch    uint64
	deadline unit.Time
	window   time.Duration
	yield    bool
	spare    time.Duration
	asked    bool
	from     time.Duration // used when it was granted
	ahead    bool
	granted  unit.Time
	first    unit.Time // launch under this grant; unit.Never before
}

// start joins a process with a session for each set of GPUs, and lets it run.
func (m *machine) start(p *process, sets ...[]int) *process {
	p.m, p.left = m, p.kernels
	if p.id == "" {
		p.id = JobID(fmt.Sprint("job ", len(m.procs)))
	}
	p.weight = max(1, p.weight)
	for _, gpus := range sets {
		g := &gate{id: SessionID(len(m.procs) + 1), gpus: gpus}
		m.procs[g.id] = p
		p.sessions = append(p.sessions, g)
		d, err := m.a.Join(m.now, Session{ID: g.id, Job: p.id, Class: p.class, Weight: p.weight, GPUs: gpus})
		if err != nil {
			m.t.Fatal(err)
		}
		m.act(d)
	}
	p.launch()
	return p
}

// stop kills a process.
func (p *process) stop() {
	p.quit = true
	p.turn++
	for g := range p.m.users {
		if u := &p.m.users[g]; u.job == p { // its kernels end with it
			u.until = min(u.until, p.m.now)
		}
	}
	for _, g := range p.sessions {
		p.m.act(p.m.a.Leave(p.m.now, g.id))
	}
}
