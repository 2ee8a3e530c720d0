package emugpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// What the broker shares with the emulated driver: shim/emu/emu_wire.h explains each, and TestWireHeader holds the two
// together offset by offset.
const (
	wireProtocol = 1
	wireMagic    = 0x554d4577
	maxGPUs      = 16
	maxStreams   = 256
	ringEntries  = 1024
	maxEvents    = 32768
	maxThreads   = 1024
	auditSlots   = 4096
	auditProbes  = 64
	auditHash    = 2654435761
	auditGone    = 1<<32 - 1

	epochOverrun   = 1 << 63
	epochUnmanaged = 1<<64 - 1
)

// Layout of the clock page.
const (
	clockMode     = 8
	clockGPUs     = 12
	clockBase     = 16
	clockNum      = 24
	clockDen      = 32
	clockNow      = 64
	clockSleeping = 128
	clockSize     = 192
)

// Layout of a ring, and of its entries.
const (
	ringHead     = 0
	ringDone     = 64
	ringWant     = 128
	ringHostDone = 192
	ringFirst    = 4096
	ringSize     = ringFirst + ringEntries*entrySize

	entrySubmit   = 0
	entryCost     = 8
	entryEpoch    = 16
	entryFunction = 24
	entryKind     = 28
	entrySize     = 32
)

// Layout of a context's memory.
const (
	contextID     = 4
	contextGPU    = 8
	contextError  = 64
	contextEvents = 4096
	contextRings  = contextEvents + maxEvents*eventSize
	contextSize   = contextRings + maxStreams*ringSize

	eventGeneration = 0
	eventTime       = 8
	eventSize       = 16
)

// Layout of a process page.
const (
	processPID     = 4
	processThreads = 8
	processSlots   = 64
	processSize    = processSlots + maxThreads*threadSize

	threadState   = 0
	threadContext = 4
	threadRing    = 8
	threadUntil   = 16
	threadSize    = 64
)

// States of a thread slot.
const (
	threadFree = iota
	threadRunning
	threadWaiting
	threadSleeping
)

// Layout of the audit table.
const (
	auditFirst     = 64
	auditSlotPID   = 0
	auditSlotEpoch = 64
	auditSlotSize  = 64 + 8*maxGPUs
	auditSize      = auditFirst + auditSlots*auditSlotSize
)

// op is what a request asks for.
type op uint32

// The requests.
const (
	opHello op = iota + 1
	opDeviceGet
	opContextCreate
	opContextDestroy
	opStreamCreate
	opStreamDestroy
	opMemAlloc
	opMemFree
	opMemRetain
	opMemResize
	opMemExport
	opMemImport
	opMemInfo
	opProcesses
	opUtilisation
	opEventNext
	opAuditOpen
	opFault
	opStats
	ops
)

const (
	roleDriver = iota
	roleObserver
)

const (
	memoryHost  = 6
	memoryKinds = 7
)

// status of a reply: 0, a CUresult, or one of the broker's own.
type status uint32

// The statuses.
const (
	statusOK          status = 0
	statusInvalid     status = 1
	statusOOM         status = 2
	statusUnavailable status = 46
	statusNoDevice    status = 101
	statusNoContext   status = 201
	statusECC         status = 214
	statusNoHandle    status = 400
	statusIllegal     status = 700
	statusLaunch      status = 719
	statusVersion     status = 10001
	statusRequest     status = 10002
	statusRole        status = 10003
)

const (
	textBytes    = 64
	payloadBytes = 448
	requestSize  = 104
	replySize    = 496
)

// request is one question over the control socket.
type request struct {
	Magic, Op uint32
	GPU       int32
	Context   uint32
	A, B, C   uint64
	Text      [textBytes]byte
}

// reply is its answer.
type reply struct {
	Status, Op      uint32
	Count, Reserved uint32
	A, B, C, D      uint64
	Payload         [payloadBytes]byte
}

// device describes a GPU in the payload of a reply.
type device struct {
	Name                                         [96]byte
	BusID                                        [32]byte
	UUID                                         [16]byte
	Major, Minor, Processors                     uint32
	Health, LastXID, Reserved                    uint32
	Total, Usable, Context, CopyRate, MemoryRate uint64
}

// usage is one process on a GPU in the payload of a reply.
type usage struct {
	PID, Contexts        uint32
	Bytes, Busy, Kernels uint64
}

const usageSize = 32

// parseRequest reads a packet.
func parseRequest(packet []byte) (request, error) {
	var q request
	if len(packet) != requestSize {
		return q, fmt.Errorf("a request has %d bytes, this one %d", requestSize, len(packet))
	}
	if _, err := binary.Decode(packet, binary.LittleEndian, &q); err != nil {
		return q, err
	}
	if q.Magic != wireMagic {
		return q, fmt.Errorf("no request to emulated GPUs: it begins with %#x, not %#x", q.Magic, wireMagic)
	}
	return q, nil
}

// put writes a value into the payload.
func (r *reply) put(at int, v any) {
	_, _ = binary.Encode(r.Payload[at:], binary.LittleEndian, v) // sizes are constant: TestWireHeader
}

// refuse makes the reply say why not.
func (r *reply) refuse(s status, format string, args ...any) {
	r.Status = uint32(s)
	copy(r.Payload[:payloadBytes-1], fmt.Sprintf(format, args...))
}

// text is the payload as text.
func (r *reply) text() string { return text(r.Payload[:]) }

// text is what a C string in an array says.
func text(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}
