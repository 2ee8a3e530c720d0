package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// own replays the trace by weft's own rules.
func (c *simCommand) own(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	t, err := s.readJobs(ctx, c.Trace, &c.Read)
	if err != nil && !(interrupted(err) && t != nil) {
		return nil, err
	}
	study := newSimStudy(t.Notes...)
	study.Partial, study.jobs, study.floor = err != nil, t.Jobs, commonFloor(t.Jobs)
	if !t.Timed && len(t.Jobs) > 0 {
		return nil, trace.Errors{{Code: "untimed", File: c.Trace, Message: "the jobs have no submission and run times",
			Why: "a replay needs to know when jobs come and how long they run", Fix: `add the columns submit_s and duration_s, or use weft plan`}}
	}
	machines, err := c.machines(study, t.Jobs)
	if err != nil {
		return nil, err
	}
	var known *rates
	if !onlyNever(c.Share) {
		if known, err = c.rates(study, t.Jobs); err != nil {
			return nil, err
		}
	}
	if _, _, err := memory(t.Jobs); err != nil {
		return nil, err
	}
	for _, v := range variants {
		r, adjusting, err := c.replay(ctx, s, v, machines, t.Jobs, known)
		if err != nil {
			return study, err
		}
		if len(study.Policies) == 0 {
			study.nameRefused(r.Refused, largestMemory(machines))
		}
		r.Excluded = append(append([]trace.Exclusion{}, t.Excluded...), r.Excluded...)
		run := newSimRun(v, "weft", r, machines)
		if len(adjusting) > 0 {
			run.Adjustment = newAdjustment(adjusting, r, t.Jobs)
			run.Adjustment.AboveBound = c.aboveBound(ctx, r, machines, t.Jobs, known.truth)
		}
		study.add(run)
		if r.Partial {
			return study, ctx.Err()
		}
	}
	study.regret()
	return study, nil
}

// namedJobs is how many jobs that cannot run are named; the rest is counted.
const namedJobs = 3

// nameRefused names the first jobs that could never run, with the memory of those that are too large.
func (s *simStudy) nameRefused(refused []sim.Refusal, most unit.Bytes) {
	for _, r := range refused[:min(len(refused), namedJobs)] {
		job := &s.jobs[r.Job]
		why := r.Reason
		if why == reasonTooLarge {
			why = fmt.Sprintf("%s fits no GPU (max %s)", job.Memory.Peak, most)
		}
		s.Notes = append(s.Notes, job.ID+": "+why)
	}
}

// largestMemory is the memory of the largest GPU.
func largestMemory(c cluster.Cluster) unit.Bytes {
	most := unit.Bytes(0)
	for _, n := range c.Nodes {
		if n.GPUs > 0 {
			most = max(most, n.GPUMemory)
		}
	}
	return most
}

// replay runs one variant; random placement is replayed with the first seed.
func (c *simCommand) replay(ctx context.Context, s *session, v variant, machines cluster.Cluster, jobs []cluster.Job,
	known *rates) (*sim.Result, []*policy.Adjusting, error) {
	order, _ := policy.OrderByName(v.policy)
	var adjusting []*policy.Adjusting // one for each virtual cluster
	var failed error
	place := func(part cluster.Cluster, jobs []cluster.Job) policy.Placer {
		p, err := c.placer(v, part, jobs, known)
		if err != nil {
			failed = errors.Join(failed, err)
			return policy.NewConsolidated(part, jobs)
		}
		if a, ok := p.(*policy.Adjusting); ok {
			adjusting = append(adjusting, a)
		}
		return p
	}
	r, err := sim.RunParts(ctx, sim.Config{
		Cluster: machines, Jobs: jobs, Order: order, RestartCost: c.RestartCost, Spans: c.HTML != "", Now: s.clock,
		Progress: func(done, total int) { s.progress.Report("sim: "+v.String(), done, total, "jobs") },
	}, place)
	if failed != nil {
		return nil, nil, failed
	}
	return r, adjusting, err
}

// placer makes the placer of a variant for one virtual cluster.
func (c *simCommand) placer(v variant, machines cluster.Cluster, jobs []cluster.Job, known *rates) (policy.Placer, error) {
	switch {
	case v.share != shareNever:
		return c.shared(v, machines, jobs, known)
	case v.placement == placementGreedy, v.placement == placementHeuristic: // a GPU each: nothing to learn about pairs
		alone := placement.NewProblem(jobs, nil, nil, placement.Options{MaxResidents: 1})
		return policy.NewSharing(alone, machines), nil
	case v.placement == placementConsolidated:
		return policy.NewConsolidated(machines, jobs), nil
	}
	return policy.NewScored(v.placement, machines, jobs, policy.ScoredOptions{Random: rand.New(rand.NewPCG(uint64(c.Seeds[0]), 0))})
}

