package agent

import (
	"log/slog"
	"time"
)

// Event is something that an operator may want to know afterwards.
type Event struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	Job  string    `json:"job,omitempty"` // its name
	ID   uint64    `json:"id,omitempty"`  // of its allocation
	GPU  *int      `json:"gpu,omitempty"`
	PID  int       `json:"pid,omitempty"`
	Text string    `json:"text"`
}

// Types of events.
const (
	EventAllocated  = "allocated"
	EventReleased   = "released"
	EventOverrun    = "overrun"     // a holder did not release in time
	EventRefused    = "refused"     // a connection broke the protocol
	EventUnread     = "unread"      // a process did not read what it was told
	EventEscaped    = "escaped"     // a process of a job uses a GPU without weft's library
	EventForeign    = "foreign"     // a process of nobody uses a GPU
	EventUnhealthy  = "unhealthy"   // the driver reported a critical error
	EventRecovered  = "recovered"   // it computes, or answers, again
	EventOverLimit  = "over_limit"  // more memory is in use than the job may have
	EventOverdue    = "overdue"     // others wait for memory that a job holds for long
	EventStuck      = "stuck"       // jobs that wait for each other's memory
	EventRestored   = "restored"    // the agent came back
	EventState      = "state"       // trouble with the agent's own state
	EventCooperates = "cooperates"  // a job hands memory over at its iterations from now on
	EventKept       = "kept_memory" // a job keeps more than its reserved part across an iteration
)

// events are the last ones, oldest first from next on.
type events struct {
	ring [1024]Event
	next int
	log  chan<- Event // to where they are written; one that has no place is not
}

func (e *events) add(ev Event) {
	e.ring[e.next%len(e.ring)] = ev
	e.next++
	select {
	case e.log <- ev:
	default:
	}
}

// list is the events after the first so many, and how many there were in all.
func (e *events) list(after int) ([]Event, int) {
	var list []Event
	for i := max(after, e.next-len(e.ring), 0); i < e.next; i++ {
		list = append(list, e.ring[i%len(e.ring)])
	}
	return list, e.next
}

// write logs events until there are no more: a log that blocks holds up nobody.
func write(log *slog.Logger, events <-chan Event) {
	for e := range events {
		args := []any{"type", e.Type}
		if e.ID != 0 {
			args = append(args, "job", e.Job, "id", e.ID)
		}
		if e.GPU != nil {
			args = append(args, "gpu", *e.GPU)
		}
		if e.PID != 0 {
			args = append(args, "pid", e.PID)
		}
		switch e.Type {
		case EventUnhealthy, EventState:
			log.Error(e.Text, args...)
		case EventAllocated, EventReleased, EventRestored, EventCooperates, EventRecovered:
			log.Info(e.Text, args...)
		default:
			log.Warn(e.Text, args...)
		}
	}
}
