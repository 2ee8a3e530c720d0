package plan

import "fmt"

// Code names a constraint that refused a worker a GPU, or keeps a job waiting. There is one list for every command,
// event and metric.
type Code string

// The codes of a placement. C1..C5 are the constraints of docs/placement.md.
const (
	MemoryReserved Code = "MemoryReserved" // C1: the persistent parts together exceed the GPU
	MemoryOverflow Code = "MemoryOverflow" // C2: too likely to exceed the GPU at some instant
	FloorSelf      Code = "FloorSelf"      // C3: the worker itself would fall below its floor
	FloorResident  Code = "FloorResident"  // C3: a resident would fall below its floor
	MaxResidents   Code = "MaxResidents"   // C4: the GPU has as many residents as allowed
	SameJob        Code = "SameJob"        // C5: another worker of the same job is there
	ClassConflict  Code = "ClassConflict"  // the classes may not share
	Rule           Code = "Rule"           // the sharing rule that stands in for C3 keeps them apart
	Gang           Code = "Gang"           // not all workers of the job fit at once
	TooLarge       Code = "TooLarge"       // never fits: more memory, or more GPUs, than there are
)

// Reason is one refusal with its numbers: Got is what would be, Limit what is allowed, in the unit of the code
// (bytes for MemoryReserved, a probability for MemoryOverflow, a rate for the floors, a count otherwise). The zero
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
	case FloorSelf, FloorResident:
		return fmt.Sprintf("%s %.3f < %.3f", r.Code, r.Got, r.Limit)
	case MemoryOverflow:
		return fmt.Sprintf("%s %.3f > %.3f", r.Code, r.Got, r.Limit)
	case ClassConflict, SameJob, Rule:
		return string(r.Code)
	}
	return fmt.Sprintf("%s %.0f > %.0f", r.Code, r.Got, r.Limit)
}
