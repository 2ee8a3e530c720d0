package ledger

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// Outcome is what became of a call or a wait.
type Outcome uint8

// The outcomes. Only Granted and Kept changed the books, and Waits the queue.
const (
	Granted      Outcome = iota
	Waits                // a decision follows
	OutOfMemory          // beyond the account's own limit
	Short                // the account has too little room now: reserve first
	Kept                 // yielded, and more than the reserved part is still in use
	OverReserved         // the reserved parts exceed the GPU (C1)
	OverPeak             // an account could never reach its peak beside the reserved parts (C1')
	Unknown              // no such account or handle
	Duplicate            // account, handle or request exists
	Invalid              // nothing, or less than nothing, was asked for
)

// The codes of the driver, from cuda.h.
const (
	cudaSuccess           = 0
	cudaErrorInvalidValue = 1
	cudaErrorOutOfMemory  = 2
)

// Code is the driver's code for an outcome of Alloc, Import, Free or Reserve once it does not wait: an application sees 2 at
// its limit, as on a GPU of that size, and a pointer unknown to the driver is an invalid value to it.
func (o Outcome) Code() int {
	switch o {
	case Granted, Kept, Waits:
		return cudaSuccess
	case OutOfMemory, OverReserved, OverPeak, Short:
		return cudaErrorOutOfMemory
	}
	return cudaErrorInvalidValue
}

var outcomeNames = [...]string{"granted", "waits", "out of memory", "short of room", "kept", "reserved memory exceeds the GPU",
	"peak exceeds the pool", "unknown", "duplicate", "invalid"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "no outcome"
}

// Answer is what became of a call, with its numbers where they say something: what was needed and the limit it met.
type Answer struct {
	Outcome     Outcome
	Need, Limit unit.Bytes
}

// Process names a process of an account, not necessarily by the number that the system gave it.
type Process uint64

// Request names a wait of a process. Request{} is the account's own wait to be opened.
type Request struct {
	Process Process
	Number  uint64
}

// Decision ends a wait: Granted, or OutOfMemory where the account had come too near its limit meanwhile.
type Decision struct {
	Account AccountID
	Request Request
	Outcome Outcome
	Bytes   unit.Bytes    // taken from the pool
	Stalled time.Duration // since it was asked
}
