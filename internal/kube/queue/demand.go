package queue

import (
	"slices"
	"time"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Bounds of the demand.
const (
	mostDemand   = 256              // GPUs: a plan for more would cost as much as that of the queue
	demandsAfter = 10 * time.Second // that a job waits: most are placed before
)

// patient are what a job waits for that more GPUs are not the answer to: its turn, its user, or somebody who is slowed too much beside it.
var patient = []plan.Code{plan.FloorSelf, plan.FloorResident, plan.PairBanned, plan.Priority, plan.Quota, plan.Planning, plan.Dependency, plan.FloorUnreachable,
	Invalid}

// Demand is how many empty GPUs the jobs would take, shared as they may, that wait because there is no room: 256 at most. The GPUs are like
// the largest of the cluster, on nodes like its largest; where it has none, each worker counts as one.
func (q *Queue) Demand(d *dispatch.Decision) int {
	s := dispatch.State{Now: q.State.Now, Table: q.State.Table, Bans: q.State.Bans, Options: q.State.Options}
	workers := 0
	for _, w := range d.Waits {
		j := q.State.Jobs[int(w.Job)-1]
		if workers >= mostDemand || q.Jobs[w.Job].waits != "" || !demands(w) || q.State.Now.Sub(j.Submitted) < demandsAfter {
			continue
		}
		j.Nodes = nil // of nodes that are not there yet nothing is known
		s.Jobs = append(s.Jobs, j)
		workers += j.GPUs
	}
	usable, size := q.largest()
	if workers == 0 || size == 0 {
		return min(workers, mostDemand)
	}
	for i := range min(workers, mostDemand) {
		s.GPUs = append(s.GPUs, dispatch.GPU{Node: i / size, Usable: usable})
	}
	taken := map[int]bool{}
	for _, start := range dispatch.Plan(&s).Starts {
		for _, g := range start.GPUs {
			taken[g] = true
		}
	}
	return len(taken)
}

// demands says whether what a job waits for is room.
func demands(w dispatch.Wait) bool {
	if w.Reason.Code == plan.TooLarge {
		return w.Reason.Got < float64(claim.Step) // more GPUs than there are, and not more memory than one has
	}
	return !slices.Contains(patient, w.Reason.Code)
}

// largest is the most memory of a GPU, and the most GPUs of a node.
func (q *Queue) largest() (usable unit.Bytes, size int) {
	of := map[int]int{}
	for i := range q.State.GPUs {
		g := &q.State.GPUs[i]
		of[g.Node]++
		usable, size = max(usable, g.Usable), max(size, of[g.Node])
	}
	return usable, size
}
