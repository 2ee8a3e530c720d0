// Package sim replays recorded jobs on a described cluster in virtual time. It is event driven, deterministic for a
// seed, and runs the same placement code as everything else in weft.
package sim

import "weft.dev/weft/internal/unit"

// Outcome is what became of one job of a replay.
type Outcome struct {
	Job         int // index into the job list
	Start, End  unit.Time
	Standalone  bool    // never shared a GPU
	Slowdown    float64 // run time over standalone run time, at least 1
	Broken      bool    // was slower than its floor for any time
	Preemptions int
	Migrations  int
}

// Span is one stay of one worker on one GPU, for the Gantt strips of a report.
type Span struct {
	Job        int32
	GPU        int32 // index in the cluster, nodes in order
	Start, End unit.Time
}

// Usage is a step of the GPUs-in-use curve: from At on, GPUs have a resident.
type Usage struct {
	At   unit.Time
	GPUs int
}
