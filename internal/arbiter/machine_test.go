package arbiter

import (
	"container/heap"
	"time"

	"weft.dev/weft/internal/unit"
)

// faults is a test, of testing or of rapid.
type faults interface {
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// machine runs jobs on GPUs under an arbiter in virtual time. Messages take a latency each way, gates close when told
// or at their deadline, kernels run to their end, and two jobs whose kernels overlap on a GPU are a fault.
type machine struct {
	t       faults
	a       *Arbiter
	now     unit.Time
	latency time.Duration
	events  eventQueue
	seq     int
	procs   map[SessionID]*process
	wakeAt  unit.Time
	users   []user // of each GPU: who computed on it last, until when
	epoch   uint64
	grants  int
	overrun []SessionID
	lost    int // arbiters
}

type user struct {
	job   *process
	until unit.Time
}

type simEvent struct {
	at  unit.Time
	seq int
	do  func()
}

type eventQueue []simEvent

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *eventQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func newMachine(t faults, gpus int, o Options) *machine {
	return &machine{
		t: t, a: New(gpus, o), latency: 70 * time.Microsecond, procs: map[SessionID]*process{},
		wakeAt: unit.Never, users: make([]user, gpus),
	}
}

func (m *machine) at(at unit.Time, do func()) {
	m.seq++
	heap.Push(&m.events, simEvent{max(at, m.now), m.seq, do})
}

func (m *machine) after(d time.Duration, do func()) { m.at(m.now.Add(d), do) }

// run lets virtual time pass.
func (m *machine) run(until unit.Time) {
	for len(m.events) > 0 && m.events[0].at <= until {
		e := heap.Pop(&m.events).(simEvent)
		m.now = e.at
		e.do()
	}
	m.now = until
}

// send brings a message to the arbiter and its decisions to the gates.
func (m *machine) send(message func(now unit.Time) []Decision) {
	lost := m.lost
	m.after(m.latency, func() {
		if lost == m.lost {
			m.act(message(m.now))
		}
	})
}

func (m *machine) act(decisions []Decision) {
	for _, d := range decisions {
		if d.Kind == Grant {
			m.grants++
			if d.Epoch < m.epoch {
				m.t.Errorf("epoch %d was granted after %d", d.Epoch, m.epoch)
			}
			m.epoch = d.Epoch
		}
		if d.Kind == Overrun {
			m.overrun = append(m.overrun, d.Session)
			continue
		}
		if p := m.procs[d.Session]; p != nil {
			lost := m.lost
			m.after(m.latency, func() {
				if lost == m.lost {
					p.hear(d)
				}
			})
		}
	}
	if next := m.a.Next(); next < unit.Never && next != m.wakeAt {
		m.wakeAt = next
		m.at(next, func() {
			if m.a.Next() <= m.now {
				m.wakeAt = unit.Never
				m.act(m.a.Tick(m.now))
			}
		})
	}
}

// occupy books kernels of a process on its GPUs.
func (m *machine) occupy(p *process, from, to unit.Time) {
	for _, s := range p.sessions {
		for _, g := range s.gpus {
			u := &m.users[g]
			if u.job != p && u.until > from && !p.hangs && (u.job == nil || !u.job.hangs) {
				m.t.Errorf("at %v jobs %s and %s compute on GPU %d at once", time.Duration(from), u.job.id, p.id, g)
			}
			*u = user{p, to}
		}
	}
}

func (p *process) hear(d Decision) {
	if p.hangs || p.quit {
		return
	}
	for _, g := range p.sessions {
		if g.id != d.Session {
			continue
		}
		switch d.Kind {
		case Grant:
			*g = gate{id: g.id, gpus: g.gpus, open: true, epoch: d.Epoch, deadline: d.Deadline, window: d.Window, from: p.used,
				ahead: d.Ahead && !g.asked, granted: p.m.now, first: unit.Never}
			p.m.at(d.Deadline, func() {
				if g.epoch == d.Epoch {
					p.shut(g)
				}
			})
			p.launch()
		case Narrow:
			g.window = d.Window
		case Yield:
			if g.epoch == d.Epoch {
				g.yield, g.spare = true, d.Spare
				p.synced()
			}
		case Drop:
			if g.epoch == d.Epoch {
				p.shut(g)
			}
		}
	}
}
