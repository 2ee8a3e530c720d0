// Package plan is what the planner answers: which worker goes to which GPU, on which snapshot that was decided, and
// why a job could not be placed. A Plan is checked again before it is applied.
package plan

import (
	"weft.dev/weft/internal/cluster"
)

// Verb says what an operation does.
type Verb string

// The operations a plan may hold.
const (
	Placed Verb = "Placed"
	Moved  Verb = "Moved"
)

// Operation puts one worker on one GPU. From is the GPU it leaves, or cluster.NoGPU.
type Operation struct {
	Verb   Verb
	Worker cluster.Worker
	From   cluster.GPU
	To     cluster.GPU
}

// Plan is a list of operations that was decided on the snapshot of that revision, in the order to apply them, and
// the jobs that had to wait.
type Plan struct {
	BasedOn    cluster.Revision
	Operations []Operation
	Waiting    []Wait
}

// Wait is a job that was not placed and why.
type Wait struct {
	Job    int // index into the job list
	Reason Reason
}
