package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// Spec is what a job is allocated with.
type Spec struct {
	Name       string     `json:"name"`
	GPUs       []string   `json:"gpus"` // numbers or UUIDs
	Class      Class      `json:"class"`
	Weight     int        `json:"weight"`         // share within the class; 0 for 1
	Reserved   unit.Bytes `json:"reserved_bytes"` // of each GPU, always its own
	Peak       unit.Bytes `json:"peak_bytes"`     // of each GPU, beyond that, out of the pool
	Cooperates bool       `json:"cooperates"`     // hands its unused memory over at its iterations
	UID        int        `json:"uid"`            // whose processes may connect
	PID        int        `json:"pid"`            // with whose end the allocation ends; 0 for none
	Container  *Container `json:"container,omitempty"`
	Whole      bool       `json:"whole,omitempty"` // nobody beside it, and it runs without weft's library
}

// allocation is what a job has of GPUs: its socket, its share, its memory.
type allocation struct {
	a        *Agent
	id       uint64
	spec     Spec
	gpus     []*gpu
	dir      string
	listener int  // -1 while it cannot be listened on
	resting  bool // no descriptors were left for connections
	conns    int
	owner    peer
	began    uint64 // of the owner, as /proc says
	group    string // the owner's control group
	orphan   bool   // its owner has ended
	sessions map[uint64]*session
	pending  int            // GPUs whose ledgers have not opened its account yet
	ready    func(error)    // told when it is open, or will never be
	waits    map[int]int    // allocations that wait, by GPU
	wanting  map[int]int    // sessions that wait for the token, by GPU
	wanted   map[int]bool   // GPUs of which it was told that others wait
	escaped  map[int]escape // processes that use its GPUs without a session
	exports  map[exportKey]ledger.Handle
	keys     map[ledger.Handle][]exportKey
	born     unit.Time
	kept     bool // it was said that it keeps more than its reserved part
	budget   float64
	spent    unit.Time
	tally    tally
}

// Bounds of an allocation.
const (
	LeastMemory = 256 * unit.MiB // a context alone takes about as much
	mostConns   = 1024
	backlog     = 4096
	acceptBurst = 32
)

func (al *allocation) account() ledger.AccountID { return ledger.AccountID(al.id) }
func (al *allocation) job() arbiter.JobID        { return arbiter.JobID(strconv.FormatUint(al.id, 10)) }
func (al *allocation) socket() string            { return filepath.Join(al.dir, SocketName) }

// SocketName is the name of the socket in an allocation's folder, and EnvName that of the file with what processes need in
// their environment beside it.
const (
	SocketName = "agent.sock"
	EnvName    = "environment"
	nextSocket = "agent.new" // before it takes its place; no longer than SocketName
)

// gpuAt is the GPU at a position of the allocation.
func (al *allocation) gpuAt(position uint32) *gpu {
	if position >= uint32(len(al.gpus)) {
		return nil
	}
	return al.gpus[position]
}

// newAllocation makes an allocation of a checked spec, known to the agent.
func (a *Agent) newAllocation(id uint64, spec Spec, gpus []*gpu) *allocation {
	al := &allocation{
		a: a, id: id, spec: spec, gpus: gpus, dir: filepath.Join(a.o.Dir, "alloc", strconv.FormatUint(id, 10)), listener: -1,
		owner: peer{pid: spec.PID, uid: spec.UID, pidfd: -1}, sessions: map[uint64]*session{}, waits: map[int]int{}, wanting: map[int]int{}, wanted: map[int]bool{},
		escaped: map[int]escape{}, exports: map[exportKey]ledger.Handle{}, keys: map[ledger.Handle][]exportKey{},
		budget: credit, spent: a.clock.now(), born: a.clock.now(),
	}
	for _, g := range gpus {
		al.waits[g.number] = 0
	}
	a.allocs[id] = al
	return al
}

// allocate makes an allocation, nil for a spec that cannot be. ready is told on the reactor when it is open: at once, or when the
// memory that it is always to have is free; or why it cannot be.
func (a *Agent) allocate(spec Spec, ready func(*allocation, error)) *allocation {
	gpus, err := a.check(&spec)
	if err != nil {
		ready(nil, err)
		return nil
	}
	a.ids.alloc++
	al := a.newAllocation(a.ids.alloc, spec, gpus)
	al.ready = func(err error) {
		al.ready = nil
		if err != nil {
			al.release("it could not be opened")
			ready(nil, err)
			return
		}
		a.note(al.event(EventAllocated, fmt.Sprintf("%s, %v reserved and a peak of %v on %s", spec.Class, spec.Reserved, spec.Peak, al.gpuNames())))
		a.keepThen(func(err error) { // a crash from here on forgets nothing; where the disk is full, jobs run all the same
			if err != nil {
				a.note(al.event(EventState, err.Error()))
			}
			ready(al, nil)
		})
	}
	if err := errors.Join(al.makeDir(), al.watchOwner()); err != nil {
		al.ready(err)
		return al
	}
	al.pending = len(gpus)
	for _, g := range gpus {
		if err := al.open(g); err != nil {
			al.ready(err)
			break
		}
	}
	return al
}

