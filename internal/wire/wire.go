// Package wire is the protocol between libweft.so and the node agent, as shim/include/weft_wire.h lays it down: one packet
// of a SOCK_SEQPACKET socket is one message, a header and the body of its type. The header of C is the contract; a test
// here compiles it and compares both field by field.
//
// Reading is strict: what Parse takes, Append writes again byte for byte. A packet of the wrong length, magic, version or
// type, or with something where nothing belongs, is refused.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds of the protocol.
const (
	Magic     = 0x54464557 // "WEFT"
	Version   = 1
	Max       = 1024 // bytes of the longest message
	GPUs      = 16   // most GPUs of an allocation
	Processes = 48   // most processes in one list
	KeySize   = 64   // bytes that name exported memory

	headerSize = 16
)

// Type says what a message is.
type Type uint16

// Types of messages. Those below TypeWelcome are the shim's, the others the agent's.
const (
	TypeHello Type = 1 + iota
	TypeUse
	TypeRequest
	TypeReleased
	TypeIdle
	TypeAlloc
	TypeFree
	TypeExport
	TypeImport
	TypeIteration
	TypeView
	TypeProcessesOf
	TypePong
)

// The agent's types.
const (
	TypeWelcome Type = 32 + iota
	TypeRefused
	TypeGrant
	TypeNarrow
	TypeYield
	TypeDrop
	TypeMemory
	TypeList
	TypeWanted
	TypePing
)

// Message is one message without its header. Its methods are the package's own: the set of messages is closed.
type Message interface {
	kind() Type
	size() int          // of the body, bytes
	put(b []byte)       // writes the body into size() zeroed bytes
	get(b []byte) error // reads the body of the right size, but for List, whose size is in it
}

// Faults of a packet.
var (
	ErrVersion   = errors.New("another version of the protocol")
	ErrMalformed = errors.New("malformed message")
)

// Append writes a message with its number to the end of b.
func Append(b []byte, number uint32, m Message) []byte {
	length := headerSize + m.size()
	at := len(b)
	b = append(b, make([]byte, length)...)
	p := b[at:]
	order.PutUint32(p[0:], Magic)
	order.PutUint16(p[4:], Version)
	order.PutUint16(p[6:], uint16(m.kind()))
	order.PutUint32(p[8:], uint32(length))
	order.PutUint32(p[12:], number)
	m.put(p[headerSize:])
	return b
}

// Parse reads one packet. A fault wraps ErrVersion or ErrMalformed.
func Parse(p []byte) (number uint32, m Message, err error) {
	switch {
	case len(p) < headerSize || len(p) > Max:
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(p))
	case order.Uint32(p[0:]) != Magic:
		return 0, nil, fmt.Errorf("%w: magic %#x", ErrMalformed, order.Uint32(p[0:]))
	case order.Uint16(p[4:]) != Version:
		return 0, nil, fmt.Errorf("%w: %d, this is %d", ErrVersion, order.Uint16(p[4:]), Version)
	case uint64(order.Uint32(p[8:])) != uint64(len(p)):
		return 0, nil, fmt.Errorf("%w: %d bytes that say they are %d", ErrMalformed, len(p), order.Uint32(p[8:]))
	}
	t := Type(order.Uint16(p[6:]))
	if m = blank(t); m == nil {
		return 0, nil, fmt.Errorf("%w: type %d", ErrMalformed, t)
	}
	body := p[headerSize:]
	if _, list := m.(*List); !list && len(body) != m.size() {
		return 0, nil, fmt.Errorf("%w: type %d of %d bytes", ErrMalformed, t, len(p))
	}
	if err := m.get(body); err != nil {
		return 0, nil, fmt.Errorf("%w: type %d: %w", ErrMalformed, t, err)
	}
	return order.Uint32(p[12:]), m, nil
}

// plain is the body of a message that has none.
type plain struct{}

func (plain) size() int        { return 0 }
func (plain) put([]byte)       {}
func (plain) get([]byte) error { return nil }

// Epoch is the body of a message about the token of an epoch.
type Epoch struct{ Epoch uint64 }

func (*Epoch) size() int            { return 8 }
func (m *Epoch) put(b []byte)       { order.PutUint64(b, m.Epoch) }
func (m *Epoch) get(b []byte) error { m.Epoch = order.Uint64(b); return zero(b[8:]) }

// order is that of the host: both ends are on one machine.
var order = binary.NativeEndian

// Sequence counts the messages of one direction of a connection. Its zero value is before the first.
type Sequence struct{ last uint32 }

// Next is the number of the next message sent.
func (s *Sequence) Next() uint32 {
	s.last++
	return s.last
}

// Take says whether a received number is the one that comes next, and counts it.
func (s *Sequence) Take(number uint32) bool {
	if number != s.last+1 {
		return false
	}
	s.last = number
	return true
}

var errZero = errors.New("something where nothing belongs")

// zero refuses bytes that are not all zero.
func zero(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return errZero
		}
	}
	return nil
}
