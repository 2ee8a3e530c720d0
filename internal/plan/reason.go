package plan

import "fmt"

// Code names a constraint that refused a worker a GPU, or keeps a job waiting. There is one list for every command,
// event and metric.
type Code string

// The codes of a placement. C1..C5 are the constraints of docs/placement.md. Behind each, in brackets, what Reason.Got and
// Reason.Limit are.
const (
	MemoryReserved Code = "MemoryReserved" // C1: the persistent parts together exceed the GPU [bytes]
	MemoryOverflow Code = "MemoryOverflow" // C2: too likely to exceed the GPU at some instant [probability]
	FloorSelf      Code = "FloorSelf"      // C3: the worker itself would fall below its floor [rate]
	FloorResident  Code = "FloorResident"  // C3: a resident would fall below its floor [rate]
	MaxResidents   Code = "MaxResidents"   // C4: the GPU has as many residents as allowed [count]
	SameJob        Code = "SameJob"        // C5: another worker of the same job is there
	ClassConflict  Code = "ClassConflict"  // the classes may not share
	Rule           Code = "Rule"           // the sharing rule that stands in for C3 keeps them apart
	PairBanned     Code = "PairBanned"     // the two were seen to break a floor, and are kept apart for a while
	Gang           Code = "Gang"           // not all workers of the job fit at once [workers, of which found a GPU]
	TooLarge       Code = "TooLarge"       // never fits: more memory [bytes], or more GPUs [count], than there are
	ProfileUnknown Code = "ProfileUnknown" // nothing is known of one of the two: it shares with nobody

	GPUUnhealthy Code = "GPUUnhealthy" // the GPU has a fault
	Drained      Code = "Drained"      // the GPU takes no jobs: an administrator closed it
	Foreign      Code = "Foreign"      // programs of no job hold its memory [bytes], or compute there [0]
	Native       Code = "Native"       // the GPU is held whole by a Pod that did not opt in
	NodeMismatch Code = "NodeMismatch" // the job's own node selector, affinity or tolerations exclude the node
)

// The codes of a job that waits for something else than a GPU.
const (
	Planning         Code = "Planning"         // it has not been looked at yet
	Priority         Code = "Priority"         // a GPU would take it, and then a job that comes first might wait longer [priority with age, and that job's]
	Quota            Code = "Quota"            // its user has as many GPUs or jobs as allowed [count]
	Dependency       Code = "Dependency"       // a job that it comes after is not done
	Budget           Code = "Budget"           // the moves allowed for now are spent [count]
	FloorUnreachable Code = "FloorUnreachable" // never fits: even alone it does not reach its floor [rate]
)

// Reason is one refusal with its numbers: Got is what would be, Limit what is allowed, in the unit of the code. The zero
// Reason means "not refused".
type Reason struct {
	Code  Code
	Got   float64
	Limit float64
}

// Refused says whether anything refused.
func (r Reason) Refused() bool { return r.Code != "" }

// String is the code with its numbers: "FloorResident 0.82 < 0.90".
func (r Reason) String() string {
	switch r.Code {
	case "":
		return "fits"
	case FloorSelf, FloorResident, FloorUnreachable:
		return fmt.Sprintf("%s %.3f < %.3f", r.Code, r.Got, r.Limit)
	case MemoryOverflow:
		return fmt.Sprintf("%s %.3f > %.3f", r.Code, r.Got, r.Limit)
	case ClassConflict, SameJob, Rule, PairBanned, ProfileUnknown, Native, NodeMismatch, Planning, Dependency:
		return string(r.Code)
	case GPUUnhealthy, Drained, Foreign:
		if r.Got == 0 && r.Limit == 0 {
			return string(r.Code)
		}
	}
	return fmt.Sprintf("%s %.0f > %.0f", r.Code, r.Got, r.Limit)
}