// terms are what a ledger opens the account with.
func (al *allocation) terms() ledger.Terms {
	return ledger.Terms{Reserved: al.spec.Reserved, Peak: al.spec.Peak, Class: ledger.Class(al.spec.Class), Cooperates: al.spec.Cooperates}
}

// open opens the account on one GPU.
func (al *allocation) open(g *gpu) error {
	switch answer := g.ledger.Open(al.a.clock.now(), al.account(), al.terms()); answer.Outcome {
	case ledger.Granted:
		al.opened(g)
	case ledger.Waits:
	default:
		return &RefusalError{Code: RefusedMemory, Message: fmt.Sprintf("%s: %v reserved or at a peak together, and %v are usable", g.name(), answer.Need, answer.Limit),
			Why: answer.Outcome.String(), Fix: "a smaller --reserved or --peak, another --gpu, or wait until a job ends"}
	}
	return nil
}

// opened is the answer of one GPU's ledger.
func (al *allocation) opened(*gpu) {
	al.pending--
	if al.pending > 0 || al.ready == nil {
		return
	}
	al.listen()
	if al.listener < 0 {
		al.ready(fmt.Errorf("listen on %s: no socket could be made", al.socket()))
		return
	}
	al.ready(nil)
}

// makeDir makes the folder that the job sees.
func (al *allocation) makeDir() error {
	folder, _ := al.modes()
	if err := errors.Join(os.MkdirAll(filepath.Dir(al.dir), 0o711), os.MkdirAll(al.dir, 0o700), os.Chmod(al.dir, folder)); err != nil {
		return fmt.Errorf("make the allocation's folder: %w", err)
	}
	if len(al.a.o.Env) > 0 {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(al.a.o.Env)) {
			fmt.Fprintf(&text, "%s=%s\n", name, al.a.o.Env[name])
		}
		if err := os.WriteFile(filepath.Join(al.dir, EnvName), []byte(text.String()), 0o644); err != nil {
			return fmt.Errorf("write what processes need: %w", err)
		}
	}
	return al.own(al.dir)
}

// own gives a file of the folder to the allocation's user.
func (al *allocation) own(path string) error {
	if al.spec.UID == os.Geteuid() || al.spec.Container != nil {
		return nil
	}
	if err := os.Chown(path, al.spec.UID, -1); err != nil {
		return fmt.Errorf("give %s to user %d: %w", path, al.spec.UID, err)
	}
	return nil
}

// listen makes the socket, if it is not there. Its trouble is an event; it is tried again a second later.
func (al *allocation) listen() {
	if al.resting && al.listener >= 0 {
		al.resting = false
		al.a.poll.watch(al.listener, unix.EPOLLIN)
	}
	if al.listener >= 0 || al.pending > 0 {
		return
	}
	fd, err := listenPackets(al.socket(), func(path string) error {
		_, socket := al.modes()
		return errors.Join(os.Chmod(path, socket), al.own(path))
	})
	if err == nil {
		if err = al.a.poll.add(fd, unix.EPOLLIN, func(uint32) { al.accept() }); err != nil {
			al.a.poll.remove(fd)
		}
	}
	if err != nil {
		al.a.note(al.event(EventState, err.Error()))
		return
	}
	al.listener = fd
}

// listenPackets listens on a socket of packets, in the place of one that an earlier agent left, and lets in whom allow does. A process
// that starts meanwhile finds the old one, on which it waits for an agent, or the new one: without either it would run unshared.
func listenPackets(path string, allow func(path string) error) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	next := filepath.Join(filepath.Dir(path), nextSocket)
	_ = os.Remove(next) // of an agent that was killed here; nobody listens on it: the folder is locked
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: next})
	if err == nil {
		err = errors.Join(unix.Listen(fd, backlog), allow(next))
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on %s: %w", path, err)
	}
	return fd, nil
}

// accept takes a few connections.
func (al *allocation) accept() {
	for range acceptBurst {
		fd, _, err := unix.Accept4(al.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			al.resting = true // until the next second: it would be ready for ever
			al.a.poll.watch(al.listener, 0)
			al.a.note(al.event(EventState, "no descriptors left for connections"))
		}
		if err != nil {
			return
		}
		al.connect(fd)
	}
}

