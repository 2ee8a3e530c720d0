package agent

import (
	"context"
	"fmt"
	"math"
	"os/user"
	"slices"
	"strconv"
	"time"

	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
)

// A preloaded library can be lost: a static program, a setuid one, a scrubbed environment. Such a process is noticed in the
// driver's own list, and its memory is charged to the job that it belongs to.

// escape is a process that uses GPUs of a job without a session, and what was charged for it.
type escape struct {
	bytes map[int]unit.Bytes // by GPU
}

// sighting is a process on a GPU that no session accounts for.
type sighting struct {
	pid, uid  int
	user      string
	bytes     unit.Bytes
	program   string
	cgroup    string
	session   int
	ancestors []int
	socket    string
}

// sightings are those of one GPU; busy is its utilisation.
type sightings struct {
	gpu   int
	busy  float64
	err   error
	list  []sighting
	known map[int]bool // all processes on it
}

// watch looks at the driver's lists, until the end.
func (a *Agent) watch(ctx context.Context) {
	tick := time.NewTicker(a.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		claimed := map[int]bool{}
		a.do(func() {
			for _, s := range a.sessions {
				claimed[s.peer.pid] = true
			}
		})
		seen := make([]sightings, len(a.gpus))
		for i := range seen {
			seen[i] = sight(a.o.Machine, i, claimed)
		}
		a.do(func() { a.see(seen) })
	}
}

// sight looks at one GPU.
func sight(m device.Machine, gpu int, claimed map[int]bool) sightings {
	s := sightings{gpu: gpu, known: map[int]bool{}}
	processes, err := m.Processes(gpu)
	if s.err = err; err != nil {
		return s
	}
	s.busy, _ = m.Utilisation(gpu) // 0 where the driver does not say
	for _, p := range processes {
		s.known[p.PID] = true
		if claimed[p.PID] || p.PID == 0 {
			continue
		}
		uid := userOf(p.PID)
		s.list = append(s.list, sighting{pid: p.PID, uid: uid, user: userName(uid), bytes: p.Bytes, program: nameOf(p.PID), cgroup: cgroupOf(p.PID),
			session: statOf(p.PID).session, ancestors: ancestors(p.PID), socket: socketOf(p.PID)})
	}
	return s
}

// userName is the name of a user, or its number where it has none.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

// see books what was sighted.
func (a *Agent) see(all []sightings) {
	for _, s := range all {
		g := a.gpus[s.gpu]
		if s.err != nil {
			if g.blind == "" {
				a.note(Event{Type: EventUnhealthy, GPU: &g.number, Text: s.err.Error()})
			}
			g.blind = s.err.Error()
			continue
		}
		if g.blind != "" {
			a.recovered(g, "the driver answers again")
		}
		g.blind, g.busy = "", s.busy
		a.seeGPU(g, s.list)
	}
	a.endAway(all)
}

// seeGPU books the processes without a session of one GPU.
func (a *Agent) seeGPU(g *gpu, list []sighting) {
	here := map[int]bool{}
	for _, p := range list {
		here[p.pid] = true
		if al, how := a.belongs(g, p); al != nil {
			al.charge(g, p, how)
		} else {
			a.reportForeign(g, p)
		}
	}
	for pid := range g.foreign {
		if !here[pid] {
			delete(g.foreign, pid)
		}
	}
	for _, al := range a.allocs {
		for pid, e := range al.escaped {
			if _, on := e.bytes[g.number]; on && !here[pid] {
				al.uncharge(g, pid)
			}
		}
	}
}

// belongs finds the job of a process, and says by what: its ancestors, its control group, the environment that it was started
// with, and, where that leaves one job alone, its user.
func (a *Agent) belongs(g *gpu, p sighting) (found *allocation, how string) {
	family := map[int]bool{p.pid: true, p.session: p.session > 1}
	for _, pid := range p.ancestors {
		family[pid] = true
	}
	users := 0
	var ofUser *allocation
	for _, al := range a.allocs {
		if _, on := al.waits[g.number]; !on {
			continue
		}
		switch {
		case al.isOf(family):
			return al, "by its parents"
		case al.owner.pid > 0 && p.cgroup != "" && p.cgroup != a.group && p.cgroup == al.cgroup():
			found, how = al, "by its control group"
		case al.spec.Container != nil:
			if al.spec.Container.has(p.cgroup) && (how == "" || al.shares(p.cgroup)) {
				found, how = al, "by its control group"
			}
		case p.socket == al.socket() && p.uid == al.spec.UID && how == "":
			found, how = al, "by its environment"
		case p.uid == al.spec.UID:
			ofUser = al
			users++
		}
	}
	if found == nil && users == 1 && p.uid > 0 {
		return ofUser, "by its user"
	}
	return found, how
}

// isOf says whether a family of processes holds one of the allocation's.
func (al *allocation) isOf(family map[int]bool) bool {
	if family[al.owner.pid] && al.owner.pid > 0 {
		return true
	}
	for _, s := range al.sessions {
		if s.peer.pid > 0 && family[s.peer.pid] {
			return true
		}
	}
	return false
}

