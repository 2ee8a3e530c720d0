// Package policy holds the rules of who runs next and where: queue orders and placements, one file each, weft's own
// and those of the literature. Every rule is deterministic; randomness and time are handed in.
package policy

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// Slot is one GPU of a cluster: the node's index in the cluster and the GPU's index on the node.
type Slot struct {
	Node, GPU int32
}

// Placer chooses GPUs for jobs on the one cluster it was made for, and keeps the books of what is taken. Jobs are
// named by their index in the list that the Placer was made with.
type Placer interface {
	// Place takes GPUs for all workers of a job, one Slot per worker, or takes nothing and reports false.
	Place(job int) ([]Slot, bool)
	// Release gives back what Place took for the job.
	Release(job int, slots []Slot)
}

// Rater is a Placer whose jobs slow each other down.
type Rater interface {
	Placer
	// Rates yields every running job whose rate changed since the last call, in job order, with its new rate: the
	// share of its standalone speed, in (0, 1]. A job runs at rate 1 from each Place or Retake until told otherwise, so
	// it is asked at the same instant.
	Rates(yield func(job int, rate float64))
}

// Adjuster is a Rater that moves running jobs of its own accord.
type Adjuster interface {
	Rater
	// Adjust is called at every instant at which something happens, before waiting jobs are placed, and at the time that
	// it last returned: when it wants to be called at the latest, unit.Never for no such time. It tells every job that it
	// moved, with its new slots and how long the move keeps it from progress.
	Adjust(now unit.Time, moved func(job int, slots []Slot, pause time.Duration)) (due unit.Time)
}
