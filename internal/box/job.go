// Package box is the vocabulary of one shared machine: jobs as users submit them, what becomes of them, the GPUs they are
// on, and what is told of all that. The daemon, the command line and the page exchange these types as JSON; keys are only
// ever added. The package decides nothing and reads nothing.
package box

import (
	"strconv"
	"time"

	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// ID numbers the jobs of a machine from 1, in order of their submission. It is never used twice.
type ID uint64

// String is the number.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// State is where a job is on its way.
type State string

// The states. A job that was moved waits again until it is resumed.
const (
	Waiting  State = "waiting"
	Starting State = "starting" // its GPUs are taken; its program has not begun
	Running  State = "running"
	Stopping State = "stopping" // its program was asked to end
	Done     State = "done"     // Outcome says how
)

// Live says whether a job has GPUs.
func (s State) Live() bool { return s == Starting || s == Running || s == Stopping }

// Outcome is how a job that is done ended.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "succeeded" // exit status 0
	Failed    Outcome = "failed"    // another one, or a signal
	Stopped   Outcome = "stopped"   // by weft stop or Ctrl-C
	TimedOut  Outcome = "timed out" // --max-time was over
	Cancelled Outcome = "cancelled" // it never began: stopped while it waited, or what it came after failed
	Lost      Outcome = "lost"      // what watched over it was killed, or the machine went down
)

// Spec is a job as its user submits it. Path, Dir and Env are those of the submitting program: who submits resolves the
// command, since it sees what its user sees.
type Spec struct {
	Name       string        `json:"name"` // that of the program when empty
	Command    []string      `json:"command"`
	Path       string        `json:"path"` // of the program, absolute
	Dir        string        `json:"dir"`
	Env        []string      `json:"env,omitempty"`
	Class      Class         `json:"class"`
	Floor      float64       `json:"floor"` // least share of its speed alone, in (0, 1]
	Priority   int           `json:"priority"`
	GPUs       int           `json:"gpus"`                     // its gang: one worker on each
	Memory     unit.Bytes    `json:"memory_bytes,omitempty"`   // of each GPU; 0 takes the profile's, or a quarter of the GPU
	Reserved   unit.Bytes    `json:"reserved_bytes,omitempty"` // of it, what is always its own where it hands memory over; 0 takes the profile's, or all
	Profile    string        `json:"profile,omitempty"`        // "model:batch" of the catalogue, or a name that this machine learned
	Cooperate  bool          `json:"cooperate,omitempty"`      // it hands unused memory over at its iterations
	Migratable bool          `json:"migratable,omitempty"`     // SIGTERM makes it write a checkpoint, from which the same command goes on
	After      []ID          `json:"after,omitempty"`          // jobs that must succeed first
	MaxTime    time.Duration `json:"max_time_ns,omitempty"`    // of running, all attempts together; 0 for none
	Array      *Array        `json:"array,omitempty"`          // one job for each index
	Stdin      bool          `json:"stdin,omitempty"`          // an input is handed in after it is submitted
}

// Array is the indexes of a sweep, both included. Each job finds its own in WEFT_ARRAY_INDEX.
type Array struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Len is the number of jobs.
func (a Array) Len() int { return a.Last - a.First + 1 }

// Reason is why a job waits, or what happened to it last.
type Reason struct {
	Code  plan.Code `json:"code"`
	Text  string    `json:"text"`          // with its numbers, for people: "MemoryOverflow gpu1"
	GPU   *int      `json:"gpu,omitempty"` // the nearest one
	Got   float64   `json:"got"`
	Limit float64   `json:"limit"`
	After ID        `json:"after,omitempty"` // the job it waits for
}

// Job is what is told of a job. What belongs to its user alone (Command beyond its first word, Dir, Env) is left out for
// others.
type Job struct {
	ID       ID       `json:"id"`
	Array    ID       `json:"array,omitempty"` // first job of its array
	Index    *int     `json:"index,omitempty"` // in its array
	Name     string   `json:"name"`
	User     string   `json:"user"`
	UID      int      `json:"uid"`
	State    State    `json:"state"`
	Outcome  Outcome  `json:"outcome,omitempty"`
	Class    Class    `json:"class"`
	Priority int      `json:"priority"`
	Floor    float64  `json:"floor"`
	GPUs     int      `json:"gpus"` // how many it asks for
	On       []int    `json:"on"`   // GPUs that it is on, in the order it sees them
	Beside   []ID     `json:"beside"`
	Command  []string `json:"command"`
	Profile  string   `json:"profile,omitempty"`

	Reserved   unit.Bytes `json:"reserved_bytes"` // of each GPU, always its own
	Peak       unit.Bytes `json:"peak_bytes"`     // of each GPU, at most
	Cooperates bool       `json:"cooperates"`
	Migratable bool       `json:"migratable"`

	Rate      *float64    `json:"rate_fraction"` // observed, of its speed alone
	Predicted *Prediction `json:"predicted"`
	Below     float64     `json:"below_floor_s"` // time that it was observed below its floor
	Windows   int         `json:"windows"`       // observations so far
	Busy      *float64    `json:"busy_fraction"` // share of the time alone with work on the GPU, as far as is known
	TokenWait *float64    `json:"token_wait_ms"` // p99 of its waits for the token, of the last minute or so

	Reason    *Reason    `json:"reason"`    // of waiting
	Operation *Operation `json:"operation"` // the last one

	Submitted time.Time  `json:"submitted_at"`
	Started   *time.Time `json:"started_at"` // of its first attempt
	Ended     *time.Time `json:"ended_at"`
	Run       float64    `json:"run_s"`   // time that it ran so far
	Attempt   int        `json:"attempt"` // 1 for the first
	PID       int        `json:"pid,omitempty"`
	Exit      *int       `json:"exit"` // as a shell says it: 128 + n for a signal
	Fault     string     `json:"fault,omitempty"`
	MaxTime   float64    `json:"max_time_s,omitempty"`
	After     []ID       `json:"after,omitempty"`
}

// Prediction is a rate as it was predicted when the job, or the last beside it, came or left, as a share of its speed alone.
type Prediction struct {
	Rate  float64 `json:"rate_fraction"`
	Low   float64 `json:"low_fraction"`
	High  float64 `json:"high_fraction"`
	Basis string  `json:"basis"` // what it rests on
}

// Verb names an operation on a job or a GPU.
type Verb string

// The operations.
const (
	Placed  Verb = "Placed"
	Moved   Verb = "Moved"
	Evicted Verb = "Evicted"
	Drained Verb = "Drained"
	Resumed Verb = "Resumed"
)

// Operation is what was done to a job last, and why.
type Operation struct {
	Verb Verb      `json:"verb"`
	Time time.Time `json:"time"`
	From []int     `json:"from,omitempty"`
	To   []int     `json:"to,omitempty"`
	Text string    `json:"text"`
}
