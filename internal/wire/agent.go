package wire

import "errors"

// Outcome is what became of a question about memory.
type Outcome uint32

// Outcomes.
const (
	OK          Outcome = iota
	OutOfMemory         // beyond the allocation's own limit
	Unknown             // no such key, or not this allocation's GPU
)

// Refusal is why a connection is closed.
type Refusal uint32

// Refusals.
const (
	RefusedVersion  Refusal = 1 + iota // another protocol
	RefusedUser                        // the peer's user is not the allocation's
	RefusedProtocol                    // a malformed, unexpected or replayed message
	RefusedClosed                      // the allocation has ended
	RefusedFull                        // too many processes in the allocation
)

// GPU is a GPU of an allocation.
type GPU struct {
	UUID     [16]byte
	Limit    uint64 // bytes that the allocation may use: reserved and ephemeral part together
	Reserved uint64 // bytes that are always its own
}

// Welcome answers Hello.
type Welcome struct {
	Session uint64
	Count   uint32 // of GPUs
	Class   uint32
	Grace   uint32 // us: nothing outstanding for so long is idle
	Held    uint32 // 1: the epoch of Hello is valid still, the gate may stay open
	GPUs    [GPUs]GPU
}

// Refused says that the connection is closed, and why.
type Refused struct {
	Reason  Refusal
	Version uint32 // that the agent speaks
}

// Terms are those of a grant.
type Terms struct {
	Epoch  uint64
	Lasts  uint64 // ns until the gate closes by itself; 0: it stays open until Drop or Yield
	Window uint64 // ns: most estimated GPU time outstanding; 0: no bound
	Ahead  uint64 // 1: not asked for; the process is expected back from a gap
}

// Grant opens the gate.
type Grant struct{ Terms }

// Narrow asks to keep less outstanding from now on. Lasts and Ahead are unused.
type Narrow struct{ Terms }

// Yield says that others wait: release as soon as nothing is outstanding.
type Yield struct {
	Epoch uint64
	Spare uint64 // ns: not in gaps until they have lasted so long, but where the program itself says that it pauses; 0: in any
}

// Drop asks to close the gate, drain and release.
type Drop struct {
	Epoch  uint64
	Reason uint32 // arbiter.Reason
}

// Memory answers Alloc, Import and View.
type Memory struct {
	Handle  uint64 // of the question
	Outcome Outcome
	GPU     uint32
	Total   uint64 // the allocation's limit, bytes
	Used    uint64 // by all its processes
	Waited  uint64 // ns, for the pool
}

// Process is one process on a GPU.
type Process struct {
	Bytes uint64
	PID   int32 // in the asking process's own pid namespace
}

// List answers ProcessesOf.
type List struct {
	Handle    uint64
	GPU       uint32
	Processes []Process // at most Processes
}

// Wanted says whether another job waits for this GPU's pool: give caches back at the next boundary.
type Wanted struct {
	GPU    uint32
	Wanted uint32 // 1: somebody waits; 0: no longer
}

// Ping asks for Pong.
type Ping struct{ plain }

func (*Welcome) kind() Type { return TypeWelcome }
func (*Welcome) size() int  { return 24 + 32*GPUs }
func (m *Welcome) put(b []byte) {
	order.PutUint64(b[0:], m.Session)
	order.PutUint32(b[8:], m.Count)
	order.PutUint32(b[12:], m.Class)
	order.PutUint32(b[16:], m.Grace)
	order.PutUint32(b[20:], m.Held)
	for i := range m.GPUs {
		g, p := &m.GPUs[i], b[24+32*i:]
		copy(p, g.UUID[:])
		order.PutUint64(p[16:], g.Limit)
		order.PutUint64(p[24:], g.Reserved)
	}
}

var errCount = errors.New("a count out of bounds")

func (m *Welcome) get(b []byte) error {
	m.Session, m.Count, m.Class = order.Uint64(b[0:]), order.Uint32(b[8:]), order.Uint32(b[12:])
	m.Grace, m.Held = order.Uint32(b[16:]), order.Uint32(b[20:])
	if m.Count > GPUs {
		return errCount
	}
	for i := range m.GPUs {
		p := b[24+32*i:]
		g := &m.GPUs[i]
		copy(g.UUID[:], p)
		g.Limit, g.Reserved = order.Uint64(p[16:]), order.Uint64(p[24:])
	}
	return zero(b[24+32*int(m.Count):])
}

func (*Refused) kind() Type { return TypeRefused }
func (*Refused) size() int  { return 8 }
func (m *Refused) put(b []byte) {
	order.PutUint32(b[0:], uint32(m.Reason))
	order.PutUint32(b[4:], m.Version)
}

func (m *Refused) get(b []byte) error {
	*m = Refused{Refusal(order.Uint32(b[0:])), order.Uint32(b[4:])}
	return nil
}

