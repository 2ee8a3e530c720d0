package local

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

// record is what is kept of a job. What can be observed again is not in it.
type record struct {
	box.Spec
	ID    box.ID `json:"id"`
	First box.ID `json:"array_id,omitempty"` // first job of its array
	Index int    `json:"index,omitempty"`
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
	User  string `json:"user"`

	Key        string     `json:"key"` // what it is alike with: see estimate.Kind
	Persistent unit.Bytes `json:"persistent_bytes"`
	PeakBytes  unit.Bytes `json:"peak_bytes"`
	Shape      string     `json:"shape,omitempty"`

	State     box.State   `json:"state"`
	Outcome   box.Outcome `json:"outcome,omitempty"`
	Attempt   int         `json:"attempt"` // the one that runs or ran last; 0 before the first
	On        []int       `json:"on,omitempty"`
	Alloc     uint64      `json:"alloc,omitempty"` // its allocation at the agent
	StopAsked bool        `json:"stop_asked,omitempty"`
	NoMove    bool        `json:"no_move,omitempty"` // it lost a checkpoint once

	Predicted *box.Prediction `json:"predicted,omitempty"`
	Operation *box.Operation  `json:"operation,omitempty"`
	Moves     int             `json:"moves,omitempty"`

	Submitted time.Time     `json:"submitted_at"`
	Queued    time.Time     `json:"queued_at"` // since when it waits
	Started   *time.Time    `json:"started_at,omitempty"`
	Ended     *time.Time    `json:"ended_at,omitempty"`
	Ran       time.Duration `json:"ran_ns"` // by attempts that have ended
	Exit      *int          `json:"exit,omitempty"`
	Fault     string        `json:"fault,omitempty"`
	Below     time.Duration `json:"below_ns,omitempty"`
	MeanRate  float64       `json:"mean_rate,omitempty"` // observed, over Windows
	Windows   int           `json:"windows,omitempty"`
}

// owns says whether a caller may do as he likes with a job.
func (r *record) owns(c box.Caller) bool { return c.May(r.UID) }

// job is what is told of a record to somebody.
func (r *record) job(c box.Caller) box.Job {
	j := box.Job{
		ID: r.ID, Array: r.First, Name: r.Name, User: r.User, UID: r.UID, State: r.State, Outcome: r.Outcome, Class: r.Class, Priority: r.Priority,
		Floor: r.Floor, GPUs: r.GPUs, On: []int{}, Beside: []box.ID{}, Command: r.Command, Profile: r.Profile, Reserved: r.reserved(), Peak: r.PeakBytes,
		Cooperates: r.Cooperate, Migratable: r.Migratable, Predicted: r.Predicted, Below: r.Below.Seconds(), Windows: r.Windows, Operation: r.Operation,
		Submitted: r.Submitted, Started: r.Started, Ended: r.Ended, Run: r.Ran.Seconds(), Attempt: r.Attempt, Exit: r.Exit, Fault: r.Fault,
		MaxTime: r.MaxTime.Seconds(), After: r.After,
	}
	if r.Array != nil {
		j.Index = &r.Index
	}
	if r.State.Live() || r.State == box.Done {
		j.On = append(j.On, r.On...)
	}
	if r.Windows > 0 {
		j.Rate = &r.MeanRate
	}
	if !r.owns(c) {
		j.Command, j.Fault = shown(r.Command), ""
	}
	return j
}

// shown is what of a command others may see.
func shown(command []string) []string {
	if len(command) == 0 {
		return command
	}
	return []string{filepath.Base(command[0])}
}

// reserved is the memory of each GPU that is always its own: all, unless it hands memory over.
func (r *record) reserved() unit.Bytes {
	if r.Cooperate {
		return r.Persistent
	}
	return r.PeakBytes
}

// dir is the folder of a job.
func (b *Box) dir(id box.ID) string {
	return filepath.Join(b.o.State, "jobs", strconv.FormatUint(uint64(id), 10))
}

// copyName is a job's record in its own folder: what is left to go by where the database is lost.
const copyName = "job.json"

// copyRecord writes it. That it is not synced is meant: it is the second copy.
func (b *Box) copyRecord(r *record) error {
	dir := b.dir(r.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary := filepath.Join(dir, copyName+".new")
	if err := os.WriteFile(temporary, mustJSON(r), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, copyName))
}