// connect begins a connection.
func (al *allocation) connect(fd int) {
	who, err := peerOf(fd)
	c := &conn{a: al.a, alloc: al, fd: fd, peer: who, since: al.a.clock.now()}
	if err != nil || al.a.poll.add(fd, unix.EPOLLIN|unix.EPOLLRDHUP, c.ready) != nil {
		c.close()
		return
	}
	al.a.conns[c] = struct{}{}
	al.conns++
	switch {
	case !al.admits(who.uid):
		c.refuse(wire.RefusedUser, fmt.Sprintf("user %d connects to the socket of user %d", who.uid, al.spec.UID))
	case al.conns > mostConns:
		c.refuse(wire.RefusedFull, "")
	default:
		c.read() // where many start at once, HELLO is there before its connection is accepted
	}
}

// spend counts a message, and says whether the allocation may send it now.
func (al *allocation) spend(now unit.Time) bool {
	al.budget = min(credit, al.budget+rate*now.Sub(al.spent).Seconds()*1000)
	al.spent = now
	if al.budget < 1 {
		return false
	}
	al.budget--
	return true
}

// cooperate books that the job hands its memory over from now on.
func (al *allocation) cooperate(now unit.Time) {
	al.spec.Cooperates = true
	for _, g := range al.gpus {
		g.ledger.Cooperate(now, al.account(), al.spec.Reserved)
		al.a.books(g)
	}
	al.a.note(al.event(EventCooperates, "it hands its unused memory over at its iterations"))
	al.a.keepSoon()
}

// tellWanted tells a session of which of its GPUs others want memory.
func (al *allocation) tellWanted(s *session) {
	for _, g := range al.gpus {
		if al.wanted[g.number] {
			al.tellWantedOf(s, g)
		}
	}
}

func (al *allocation) tellWantedOf(s *session, g *gpu) {
	for i, own := range al.gpus {
		if own == g && s.mask&(1<<i) != 0 {
			m := &wire.Wanted{GPU: uint32(i)}
			if al.wanted[g.number] {
				m.Wanted = 1
			}
			s.say(m)
		}
	}
}

// watchOwner ends the allocation with its owner.
func (al *allocation) watchOwner() error {
	if al.spec.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(al.spec.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d, with whose end it is to end, is gone", al.spec.PID)
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", al.spec.PID, err)
	}
	al.owner.pidfd = fd
	al.began = startOf(al.spec.PID)
	return al.a.poll.add(fd, unix.EPOLLIN, func(uint32) { al.a.later(al.disown) })
}

// disown is the end of the owner. Processes of it that go on keep the allocation until they end, too: without it they would
// run beside the tokens.
func (al *allocation) disown() {
	if al.owner.pidfd >= 0 {
		al.a.poll.remove(al.owner.pidfd)
		al.owner.pidfd = -1
	}
	al.orphan = true
	al.releaseOrphan()
}

// releaseOrphan ends an allocation that nobody uses and nobody will.
func (al *allocation) releaseOrphan() {
	if al.orphan && len(al.sessions) == 0 {
		al.release("its processes ended")
	}
}

// release ends the allocation: its processes are told, its memory and tokens go.
func (al *allocation) release(why string) {
	a := al.a
	if a.allocs[al.id] != al {
		return
	}
	for c := range a.conns {
		if c.alloc == al {
			c.refuse(wire.RefusedClosed, "")
		}
	}
	for _, s := range al.sessions {
		s.end()
	}
	delete(a.allocs, al.id)
	a.act(a.arb.Forget(a.clock.now(), al.job()))
	for _, g := range al.gpus {
		a.counts.on(g.number).stall += g.ledger.Stall(a.clock.now(), al.account())
		g.ledger.Close(a.clock.now(), al.account())
		a.books(g)
	}
	al.shut()
	_ = os.RemoveAll(al.dir) // what is left of it is only in the way of nobody
	a.note(al.event(EventReleased, why))
	a.keepSoon()
	if al.ready != nil {
		ready := al.ready
		al.ready = nil
		ready(errors.New(why))
	}
}

// shut lets go of the descriptors.
func (al *allocation) shut() {
	if al.listener >= 0 {
		al.a.poll.remove(al.listener)
		al.listener = -1
	}
	if al.owner.pidfd >= 0 {
		al.a.poll.remove(al.owner.pidfd)
		al.owner.pidfd = -1
	}
}

func (al *allocation) gpuNames() string {
	names := make([]string, len(al.gpus))
	for i, g := range al.gpus {
		names[i] = g.name()
	}
	return strings.Join(names, ",")
}

func (al *allocation) event(kind, text string) Event {
	return Event{Type: kind, Job: al.spec.Name, ID: al.id, Text: text}
}
