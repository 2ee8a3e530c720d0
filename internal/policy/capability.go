package policy

// Fitter is a Placer that knows which jobs it could never place, so that none of them blocks a queue.
type Fitter interface {
	// Fits says whether the job could run on the empty cluster, and if not, why: a short text with the numbers,
	// such as "gang of 12, cluster has 8".
	Fits(job int) (reason string, ok bool)
}

// Retaker is a Placer that can give a job the very GPUs that it gave back a moment ago. A preemptive order needs it
// to ask "would this job fit if those behind it were not there?" without moving those behind it. The slots that
// Place returned stay readable after Release, until the next Place of the same job.
type Retaker interface {
	// Retake takes exactly slots for the job, or takes nothing and reports false when one of them no longer has room.
	Retake(job int, slots []Slot) bool
}
