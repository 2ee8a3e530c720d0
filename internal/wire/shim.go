package wire

// Flags of Hello and Alloc.
const (
	Observer = 1 << 0 // Hello: asks View and ProcessesOf only, and never takes a token
	Held     = 1 << 0 // Alloc: exists since before the agent restarted: charged without a wait, whatever the room
)

// Hello is the first message of a connection, answered by Welcome or Refused.
type Hello struct {
	Session uint64 // that the last Welcome gave this process; 0 at first
	Epoch   uint64 // of the token that it holds; 0 for none
	GPUs    uint32 // bit i: it has a context on GPU i of the allocation
	Flags   uint32
}

// Use says that the process has a context on these GPUs, and no others, from now on.
type Use struct{ GPUs uint32 }

// Request says that the process wants to launch and its gate is closed.
type Request struct{ plain }

// Released says that the gate is closed and nothing is outstanding.
type Released struct {
	Epoch    uint64
	Used     uint64 // ns of GPU time of the work launched under this epoch, by the shim's own estimate
	Overrun  uint64 // ns beyond drop or deadline, plus the window, that its work ran
	Launches uint64 // under this epoch
	Rested   uint64 // ns until the first launch under a grant ahead; 0 where there was none
}

// Idle says that the gate is open and nothing has been outstanding for the idle grace.
type Idle struct{ Epoch }

// Alloc asks to charge memory, and is answered by Memory, perhaps after a wait.
type Alloc struct {
	Handle uint64 // the process's own number of this piece of memory, never used again by it
	Bytes  uint64
	GPU    uint32
	Family uint16
	Flags  uint16
}

// Question names memory, or the number that the answer repeats, and a GPU of the allocation.
type Question struct {
	Handle uint64
	GPU    uint32
}

// Free takes memory off the books.
type Free struct{ Question }

// View asks how much memory the allocation has and uses; answered by Memory.
type View struct{ Question }

// ProcessesOf asks which processes of the allocation use a GPU; answered by List.
type ProcessesOf struct{ Question }

// Shared names memory that other processes may import by its key: the IPC handle, or device and inode of the exported
// descriptor and zeros.
type Shared struct {
	Handle uint64
	GPU    uint32
	Key    [KeySize]byte
}

// Export says that others may import this memory.
type Export struct{ Shared }

// Import asks for memory that another process exported; answered by Memory.
type Import struct{ Shared }

// Iteration says that iterations ended since the last such message: unused ephemeral memory goes back.
type Iteration struct{ Count uint64 }

// Pong answers Ping.
type Pong struct{ plain }

func (*Hello) kind() Type { return TypeHello }
func (*Hello) size() int  { return 24 }
func (m *Hello) put(b []byte) {
	order.PutUint64(b[0:], m.Session)
	order.PutUint64(b[8:], m.Epoch)
	order.PutUint32(b[16:], m.GPUs)
	order.PutUint32(b[20:], m.Flags)
}

func (m *Hello) get(b []byte) error {
	*m = Hello{order.Uint64(b[0:]), order.Uint64(b[8:]), order.Uint32(b[16:]), order.Uint32(b[20:])}
	return nil
}

func (*Use) kind() Type     { return TypeUse }
func (*Use) size() int      { return 8 }
func (m *Use) put(b []byte) { order.PutUint32(b[0:], m.GPUs) }
func (m *Use) get(b []byte) error {
	m.GPUs = order.Uint32(b[0:])
	return zero(b[4:])
}

func (*Request) kind() Type { return TypeRequest }

func (*Pong) kind() Type { return TypePong }

func (*Released) kind() Type { return TypeReleased }
func (*Released) size() int  { return 40 }
func (m *Released) put(b []byte) {
	order.PutUint64(b[0:], m.Epoch)
	order.PutUint64(b[8:], m.Used)
	order.PutUint64(b[16:], m.Overrun)
	order.PutUint64(b[24:], m.Launches)
	order.PutUint64(b[32:], m.Rested)
}

func (m *Released) get(b []byte) error {
	*m = Released{order.Uint64(b[0:]), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[24:]), order.Uint64(b[32:])}
	return nil
}

func (*Idle) kind() Type { return TypeIdle }

func (*Alloc) kind() Type { return TypeAlloc }
func (*Alloc) size() int  { return 24 }
func (m *Alloc) put(b []byte) {
	order.PutUint64(b[0:], m.Handle)
	order.PutUint64(b[8:], m.Bytes)
	order.PutUint32(b[16:], m.GPU)
	order.PutUint16(b[20:], m.Family)
	order.PutUint16(b[22:], m.Flags)
}

func (m *Alloc) get(b []byte) error {
	*m = Alloc{order.Uint64(b[0:]), order.Uint64(b[8:]), order.Uint32(b[16:]), order.Uint16(b[20:]), order.Uint16(b[22:])}
	return nil
}

func (m *Question) size() int { return 16 }
func (m *Question) put(b []byte) {
	order.PutUint64(b[0:], m.Handle)
	order.PutUint32(b[8:], m.GPU)
}

func (m *Question) get(b []byte) error {
	*m = Question{order.Uint64(b[0:]), order.Uint32(b[8:])}
	return zero(b[12:])
}

func (*Free) kind() Type { return TypeFree }

func (*View) kind() Type { return TypeView }

func (*ProcessesOf) kind() Type { return TypeProcessesOf }

func (m *Shared) size() int { return 16 + KeySize }
func (m *Shared) put(b []byte) {
	order.PutUint64(b[0:], m.Handle)
	order.PutUint32(b[8:], m.GPU)
	copy(b[16:], m.Key[:])
}

func (m *Shared) get(b []byte) error {
	m.Handle, m.GPU = order.Uint64(b[0:]), order.Uint32(b[8:])
	copy(m.Key[:], b[16:])
	return zero(b[12:16])
}

func (*Export) kind() Type { return TypeExport }

func (*Import) kind() Type { return TypeImport }

func (*Iteration) kind() Type           { return TypeIteration }
func (*Iteration) size() int            { return 8 }
func (m *Iteration) put(b []byte)       { order.PutUint64(b, m.Count) }
func (m *Iteration) get(b []byte) error { m.Count = order.Uint64(b); return nil }
