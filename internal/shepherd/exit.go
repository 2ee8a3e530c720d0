package shepherd

import (
	"time"
)

// Causes of an end other than the program's own.
const (
	Stopped  = "stopped"  // it was asked to stop for good
	Moved    = "moved"    // it was asked to stop, to go on elsewhere
	TimedOut = "max-time" // its time was over
	Lost     = "lost"     // its shepherd was killed
)

// Exit is how an attempt ended. When it was asked to, and a shell that ran the program was ended after it, the status is that
// of the program.
type Exit struct {
	Status  int       `json:"status"`  // as shells have it: 128 and the signal; 126 not executable, 127 not found; -1 when lost
	Signal  int       `json:"signal"`  // that ended the program, or 0
	Cause   string    `json:"cause"`   // what made it end; empty when it was the program itself
	Fault   string    `json:"fault"`   // why it could not begin, or what of it could not be ended
	Forced  bool      `json:"forced"`  // it did not end in its grace
	Started time.Time `json:"started"` // zero when it never began
	Ended   time.Time `json:"ended"`   // of all of its processes
	Dropped int64     `json:"dropped"` // bytes of the log that are gone
}

// began is the process of a program.
type began struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // in ticks since the machine started
	Started time.Time `json:"started"`
}

// record leaves an exit for good.
func (e *Exit) record(dir string, attempt int) error {
	return writeJSON(exitPath(dir, attempt), e, true)
}
