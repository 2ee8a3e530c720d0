package sim

import (
	"context"
	"fmt"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// Config is what is replayed, and how.
type Config struct {
	Cluster cluster.Cluster
	Jobs    []cluster.Job // ascending in Submit
	Order   policy.Order

	// Placer was made for Cluster and Jobs, and has nothing placed. One that is not a policy.Rater may not give out
	// more than a whole GPU; with a Rater, a job runs at rate 1 from each Place and Retake on until Rates tells
	// another rate, which it is asked at the same instant.
	Placer policy.Placer

	// RestartCost is how long a job holds its GPUs without progress whenever it starts again after a preemption, or
	// moves to other GPUs: to load a checkpoint. No work is lost otherwise. 0: preemption is free, as in the
	// published replays of these orders.
	RestartCost time.Duration

	Spans bool // record Result.Spans: one entry per worker and stay

	Progress func(done, total int) // called now and then, and at the end; nil for none
	Now      func() time.Time      // clock for EventsPerSecond; nil leaves it 0
}

// Run replays the jobs. At an instant all ends come first, then all submissions, then the queue is gone through once;
// times are whole nanoseconds. A job that can never run is left out and listed with its reason; the others go on.
//
// The result depends on nothing but the Config. When ctx ends, the replay stops at the next instant and what had
// ended by then is returned, marked Partial. An error means that the jobs are not in order or have impossible values,
// or that the Placer broke its contract.
//
// An event costs O(log n) of the waiting and running jobs for a non-preemptive order, plus what the Placer needs; a
// preemptive pass costs O(running jobs + distinct shapes of waiting jobs).
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := checkJobs(cfg.Jobs); err != nil {
		return nil, err
	}
	whole := part{cluster: cfg.Cluster, jobs: cfg.Jobs, index: make([]int32, len(cfg.Jobs)), firstGPU: firstGPUs(cfg.Cluster)}
	for i := range whole.index {
		whole.index[i] = int32(i)
	}
	return replayParts(ctx, cfg, []part{whole}, func(part) policy.Placer { return cfg.Placer })
}

// RunParts replays each virtual cluster on its own nodes, as if the others did not exist, and merges the results; jobs
// of a virtual cluster without nodes are left out. Where no node names a virtual cluster, all jobs share one pool.
// place makes the Placer of one virtual cluster from its nodes and jobs; cfg.Placer is not used.
func RunParts(ctx context.Context, cfg Config, place func(cluster.Cluster, []cluster.Job) policy.Placer) (*Result, error) {
	if err := checkJobs(cfg.Jobs); err != nil {
		return nil, err
	}
	return replayParts(ctx, cfg, split(cfg.Cluster, cfg.Jobs), func(p part) policy.Placer { return place(p.cluster, p.jobs) })
}

// checkJobs refuses what no replay can make sense of. Readers have refused it before, with file and line.
func checkJobs(jobs []cluster.Job) error {
	last := unit.Time(0)
	for i := range jobs {
		j := &jobs[i]
		switch {
		case i > 0 && j.Submit < last:
			return fmt.Errorf("job %d %q is submitted before the job in front of it", i, j.ID)
		case j.Submit == unit.Never || j.Submit < 0:
			return fmt.Errorf("job %d %q is submitted at %d ns, outside virtual time", i, j.ID, int64(j.Submit))
		case j.Duration < 0:
			return fmt.Errorf("job %d %q has the negative duration %v", i, j.ID, j.Duration)
		case j.Share < 0 || j.Share > unit.WholeGPU:
			return fmt.Errorf("job %d %q has a share of %d/1000 GPU", i, j.ID, j.Share)
		}
		last = j.Submit
	}
	return nil
}
