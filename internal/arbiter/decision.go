package arbiter

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// SessionID names a process that uses GPUs.
type SessionID uint64

// JobID names the job that a session is part of.
type JobID string

// Class is how far a job may be held back for others; a lower number comes first.
type Class int8

// The classes, as placement knows them.
const (
	Guaranteed Class = iota
	Burstable
	BestEffort
	classes
)

// Session is what a process says of itself when it joins.
type Session struct {
	ID     SessionID
	Job    JobID
	Class  Class
	Weight int    // share within the class, relative to others; 1 to 1000
	GPUs   []int  // that it uses
	Epoch  uint64 // of the token that it holds from before a restart; 0 for none
}

// Kind is what a decision asks for.
type Kind int8

// Decisions.
const (
	Grant   Kind = iota // open the gate
	Narrow              // keep less outstanding from now on: somebody came who may have to wait for it
	Yield               // others wait: release at the next synchronisation that leaves nothing outstanding
	Drop                // close the gate now, drain, release
	Overrun             // the holder did not release in time: its token is taken from it, its kernels may still run
)

// Reason is why a token is dropped.
type Reason int8

// Reasons.
const (
	None     Reason = iota
	Quantum         // another job of the class has its turn
	Priority        // a higher class asks
	Deadline        // the slice was bounded and is over
	Minimum         // the besteffort class is owed its minimum
	Regroup         // the job grew by GPUs that it does not hold
	Stale           // another session holds the GPU under a higher epoch
	Silent          // a session of the job does not answer
)

// Decision is what a session is to be told, or for Overrun what is to be reported.
type Decision struct {
	Kind     Kind
	Session  SessionID
	Epoch    uint64        // of the token: all sessions of a job that are granted at once share it; it only rises
	Deadline unit.Time     // Grant: when the gate closes by itself; unit.Never if it stays open until dropped
	Window   time.Duration // Grant, Narrow: most GPU time outstanding; 0 for no bound
	Ahead    bool          // Grant: the session did not ask; it is expected to return from a gap soon
	Spare    time.Duration // Yield: not in gaps until they have lasted so long: the session's short ones are of no use
	Reason   Reason        // Drop
}

// Release is what a session says of the token that it returns.
type Release struct {
	Epoch    uint64
	Used     time.Duration // GPU time of what it launched
	Overrun  time.Duration // how far beyond the deadline or drop its kernels ran
	Launched bool          // it launched anything
	Rested   time.Duration // granted ahead and launched: until its first launch
}

// Usage is what a job had.
type Usage struct {
	Held     time.Duration // of its tokens, each instant counted once however many GPUs
	Used     time.Duration // of it computing, by the sessions' own account
	Lost     time.Duration // estimated time that lower classes cost it
	Overruns int
}
