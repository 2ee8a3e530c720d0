package agent

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// restore makes the agent what the last one of its folder was, as far as that is still true: its allocations and the memory
// of processes that live, and epochs and numbers above all that were given out. Processes then come back and say what they
// hold; until the settle time is over nobody is granted anything.
func (a *Agent) restore() error {
	a.state.path, a.state.boot, a.state.wake = filepath.Join(a.o.Dir, "state.json"), bootID(), make(chan struct{}, 1)
	last, err := a.read()
	if err != nil {
		return err
	}
	first := last == nil
	if first {
		last = &state{Epoch: base()}
	}
	a.arb = arbiter.Restore(a.clock.now(), len(a.gpus), a.o.Arbiter, last.Epoch)
	a.ids.session, a.ids.alloc, a.state.before = last.Session, last.Alloc, last.Epoch
	a.journal.path = filepath.Join(a.o.Dir, "sessions.json")
	if last.Boot == a.state.boot {
		processes, err := a.journal.read()
		if err != nil {
			return err
		}
		a.restoreBooks(last, processes)
	}
	a.unsettled, a.settles = true, a.clock.now().Add(cmp.Or(a.o.Arbiter.Settle, settleTime))
	if first || last.Boot != "" && len(a.missed) == 0 {
		a.settled() // otherwise it is not known whether somebody is to be waited for
	}
	a.removeStrays()
	return errors.Join(a.keepAtOnce(), a.journal.begin(a.sessionStates()))
}

// read is the last agent's state, nil where there is none. One that cannot be read is put aside.
func (a *Agent) read() (*state, error) {
	text, err := os.ReadFile(a.state.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's state: %w", err)
	}
	s := &state{}
	err = json.Unmarshal(text, s) //nolint:musttag // as it was written
	if err == nil && s.Version != stateVersion {
		err = fmt.Errorf("version %d, this agent reads %d", s.Version, stateVersion)
	}
	if err == nil {
		return s, nil
	}
	bad := a.state.path + ".bad"
	a.note(Event{Type: EventState, Text: fmt.Sprintf("state is unreadable and kept as %s: %v", bad, err)})
	if err := os.Rename(a.state.path, bad); err != nil {
		return nil, fmt.Errorf("put the unreadable state aside: %w", err)
	}
	return &state{Epoch: base(), Session: base(), Alloc: base()}, nil
}

// base is above all epochs and numbers that an agent of this machine can have given out whose state is lost: less than
// one each microsecond.
func base() uint64 { return uint64(time.Now().UnixMicro()) }

// restoreBooks brings back allocations, ledgers and sessions.
func (a *Agent) restoreBooks(last *state, processes []sessionState) {
	for i := range last.Allocs {
		a.restoreAllocation(&last.Allocs[i])
	}
	for _, g := range a.gpus {
		a.restoreLedger(g, last.Ledgers[g.UUID.String()])
	}
	for _, p := range processes {
		a.restoreSession(p)
	}
	for _, g := range a.gpus {
		a.restorePieces(g)
	}
	for i := range last.Allocs {
		a.restoreExports(&last.Allocs[i])
	}
	for _, al := range a.allocs {
		al.listen()
		a.later(al.releaseOrphan)
	}
	a.note(Event{Type: EventRestored, Text: fmt.Sprintf("%d of %d jobs and %d of %d processes are there still", len(a.allocs), len(last.Allocs),
		len(a.sessions), len(processes))})
}

// restoreAllocation brings back an allocation whose GPUs are there and whose owner lives.
func (a *Agent) restoreAllocation(s *allocState) {
	var gpus []*gpu
	for _, uuid := range s.UUIDs {
		if g, ok := a.at(uuid); ok {
			gpus = append(gpus, g)
		}
	}
	if len(gpus) != len(s.UUIDs) || len(gpus) == 0 || len(gpus) > wire.GPUs {
		a.note(Event{Type: EventReleased, Job: s.Spec.Name, ID: s.ID, Text: "its GPUs are not there any more"})
		return
	}
	al := a.newAllocation(s.ID, s.Spec, gpus)
	al.began = s.Began
	if s.Spec.PID > 0 && startOf(s.Spec.PID) != s.Began || al.watchOwner() != nil {
		al.orphan = true
	}
	if err := al.makeDir(); err != nil {
		delete(a.allocs, al.id)
		a.note(al.event(EventReleased, err.Error()))
	}
}

