package box

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// GPU is what is told of a GPU.
type GPU struct {
	Index       int        `json:"gpu"`
	UUID        string     `json:"uuid"`
	Model       string     `json:"model"`
	Health      string     `json:"health"` // ok, drained, draining, unhealthy
	Fault       string     `json:"fault,omitempty"`
	XID         *uint64    `json:"xid"`
	Busy        *float64   `json:"busy_fraction"` // of the last seconds
	Temperature *float64   `json:"temperature_celsius"`
	Usable      unit.Bytes `json:"usable_bytes"`
	Reserved    unit.Bytes `json:"reserved_bytes"`
	InUse       unit.Bytes `json:"in_use_bytes"`
	Residents   []ID       `json:"residents"`
	Token       ID         `json:"token,omitempty"` // job that holds it
	Stall       float64    `json:"stall_s"`         // waits for memory, in the last hour
	Overruns    int        `json:"overruns"`        // in the last hour
	Foreign     []Foreign  `json:"foreign"`
}

// Foreign is a process on a GPU that is of no job.
type Foreign struct {
	PID   int        `json:"pid"`
	User  string     `json:"user"`
	Name  string     `json:"name"`
	Bytes unit.Bytes `json:"bytes"`
}

// Status is the machine in a few words.
type Status struct {
	Schema     int       `json:"schema"`
	Host       string    `json:"host"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	State      string    `json:"state_dir"`
	Page       string    `json:"page,omitempty"` // address of the web page, without its token
	Emulated   bool      `json:"emulated"`
	Since      time.Time `json:"since"`
	GPUs       int       `json:"gpus"`
	InUse      int       `json:"gpus_in_use"`
	Workers    int       `json:"workers"`
	Running    int       `json:"running"`
	Waiting    int       `json:"waiting"`
	BelowFloor int       `json:"below_floor"`
	Degraded   []string  `json:"degraded"` // what is wrong, a line each
}

// EventType names what happened.
type EventType string

// The types of events of the daemon. Those of the agent (overrun, escaped, foreign, unhealthy and others) keep their names.
const (
	EventSubmitted  EventType = "submitted"
	EventPlaced     EventType = "placed"
	EventStarted    EventType = "started"
	EventMoved      EventType = "moved"
	EventEvicted    EventType = "evicted"
	EventResumed    EventType = "resumed"
	EventEnded      EventType = "ended"
	EventBelowFloor EventType = "below_floor"
	EventBanned     EventType = "banned"     // a pair is kept apart
	EventCheckpoint EventType = "checkpoint" // was lost
	EventDrained    EventType = "drained"
	EventAdopted    EventType = "adopted" // a running job, after a restart
	EventClock      EventType = "clock"   // it stepped
	EventTrouble    EventType = "trouble" // of the daemon itself
)

// Event is something that an operator may want to know afterwards.
type Event struct {
	Seq  uint64    `json:"seq"` // rises by 1
	Time time.Time `json:"time"`
	Type EventType `json:"type"`
	Job  ID        `json:"job,omitempty"`
	Name string    `json:"name,omitempty"`
	GPU  *int      `json:"gpu,omitempty"`
	Text string    `json:"text"`
}

// Alarm says whether an event is bad news.
func (e *Event) Alarm() bool {
	switch e.Type {
	case EventBelowFloor, EventCheckpoint, EventTrouble, "unhealthy", "escaped", "overrun", "over_limit", "stuck":
		return true
	}
	return false
}
