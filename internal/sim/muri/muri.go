// Package muri replays the simulator that was published with Muri (Zhao et al., "Multi-Resource Interleaving for
// Deep Learning Training", SIGCOMM 2022; repository Rivendile/Muri), for four of its policies: SRTF, SRSF, Tiresias
// and AntMan. It follows that simulator's rules to the last digit, also where they are odd (the restart overhead is
// charged in every interval between two events, Tiresias places nothing), so that its published averages come out.
// weft's own policies run in package sim.
package muri

import (
	"context"
	"fmt"

	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
)

// Policy names one of the published scheduling rules.
type Policy string

// The policies.
const (
	SRTF     Policy = "srtf"     // shortest remaining time first, preemptive
	SRSF     Policy = "srsf"     // shortest remaining time times GPUs first, preemptive
	Tiresias Policy = "tiresias" // least attained service in three queues, preemptive
	AntMan   Policy = "antman"   // guaranteed jobs first come first served; opportunistic jobs share their GPUs
)

// Policies is every policy, in the order of the published table.
func Policies() []Policy { return []Policy{SRTF, SRSF, Tiresias, AntMan} }

// The published cluster.
const (
	DefaultNodes       = 8
	DefaultGPUsPerNode = 8
)

// Result is what a replay produced.
type Result struct {
	Outcomes []sim.Outcome // of the jobs that ended, by index in the job list
	// JCTs are the completion times in seconds, end minus submit, beside Outcomes, as the simulator computes them:
	// Outcomes are rounded to nanoseconds, the published averages are not.
	JCTs        []float64
	Usage       []sim.Usage // GPUs with a running job, over time
	Preemptions int
	Events      int // arrivals and ends by distinct time, and Tiresias' demotion times
	Excluded    trace.Exclusions
}

// Run replays jobs under a policy on nodes machines of gpusPerNode GPUs each. Jobs whose gang the cluster cannot
// hold are excluded with the reason. An unmeasured model is an error (see overhead), as is, under AntMan, a
// guaranteed job without idle gaps to measure by. When ctx is done Run returns what it has so far and ctx's error.
//
// Time is O(events * (GPUs^2 + waiting jobs)); the result depends on nothing but the arguments.
func Run(ctx context.Context, jobs []trace.MuriJob, p Policy, nodes, gpusPerNode int) (*Result, error) {
	if nodes < 1 || gpusPerNode < 1 {
		return nil, fmt.Errorf("a cluster of %d nodes of %d GPUs has no GPU", nodes, gpusPerNode)
	}
	policy, tolerance, err := newScheduler(p, nodes, gpusPerNode)
	if err != nil {
		return nil, err
	}
	rec := newRecorder(len(jobs))
	skip := exclude(jobs, nodes, gpusPerNode, &rec.result.Excluded)
	arrivals, err := newJobs(jobs, skip)
	if err != nil {
		return nil, err
	}
	if p == AntMan {
		if err := checkGaps(jobs, skip); err != nil {
			return nil, err
		}
	}
	l := &loop{policy: policy, tolerance: tolerance, arrivals: arrivals, observe: rec}
	err = l.run(ctx)
	return rec.finish(), err
}

func newScheduler(p Policy, nodes, gpusPerNode int) (scheduler, float64, error) {
	switch p {
	case SRTF:
		return newOrdering(remainingTime, nodes, gpusPerNode), endTolerance, nil
	case SRSF:
		return newOrdering(remainingService, nodes, gpusPerNode), endTolerance, nil
	case Tiresias:
		return &tiresias{total: nodes * gpusPerNode}, 0, nil
	case AntMan:
		return newAntMan(nodes, gpusPerNode), endTolerance, nil
	}
	return nil, 0, fmt.Errorf("no published Muri policy %q; there are %v", p, Policies())
}

// exclude finds the jobs that no policy could start: larger than the cluster, or spanning nodes without filling them,
// for which the published rules know no placement.
func exclude(jobs []trace.MuriJob, nodes, gpusPerNode int, excluded *trace.Exclusions) map[int]bool {
	skip := map[int]bool{}
	for i, j := range jobs {
		switch {
		case j.GPUs > nodes*gpusPerNode:
			excluded.Count(fmt.Sprintf("gang larger than the cluster (%d GPUs)", nodes*gpusPerNode), 1)
		case j.GPUs > gpusPerNode && j.GPUs%gpusPerNode != 0:
			excluded.Count(fmt.Sprintf("gang spans nodes without filling them (%d GPUs each)", gpusPerNode), 1)
		default:
			continue
		}
		skip[i] = true
	}
	return skip
}

// checkGaps refuses guaranteed jobs with two stages of no length: AntMan's pace divides by each pair of stages.
func checkGaps(jobs []trace.MuriJob, skip map[int]bool) error {
	for i, j := range jobs {
		s := j.StageMS
		if !skip[i] && !j.Opportunistic && min(s[0]+s[1], s[0]+s[2], s[1]+s[2]) <= 0 {
			return fmt.Errorf("job %q on line %d: resource times %v ms leave no gap to share: antman needs two above 0",
				j.ID, j.Line, s)
		}
	}
	return nil
}
