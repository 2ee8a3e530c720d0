// Package dispatch decides for one shared machine: which waiting jobs start now and where, in what order the others wait and
// why, who moves away when a job is below its floor, and which GPUs can be emptied. docs/queue.md states the rules.
//
// Everything here is pure: the time comes in State.Now, nothing is kept between calls, and no answer depends on the order
// of State.Jobs.
package dispatch

import (
	"math"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Job is what decides about a job. It runs where On names GPUs, and waits else.
type Job struct {
	ID        box.ID
	User      string
	Priority  int // 0 to 100; more than 110 is above all others, whatever their age
	Submitted time.Time
	Class     cluster.Class
	Floor     float64 // least share of its speed alone, in (0, 1]
	GPUs      int     // its gang: at least 1
	Together  int     // so many workers in a row are on GPUs of one node; it divides GPUs. 0 and 1: each is anywhere
	Nodes     *Nodes  // that it may be on; nil for all

	// Config is the name of the job in State.Table. A job that is not in the table shares with nobody.
	Config     interference.Config
	Memory     profile.Profile // of each worker
	Cooperates bool            // it hands ephemeral memory over; otherwise it is counted at its peak

	Waits   plan.Code     // what it waits for other than a GPU, as Dependency; "" for nothing
	MaxTime time.Duration // that it may run, all attempts together; 0 for no limit
	Ran     time.Duration // of it so far

	On         []int         // GPUs that it has, in the order of its workers
	Started    time.Time     // when it got them
	Stopping   bool          // it was asked to end
	Migratable bool          // it can be stopped and go on elsewhere
	NoMove     bool          // not now: it moved a short while ago, or it once lost a checkpoint
	Pause      time.Duration // that a move costs it
	Rate       float64       // mean rate observed since it began, as a share of its speed alone; 0 for unknown
}

// Nodes are the nodes that a job may be on. Jobs of one Pod template share one, which makes planning them cheap; it is not
// changed once it is part of a State.
type Nodes struct {
	May []bool // by GPU.Node; false for those beyond
}

// GPU is what decides about a GPU besides its residents.
type GPU struct {
	Node        int // index of its machine: 0 for all where there is one
	Usable      unit.Bytes
	Foreign     unit.Bytes // of it, held by programs of no job
	ForeignRuns bool       // such a program computes: only besteffort jobs go there
	Closed      plan.Code  // GPUUnhealthy, Drained or Native: nobody goes there; "" for open
}

// User is what a user may have and has had.
type User struct {
	Weight     float64 // of the user's share; 0 counts as 1
	Used       float64 // GPU time in seconds, older use counting less: see Decay
	MaxGPUs    int     // that the user's jobs may have together; 0 for no limit
	MaxRunning int     // jobs that may run; 0 for no limit
}

// Ban keeps two configurations apart for a time.
type Ban struct {
	A, B  interference.Config
	Until time.Time
}

// Options are the rules that an administrator may set.
type Options struct {
	MaxResidents int           // of a GPU: C4; 0 for 4
	Epsilon      float64       // C2: accepted probability of exceeding a GPU's memory at a random instant; 0 packs by peak
	Grace        time.Duration // from the request to end to the end, at most; 0 for 30 s
	Spread       bool          // an idle GPU goes before one that would be shared
	Strict       bool          // a job passes another only where it cannot be in its way, be it as old or short as it may
}

// State is all that a decision is made of.
type State struct {
	Now     time.Time
	Jobs    []Job // that run and that wait
	GPUs    []GPU
	Users   map[string]User
	Table   *interference.Table // of rates that are safe to rely on
	Bans    []Ban
	Options Options
}

// Start is a job that starts now, with the GPUs of its workers in order.
type Start struct {
	Job  box.ID
	GPUs []int
}

// Wait is why a job does not start.
type Wait struct {
	Job      box.ID
	Reason   plan.Reason
	GPU      int    // the nearest one, or -1
	Resident box.ID // whom the reason concerns there: whose floor it is, or who is banned beside it; 0 for nobody
	After    box.ID // the job that it could be in the way of; 0 for none

	// Refused is how many GPUs refuse it for which reason; nil where that is not what it waits for. Waits share one: it is not changed.
	Refused map[plan.Code]int
}

// Decision is who starts and who waits.
type Decision struct {
	Starts []Start
	Waits  []Wait   // in the order of Order
	Order  []box.ID // of the jobs that go on waiting, the first in line first

	// Promised is when the first in line starts at the latest, where that is known: every job that it waits for has a limit of
	// time, and nobody comes before it.
	Promised map[box.ID]time.Time
}

// Figures of the queue.
const (
	defaultResidents = 4
	defaultGrace     = 30 * time.Second // between SIGTERM and SIGKILL
	ageStep          = 10 * time.Minute // of waiting, for one step of priority
	maxAge           = 10               // steps: a tenth of the scale, so that age never turns high into low
	halfLife         = 4 * time.Hour    // of a user's GPU time: this morning's use counts half this afternoon
)

// memory is the mean age of GPU time that decays by halfLife: a user who always had g GPUs has used g times that.
const memory = float64(halfLife) / float64(time.Second) / math.Ln2

// Decay is what is left of GPU time that a user has had, after a time in which it had none.
func Decay(used float64, after time.Duration) float64 {
	return used * math.Exp2(-float64(max(0, after))/float64(halfLife))
}

// Grow is what a user has used after a time with a steady number of GPUs: a worker counts as one GPU, shared or not.
func Grow(used float64, gpus int, after time.Duration) float64 {
	steady := float64(gpus) * memory
	return steady + Decay(used-steady, after)
}

// age is the steps of priority that a job has gained by waiting.
func age(j *Job, now time.Time) int {
	return min(maxAge, max(0, int(now.Sub(j.Submitted)/ageStep)))
}