// cgroup is that of the allocation's owner.
func (al *allocation) cgroup() string {
	if al.group == "" {
		al.group = cgroupOf(al.owner.pid)
	}
	return al.group
}

// observed names processes without a session in the ledgers: sessions are numbered from 1 and never come so far.
func observed(pid int) ledger.Process { return ledger.Process(math.MaxUint64 - uint64(pid)) }

// charge books the memory of an escaped process as it is now.
func (al *allocation) charge(g *gpu, p sighting, how string) {
	e, known := al.escaped[p.pid]
	if !known {
		e = escape{bytes: map[int]unit.Bytes{}}
		al.escaped[p.pid] = e
		al.tally.escaped++
		if !al.spec.Whole { // it is meant to run without
			al.a.note(Event{Type: EventEscaped, Job: al.spec.Name, ID: al.id, PID: p.pid, GPU: &g.number,
				Text: fmt.Sprintf("%s uses %v without weft's library and is charged to this job (%s): its kernels take no turns", p.program, p.bytes, how)})
		}
	}
	if before, on := e.bytes[g.number]; on && before == p.bytes {
		return
	}
	now := al.a.clock.now()
	g.ledger.Exit(now, al.account(), observed(p.pid))
	if p.bytes > 0 {
		answer := g.ledger.Hold(now, al.account(), ledger.Handle{Process: observed(p.pid), Number: 1}, p.bytes, ledger.Device)
		if answer.Outcome == ledger.Short {
			al.a.note(Event{Type: EventOverLimit, Job: al.spec.Name, ID: al.id, PID: p.pid, GPU: &g.number,
				Text: fmt.Sprintf("%v are in use beyond what the job may have", answer.Need)})
		}
	}
	e.bytes[g.number] = p.bytes
	al.a.books(g)
}

// uncharge takes an escaped process off the books of one GPU.
func (al *allocation) uncharge(g *gpu, pid int) {
	g.ledger.Exit(al.a.clock.now(), al.account(), observed(pid))
	delete(al.escaped[pid].bytes, g.number)
	if len(al.escaped[pid].bytes) == 0 {
		delete(al.escaped, pid)
	}
	al.a.books(g)
}

// reportForeign says once that a process of no job uses a GPU.
func (a *Agent) reportForeign(g *gpu, p sighting) {
	if _, known := g.foreign[p.pid]; !known {
		a.note(Event{Type: EventForeign, PID: p.pid, GPU: &g.number,
			Text: fmt.Sprintf("%s of user %s uses %v and belongs to no job of weft", p.program, p.user, p.bytes)})
	}
	g.foreign[p.pid] = p.bytes
}

// endAway ends sessions whose process lives, is away, and uses no GPU any more: its program was replaced by another.
func (a *Agent) endAway(all []sightings) {
	const patience = 5 * time.Second // a process that comes back does so within the settle time
	for _, s := range a.sessions {
		uses := s.away == 0 || a.clock.now().Sub(s.away) < patience
		for _, seen := range all {
			uses = uses || seen.known[s.peer.pid] || seen.err != nil
		}
		if !uses {
			a.later(s.end)
		}
	}
}

// watchFaults waits for what the driver reports, until the end.
func (a *Agent) watchFaults(ctx context.Context) {
	for ctx.Err() == nil {
		fault, found, err := a.o.Machine.NextFault(200 * time.Millisecond)
		switch {
		case err != nil:
			select {
			case <-ctx.Done():
			case <-time.After(a.o.Poll): // it may be the driver that is in trouble: it is asked again
			}
		case found && fault.GPU < len(a.gpus):
			a.do(func() { a.fail(a.gpus[fault.GPU], fault.XID) })
		}
	}
}

// programXIDs come from programs: they end those, and the GPU is well.
var programXIDs = []uint64{13, 31, 43, 45, 68, 109}

// fail books a critical error.
func (a *Agent) fail(g *gpu, xid uint64) {
	if slices.Contains(programXIDs, xid) {
		a.note(Event{Type: EventUnhealthy, GPU: &g.number, Text: fmt.Sprintf("the driver reports XID %d, which programs cause: the GPU is well", xid)})
		return
	}
	g.xid, g.broke = xid, a.clock.now()
	a.note(Event{Type: EventUnhealthy, GPU: &g.number, Text: fmt.Sprintf("the driver reports XID %d: drain the GPU and reset it", xid)})
}

// recovered books that a GPU is well again.
func (a *Agent) recovered(g *gpu, why string) {
	g.xid = 0
	a.note(Event{Type: EventRecovered, GPU: &g.number, Text: why})
}

// computed books that work of a session is done. Of one that began after its GPU broke, it shows that the GPU is well.
func (s *session) computed() {
	for _, g := range s.token.gpus {
		if g := s.a.gpus[g]; g.xid != 0 && s.born > g.broke {
			s.a.recovered(g, fmt.Sprintf("a program that began after XID %d computes", g.xid))
		}
	}
}