func (m *Terms) size() int { return 32 }
func (m *Terms) put(b []byte) {
	order.PutUint64(b[0:], m.Epoch)
	order.PutUint64(b[8:], m.Lasts)
	order.PutUint64(b[16:], m.Window)
	order.PutUint64(b[24:], m.Ahead)
}

func (m *Terms) get(b []byte) error {
	*m = Terms{order.Uint64(b[0:]), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[24:])}
	if m.Ahead > 1 {
		return errCount
	}
	return nil
}

func (*Grant) kind() Type { return TypeGrant }

func (*Narrow) kind() Type { return TypeNarrow }

func (*Yield) kind() Type { return TypeYield }
func (*Yield) size() int  { return 16 }
func (m *Yield) put(b []byte) {
	order.PutUint64(b[0:], m.Epoch)
	order.PutUint64(b[8:], m.Spare)
}

func (m *Yield) get(b []byte) error {
	*m = Yield{order.Uint64(b[0:]), order.Uint64(b[8:])}
	return nil
}

func (*Drop) kind() Type { return TypeDrop }
func (*Drop) size() int  { return 16 }
func (m *Drop) put(b []byte) {
	order.PutUint64(b[0:], m.Epoch)
	order.PutUint32(b[8:], m.Reason)
}

func (m *Drop) get(b []byte) error {
	*m = Drop{order.Uint64(b[0:]), order.Uint32(b[8:])}
	return zero(b[12:])
}

func (*Memory) kind() Type { return TypeMemory }
func (*Memory) size() int  { return 40 }
func (m *Memory) put(b []byte) {
	order.PutUint64(b[0:], m.Handle)
	order.PutUint32(b[8:], uint32(m.Outcome))
	order.PutUint32(b[12:], m.GPU)
	order.PutUint64(b[16:], m.Total)
	order.PutUint64(b[24:], m.Used)
	order.PutUint64(b[32:], m.Waited)
}

func (m *Memory) get(b []byte) error {
	*m = Memory{order.Uint64(b[0:]), Outcome(order.Uint32(b[8:])), order.Uint32(b[12:]), order.Uint64(b[16:]),
		order.Uint64(b[24:]), order.Uint64(b[32:])}
	return nil
}

func (*List) kind() Type  { return TypeList }
func (m *List) size() int { return 16 + 16*len(m.Processes) }
func (m *List) put(b []byte) {
	order.PutUint64(b[0:], m.Handle)
	order.PutUint32(b[8:], m.GPU)
	order.PutUint32(b[12:], uint32(len(m.Processes)))
	for i, p := range m.Processes {
		order.PutUint64(b[16+16*i:], p.Bytes)
		order.PutUint32(b[24+16*i:], uint32(p.PID))
	}
}

func (m *List) get(b []byte) error {
	if len(b) < 16 {
		return errCount
	}
	count := order.Uint32(b[12:])
	if count > Processes || len(b) != 16+16*int(count) {
		return errCount
	}
	m.Handle, m.GPU, m.Processes = order.Uint64(b[0:]), order.Uint32(b[8:]), make([]Process, count)
	for i := range m.Processes {
		p := b[16+16*i:]
		m.Processes[i] = Process{order.Uint64(p[0:]), int32(order.Uint32(p[8:]))}
		if err := zero(p[12:16]); err != nil {
			return err
		}
	}
	return nil
}

func (*Wanted) kind() Type { return TypeWanted }
func (*Wanted) size() int  { return 8 }
func (m *Wanted) put(b []byte) {
	order.PutUint32(b[0:], m.GPU)
	order.PutUint32(b[4:], m.Wanted)
}

func (m *Wanted) get(b []byte) error {
	*m = Wanted{order.Uint32(b[0:]), order.Uint32(b[4:])}
	return nil
}

func (*Ping) kind() Type { return TypePing }

// blank is an empty message of a type, nil where there is none.
func blank(t Type) Message {
	if t < TypeWelcome {
		return blankOfShim(t)
	}
	switch t {
	case TypeWelcome:
		return &Welcome{}
	case TypeRefused:
		return &Refused{}
	case TypeGrant:
		return &Grant{}
	case TypeNarrow:
		return &Narrow{}
	case TypeYield:
		return &Yield{}
	case TypeDrop:
		return &Drop{}
	case TypeMemory:
		return &Memory{}
	case TypeList:
		return &List{}
	case TypeWanted:
		return &Wanted{}
	case TypePing:
		return &Ping{}
	}
	return nil
}

func blankOfShim(t Type) Message {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypeUse:
		return &Use{}
	case TypeRequest:
		return &Request{}
	case TypeReleased:
		return &Released{}
	case TypeIdle:
		return &Idle{}
	case TypeAlloc:
		return &Alloc{}
	case TypeFree:
		return &Free{}
	case TypeExport:
		return &Export{}
	case TypeImport:
		return &Import{}
	case TypeIteration:
		return &Iteration{}
	case TypeView:
		return &View{}
	case TypeProcessesOf:
		return &ProcessesOf{}
	case TypePong:
		return &Pong{}
	}
	return nil
}
