package policy

import (
	"math"
	"math/bits"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Standing is what an Order may know of a live job besides what its user submitted.
type Standing struct {
	Remaining time.Duration // standalone run time that the job still needs
	Since     unit.Time     // when the job entered the queue that it is in; its submission for the first queue
}

// Order says which live job comes first: the lower queue, then the lower rank, then the lower job index. It is data,
// so that a new order needs no new type.
//
// An order that is not preemptive blocks at the head of the line: while the first job does not fit, no later one
// starts. A preemptive one goes through all live jobs, running and waiting, and passes over those that do not fit.
type Order struct {
	Name       string
	Preemptive bool

	// Rank is the job's place in its queue, lower first. The rank of a waiting job may not change with time.
	Rank func(job *cluster.Job, s Standing) int64

	// Steady says that two running jobs of one queue never change places by running on, each at standalone speed.
	Steady bool

	// Limits are the attained GPU times (run time x GPUs held) at which a job leaves queue 0, 1, ... for the next
	// one, ascending. Nobody returns to an earlier queue. Empty: there is one queue.
	Limits []time.Duration
}

// FIFO starts jobs in order of submission.
func FIFO() Order {
	return Order{Name: "fifo", Rank: func(j *cluster.Job, _ Standing) int64 { return int64(j.Submit) }}
}

// SJF starts the job of the shortest standalone run time first.
func SJF() Order {
	return Order{Name: "sjf", Rank: func(j *cluster.Job, _ Standing) int64 { return int64(j.Duration) }}
}

// SRTF runs the jobs of the shortest remaining standalone time, preempting others.
func SRTF() Order {
	return Order{Name: "srtf", Preemptive: true, Steady: true,
		Rank: func(_ *cluster.Job, s Standing) int64 { return int64(s.Remaining) }}
}

// SRSF runs the jobs of the smallest remaining service (remaining standalone time x GPUs), preempting others. The
// rank saturates at 292 GPU years.
func SRSF() Order {
	return Order{Name: "srsf", Preemptive: true,
		Rank: func(j *cluster.Job, s Standing) int64 {
			return int64(scaleTime(s.Remaining, gpuShare(j), unit.WholeGPU))
		}}
}

// The attained service, in GPU seconds, at which the published replays of Tiresias move a job to the second and to
// the third queue.
const (
	tiresiasFirstLimit  = 3250 * time.Second
	tiresiasSecondLimit = 7200 * time.Second
)

// Tiresias is the two-dimensional least-attained-service order (Gu et al., NSDI 2019), discretised to three queues:
// a job falls to the next queue once its attained GPU time reaches the limit, and is never promoted. Within a queue
// the job that entered it first goes first; waiting does not change a job's queue.
func Tiresias() Order {
	return Order{Name: "tiresias", Preemptive: true, Steady: true,
		Rank:   func(_ *cluster.Job, s Standing) int64 { return int64(s.Since) },
		Limits: []time.Duration{tiresiasFirstLimit, tiresiasSecondLimit}}
}

// OrderNames are the names that OrderByName knows.
func OrderNames() []string { return []string{"fifo", "sjf", "srtf", "srsf", "tiresias"} }

// OrderByName is the order of a name in OrderNames; false for any other.
func OrderByName(name string) (Order, bool) {
	switch name {
	case "fifo":
		return FIFO(), true
	case "sjf":
		return SJF(), true
	case "srtf":
		return SRTF(), true
	case "srsf":
		return SRSF(), true
	case "tiresias":
		return Tiresias(), true
	}
	return Order{}, false
}

// Leaves is the run time after which a job leaves a queue: the queue's limit divided by the GPUs that the job holds,
// rounded up to a nanosecond; the largest Duration when it stays.
func (o Order) Leaves(job *cluster.Job, queue int) time.Duration {
	if queue >= len(o.Limits) {
		return math.MaxInt64
	}
	return scaleTime(o.Limits[queue], unit.WholeGPU, gpuShare(job))
}

// gpuShare is how much GPU all workers of a job hold together.
func gpuShare(j *cluster.Job) unit.MilliGPU { return unit.MilliGPU(j.Workers) * j.Share }

// scaleTime is d x times / by rounded up, exact in between and saturating. d, times >= 0; by > 0.
func scaleTime(d time.Duration, times, by unit.MilliGPU) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(times))
	lo, carry := bits.Add64(lo, uint64(by)-1, 0)
	hi += carry
	if hi >= uint64(by) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(by))
	return time.Duration(min(q, math.MaxInt64))
}
