package box

import "time"

// Explanation says why a job waits, or why it is where it is.
type Explanation struct {
	Job Job `json:"job"`

	// Of a job that waits.
	Refusals []Refusal  `json:"refusals"` // of each GPU, the nearest first
	Opens    string     `json:"opens"`    // what would have to change, for people
	Ahead    []ID       `json:"ahead"`    // waiting jobs that come first
	Promised *time.Time `json:"promised_at"`

	// Of a job that runs.
	Residents []Resident `json:"residents"` // jobs beside it
	Lost      *Loss      `json:"lost"`
	Held      float64    `json:"floor_held_s"` // of Job.Run
	History   []Event    `json:"history"`      // its own, oldest first
}

// Refusal is why a GPU does not take a job. A GPU that would take it has no reason.
type Refusal struct {
	GPU     int    `json:"gpu"`
	Beside  []ID   `json:"beside"`
	Reason  Reason `json:"reason"`
	Nearest bool   `json:"nearest"`
}

// Resident is a job beside another, with what each is believed to add to the other's slowdown.
type Resident struct {
	ID        ID      `json:"id"`
	Name      string  `json:"name"`
	Slows     float64 `json:"slows_by_fraction"` // that it adds to this job's time
	SlowedBy  float64 `json:"slowed_by_fraction"`
	Observed  int     `json:"observed"` // windows together
	Predicted string  `json:"predicted_basis"`
}

// Loss is what of a job's speed went where, as shares of its speed alone.
type Loss struct {
	Token      float64 `json:"token_wait_fraction"`
	Stall      float64 `json:"stall_fraction"`
	Contention float64 `json:"contention_fraction"` // the rest
}

// History is the recent past, for charts. Times are the seconds before Until.
type History struct {
	Schema int          `json:"schema"`
	Until  time.Time    `json:"until"`
	Step   float64      `json:"step_s"`
	Lanes  []Lane       `json:"lanes"`
	Jobs   []JobHistory `json:"jobs"`
	GPUs   []GPUHistory `json:"gpus"`
	Queue  []QueueCount `json:"queue"`
	Waits  []TokenWait  `json:"token_wait"`
}

// Lane is one stay of a job on a GPU.
type Lane struct {
	GPU   int      `json:"gpu"`
	Job   ID       `json:"job"`
	Name  string   `json:"name"`
	Class Class    `json:"class"`
	From  float64  `json:"from_s"`
	To    *float64 `json:"to_s"` // null while it is there
	Moved bool     `json:"moved"`
	Below bool     `json:"below"` // it was below its floor at the end
}

// JobHistory is the rates of a job: a value a step, null where nothing is known. The last value is the latest.
type JobHistory struct {
	Job       ID         `json:"job"`
	Name      string     `json:"name"`
	Floor     float64    `json:"floor"`
	Rate      []*float64 `json:"rate_fraction"`
	Predicted []*float64 `json:"predicted_fraction"`
}

// GPUHistory is the memory and use of a GPU in steps, in bytes and shares.
type GPUHistory struct {
	GPU      int        `json:"gpu"`
	Usable   float64    `json:"usable_bytes"`
	Reserved []*float64 `json:"reserved_bytes"`
	InUse    []*float64 `json:"in_use_bytes"`
	Busy     []*float64 `json:"busy_fraction"`
}

// QueueCount is how many jobs waited for one reason, in steps.
type QueueCount struct {
	Code  string     `json:"code"`
	Count []*float64 `json:"count"`
}

// TokenWait is the p99 of the wait for the token of a class, in steps.
type TokenWait struct {
	Class Class      `json:"class"`
	P99   []*float64 `json:"p99_ms"`
}