// leastMemory is the memory of the smallest GPU: shared GPUs are one pool, and every job must fit wherever it lands.
func leastMemory(c cluster.Cluster) unit.Bytes {
	least := unit.Bytes(0)
	for _, n := range c.Nodes {
		if n.GPUs > 0 && n.GPUMemory > 0 && (least == 0 || n.GPUMemory < least) {
			least = n.GPUMemory
		}
	}
	return least
}

// readPolluxProfiles reads validation.csv and step_times.csv in the folder of the trace.
func readPolluxProfiles(path string) (*trace.PolluxProfiles, error) {
	p := &trace.PolluxProfiles{}
	var err error
	dir := filepath.Dir(path)
	if p.Statistics, err = readFile(filepath.Join(dir, "validation.csv"), trace.ReadPolluxStatistics); err != nil {
		return nil, err
	}
	p.StepTimes, err = readFile(filepath.Join(dir, "step_times.csv"), trace.ReadPolluxStepTimes)
	return p, err
}

// machines is the cluster that the flags describe, or one that the log would keep busy.
func (c *simCommand) machines(study *simStudy, jobs []cluster.Job) (cluster.Cluster, error) {
	perNode := int(c.GPUsPerNode)
	if perNode == 0 {
		perNode = trace.StandardGPUsPerNode
	}
	var machines cluster.Cluster
	switch {
	case c.Cluster != "":
		all, err := readFile(c.Cluster, func(file string, r io.Reader) (cluster.Cluster, error) {
			return trace.ReadCluster(file, r, perNode)
		})
		if err != nil {
			return all, err
		}
		machines = c.keepVC(all)
	case c.Nodes > 0:
		machines = cluster.Uniform(int(c.Nodes), perNode)
	default:
		nodes := enough(jobs, perNode)
		study.Notes = append(study.Notes, fmt.Sprintf(
			"no --nodes or --cluster: %s of %d GPUs, about %.0f %% busy while these jobs are submitted", report.Several(nodes, "node"), perNode, 100*fillTarget))
		machines = cluster.Uniform(nodes, perNode)
	}
	return c.limitMemory(machines), nil
}

// limitMemory makes --gpu-memory hold on every GPU that is not known to have less.
func (c *simCommand) limitMemory(machines cluster.Cluster) cluster.Cluster {
	limit := c.Sharing.GPUMemory
	if limit == 0 {
		return machines
	}
	machines.Nodes = slices.Clone(machines.Nodes)
	for i := range machines.Nodes {
		if n := &machines.Nodes[i]; n.GPUMemory == 0 || n.GPUMemory > limit {
			n.GPUMemory = limit
		}
	}
	return machines
}

// keepVC keeps the nodes of the virtual cluster asked for, where nodes name theirs.
func (c *simCommand) keepVC(machines cluster.Cluster) cluster.Cluster {
	if part := machines.Part(c.Read.VC); c.Read.VC != "" && len(part.Nodes) > 0 {
		return part
	}
	return machines
}

// fillTarget is the load of a cluster that nobody described: busy, but not in a queue that grows.
const fillTarget = 0.8

// enough is the number of nodes that the work loads to fillTarget, spread over the time in which it is submitted: the
// tail that long jobs run after the last submission says nothing about how many GPUs are wanted. It is no more than
// what the jobs would use if none waited, and holds the largest gang.
func enough(jobs []cluster.Job, perNode int) int {
	work, largest := 0.0, 1
	for j := range jobs {
		work += float64(jobs[j].Workers) * jobs[j].Duration.Seconds()
		largest = max(largest, jobs[j].Workers)
	}
	gpus := concurrency(jobs, 1).peak()
	if len(jobs) > 0 {
		if window := jobs[len(jobs)-1].Submit.Sub(jobs[0].Submit).Seconds(); window > 0 {
			gpus = int(min(float64(gpus), math.Ceil(work/fillTarget/window)))
		}
	}
	return (max(gpus, largest) + perNode - 1) / perNode
}

// commonFloor is the floor of all jobs, 0 when they differ.
func commonFloor(jobs []cluster.Job) float64 {
	if len(jobs) == 0 {
		return 0
	}
	for j := range jobs {
		if jobs[j].Floor != jobs[0].Floor {
			return 0
		}
	}
	return jobs[0].Floor
}
