package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/sim/pollux"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// own replays the trace by weft's own rules.
func (c *simCommand) own(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	t, err := c.readTrace(ctx, s)
	if err != nil && !(interrupted(err) && t != nil) {
		return nil, err
	}
	study := &simStudy{Schema: 1, Notes: t.Notes, Partial: err != nil, jobs: t.Jobs, floor: commonFloor(t.Jobs)}
	if !t.Timed && len(t.Jobs) > 0 {
		return nil, trace.Errors{{Code: "untimed", File: c.Trace, Message: "the jobs have no submission and run times",
			Why: "a replay needs to know when jobs come and how long they run", Fix: `add the columns submit_s and duration_s, or use weft plan`}}
	}
	machines, err := c.machines(study, t.Jobs)
	if err != nil {
		return nil, err
	}
	var table *interference.Table
	if !onlyNever(c.Share) {
		var notes []string
		if table, notes, err = c.Sharing.table(); err != nil {
			return nil, err
		}
		study.Notes = append(study.Notes, notes...)
	}
	if _, _, err := memory(t.Jobs); err != nil {
		return nil, err
	}
	for _, v := range variants {
		r, err := c.replay(ctx, s, v, machines, t.Jobs, table)
		if err != nil {
			return study, err
		}
		r.Excluded = append(append([]trace.Exclusion{}, t.Excluded...), r.Excluded...)
		study.add(newSimRun(v, "weft", r, machines))
		if r.Partial {
			return study, ctx.Err()
		}
	}
	return study, nil
}

// replay runs one variant; random placement is replayed with the first seed.
func (c *simCommand) replay(ctx context.Context, s *session, v variant, machines cluster.Cluster, jobs []cluster.Job,
	table *interference.Table) (*sim.Result, error) {
	order, _ := policy.OrderByName(v.policy)
	var failed error
	place := func(part cluster.Cluster, jobs []cluster.Job) policy.Placer {
		p, err := c.placer(v, part, jobs, table)
		if err != nil && failed == nil {
			failed = err
		}
		return p
	}
	r, err := sim.RunParts(ctx, sim.Config{
		Cluster: machines, Jobs: jobs, Order: order, RestartCost: c.RestartCost, Spans: c.HTML != "", Now: s.clock,
		Progress: func(done, total int) { s.progress.Report("sim: "+v.String(), done, total, "jobs") },
	}, place)
	if failed != nil {
		return nil, failed
	}
	return r, err
}

// placer makes the placer of a variant for one virtual cluster.
func (c *simCommand) placer(v variant, machines cluster.Cluster, jobs []cluster.Job, table *interference.Table) (policy.Placer, error) {
	switch {
	case v.share != shareNever:
		profiles, _, err := memory(jobs)
		if err != nil {
			return policy.NewConsolidated(machines, jobs), err
		}
		o := c.Sharing.options()
		o.NoFloors = v.share == shareAlways
		if o.GPUMemory == 0 {
			o.GPUMemory = leastMemory(machines)
		}
		p := placement.NewProblem(jobs, table, profiles, o)
		if v.placement == placementHeuristic {
			return policy.NewDraining(p, machines, c.RestartCost), nil
		}
		return policy.NewSharing(p, machines), nil
	case v.placement == placementConsolidated:
		return policy.NewConsolidated(machines, jobs), nil
	}
	p, err := policy.NewScored(v.placement, machines, jobs, policy.ScoredOptions{Random: rand.New(rand.NewPCG(uint64(c.Seeds[0]), 0))})
	if err != nil {
		return policy.NewConsolidated(machines, jobs), err
	}
	return p, nil
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

// readTrace reads the trace; a Pollux trace states no run times, so those follow from the measurements beside it.
func (c *simCommand) readTrace(ctx context.Context, s *session) (*trace.Trace, error) {
	o, err := c.Read.options(c.Trace)
	if err != nil {
		return nil, err
	}
	if c.Read.Format == "pollux" {
		profiles, err := readPolluxProfiles(c.Trace)
		if err != nil {
			return nil, err
		}
		o.PolluxDuration = pollux.Standalone(ctx, profiles, pollux.DefaultNodes, pollux.DefaultGPUsPerNode)
	}
	r, err := s.open(c.Trace)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return trace.Read(ctx, c.Read.Format, c.Trace, r, o)
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

// machines is the cluster that the flags describe, or one that the log would fill to four fifths.
func (c *simCommand) machines(study *simStudy, jobs []cluster.Job) (cluster.Cluster, error) {
	perNode := c.GPUsPerNode
	if perNode == 0 {
		perNode = trace.StandardGPUsPerNode
	}
	switch {
	case c.Cluster != "":
		machines, err := readFile(c.Cluster, func(file string, r io.Reader) (cluster.Cluster, error) {
			return trace.ReadCluster(file, r, perNode)
		})
		return c.keepVC(machines), err
	case c.Nodes > 0:
		return cluster.Uniform(c.Nodes, perNode), nil
	}
	nodes := enough(jobs, perNode)
	study.Notes = append(study.Notes, fmt.Sprintf(
		"no --nodes or --cluster: %d nodes of %d GPUs, which these jobs would fill to %.0f %% on average", nodes, perNode, 100*fillTarget))
	return cluster.Uniform(nodes, perNode), nil
}

// keepVC keeps the nodes of the virtual cluster asked for, where nodes name theirs.
func (c *simCommand) keepVC(machines cluster.Cluster) cluster.Cluster {
	if part := machines.Part(c.Read.VC); c.Read.VC != "" && len(part.Nodes) > 0 {
		return part
	}
	return machines
}

// fillTarget is the average load of a cluster that nobody described: busy, but not in a growing queue.
const fillTarget = 0.8

// enough is the number of nodes that the jobs load to fillTarget between the first submission and the last end, and
// that hold the largest gang.
func enough(jobs []cluster.Job, perNode int) int {
	work, largest := 0.0, 1
	var last unit.Time
	for j := range jobs {
		work += float64(jobs[j].Workers) * float64(jobs[j].Duration)
		largest = max(largest, jobs[j].Workers)
		last = max(last, jobs[j].Submit.Add(jobs[j].Duration))
	}
	gpus := largest
	if len(jobs) > 0 && last > jobs[0].Submit {
		gpus = max(gpus, int(work/fillTarget/float64(last-jobs[0].Submit))+1)
	}
	return (gpus + perNode - 1) / perNode
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
