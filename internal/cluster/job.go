package cluster

import (
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

// Class says how far a job may be slowed for others. The zero value is Burstable.
type Class uint8

// The classes, after the GPU-sharing paper: a Guaranteed job shares only with BestEffort ones.
const (
	Burstable Class = iota
	Guaranteed
	BestEffort
)

// ParseClass reads "guaranteed", "burstable" or "besteffort"; the empty text is Burstable.
func ParseClass(s string) (Class, bool) {
	switch s {
	case "", "burstable":
		return Burstable, true
	case "guaranteed":
		return Guaranteed, true
	case "besteffort":
		return BestEffort, true
	}
	return Burstable, false
}

// String is the class as users write it.
func (c Class) String() string { return [...]string{"burstable", "guaranteed", "besteffort"}[c] }

// Job is a gang of Workers that start together, each on a GPU of its own. It is what a user submitted, before
// anything is decided about it.
type Job struct {
	ID   string
	Name string // what the user called it; "" when the log has no names
	User string
	VC   string // virtual cluster (partition) the job was submitted to; "" when there is one only

	Model string // "" when the log names none: such a job shares with nobody
	Batch string // a value of its own when empty: some models have no batch size

	Workers int           // gang size, at least 1
	Share   unit.MilliGPU // of each worker's GPU; unit.WholeGPU unless the trace has fractional GPUs
	Models  []string      // GPU models it may run on; empty means any

	Floor    float64 // least share of standalone speed its user accepts, in (0, 1]
	Class    Class
	Priority int

	Memory  Memory  // of each worker
	GPUUtil float64 // standalone GPU utilisation in 0..1; 0 when unknown

	CPU        unit.MilliCPU // of the whole job; 0 when unknown
	HostMemory unit.Bytes    // of the whole job; 0 when unknown

	Submit   unit.Time
	Duration time.Duration // standalone run time
}

// Accepts says whether the job may run on a GPU model: any when it names none, and any GPU whose model nobody stated.
func (j *Job) Accepts(gpuModel string) bool {
	return len(j.Models) == 0 || gpuModel == "" || slices.Contains(j.Models, gpuModel)
}

// Memory is one worker's GPU memory as a log states it. Zero Peak means unknown.
type Memory struct {
	Peak       unit.Bytes // most ever in use, within an iteration
	Persistent unit.Bytes // always in use (weights, optimizer state, context); 0 means "as much as Peak"
	Profile    string     // name of the shape of what is used between Persistent and Peak; "" is flat
}