// restoreLedger brings back the books of a GPU. Who is gone is taken off them; requests are not brought back, as who waits
// asks again. Books that do not balance begin anew: processes say what they hold.
func (a *Agent) restoreLedger(g *gpu, s ledger.State) {
	s.Queue, s.Decisions = slices.DeleteFunc(s.Queue, func(w ledger.WaitState) bool { return !w.Opens }), nil
	s.Usable = g.Usable
	l, err := ledger.Restore(s)
	if s.Version == 0 {
		return // a GPU that was not there before
	}
	if err != nil {
		a.note(Event{Type: EventState, GPU: &g.number, Text: fmt.Sprintf("books begin anew: %v", err)})
		l = ledger.New(g.Usable, a.o.Chunk)
		s = ledger.State{}
	}
	g.ledger = l
	now := a.clock.now()
	known := map[uint64]bool{}
	for _, account := range s.Accounts {
		al := a.allocs[uint64(account.ID)]
		if al == nil || !slices.Contains(al.gpus, g) {
			l.Close(now, account.ID)
			continue
		}
		known[al.id] = true
	}
	for id, al := range a.allocs {
		if slices.Contains(al.gpus, g) && !known[id] {
			if err := al.open(g); err != nil {
				a.note(al.event(EventState, err.Error()))
			}
		}
	}
	l.Ready() // nobody waits for them
}

// restoreSession brings back a process that lives. It is away until it connects.
func (a *Agent) restoreSession(s sessionState) {
	al := a.allocs[s.Alloc]
	a.ids.session = max(a.ids.session, s.Number)
	if al != nil && s.PID == 0 {
		a.missed[&session{}] = struct{}{} // it cannot be told whether it lives
	}
	if al == nil || a.sessions[s.Number] != nil || s.PID == 0 || startOf(s.PID) != s.Started {
		return
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return
	}
	own := &session{a: a, alloc: al, number: s.Number, peer: peer{pid: s.PID, uid: al.spec.UID, pidfd: fd}, started: s.Started,
		away: a.clock.now(), mask: s.GPUs, pieces: map[uint64]piece{}}
	a.sessions[own.number], al.sessions[own.number] = own, own
	own.watchProcess()
	a.missed[own] = struct{}{}
}

// comeback is the time after a restart in which processes say what they hold. Until it is over nobody is granted a token or
// memory beside them.
type comeback struct {
	unsettled bool
	settles   unit.Time             // at the latest
	missed    map[*session]struct{} // that did not come back yet
	waiting   []func()              // allocations
}

// settleTime is the arbiter's default.
const settleTime = 500 * time.Millisecond

// back notes that a process of before the restart is back, or over. When all are, nobody else can hold a token, and the settle
// time ends.
func (a *Agent) back(s *session) {
	if _, missed := a.missed[s]; missed {
		delete(a.missed, s)
		if len(a.missed) == 0 {
			a.settled()
		}
	}
}

// settled ends the comeback.
func (a *Agent) settled() {
	clear(a.missed)
	a.unsettled = false
	a.act(a.arb.Settled(a.clock.now()))
	waiting := a.waiting
	a.waiting = nil
	for _, f := range waiting {
		f()
	}
}

// restorePieces gives sessions back their memory, and takes that of others off the books.
func (a *Agent) restorePieces(g *gpu) {
	now := a.clock.now()
	for _, c := range g.ledger.State().Charges {
		for i, name := range c.Names {
			s := a.sessions[uint64(name.Handle.Process)]
			if s == nil || s.alloc.account() != name.Account {
				g.ledger.Exit(now, name.Account, name.Handle.Process)
				continue
			}
			p := piece{gpu: g}
			if i == 0 {
				p.bytes = c.Bytes
			}
			s.pieces[name.Handle.Number] = p
		}
	}
}

func (a *Agent) restoreExports(s *allocState) {
	al := a.allocs[s.ID]
	if al == nil {
		return
	}
	for _, e := range s.Exports {
		g, ok := a.at(e.UUID)
		key, err := hex.DecodeString(e.Key)
		own := a.sessions[uint64(e.Handle.Process)]
		if !ok || err != nil || len(key) != wire.KeySize || own == nil {
			continue
		}
		k := exportKey{g.number, [wire.KeySize]byte(key)}
		al.exports[k] = e.Handle
		al.keys[e.Handle] = append(al.keys[e.Handle], k)
	}
}

// removeStrays removes the folders of allocations that are no more.
func (a *Agent) removeStrays() {
	dir := filepath.Join(a.o.Dir, "alloc")
	list, err := os.ReadDir(dir)
	if err != nil {
		return // there is none yet
	}
	for _, entry := range list {
		id, err := strconv.ParseUint(entry.Name(), 10, 64)
		if err != nil || a.allocs[id] == nil {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name())) // what is left of it is only in the way of nobody
		}
	}
}
