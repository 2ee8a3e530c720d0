package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/sim/fillup"
	"weft.dev/weft/internal/sim/muri"
	"weft.dev/weft/internal/sim/pollux"
	"weft.dev/weft/internal/trace"
)

// uniform is the nodes and GPUs per node of a published replay, whose clusters are uniform.
func (c *simCommand) uniform(nodes, gpusPerNode int) (int, int, error) {
	if c.Cluster != "" {
		return 0, 0, flagError("--cluster", c.Cluster, "this replay knows only uniform clusters",
			"it follows the rules the trace was published with", "use --nodes and --gpus-per-node, or --own")
	}
	if c.Nodes > 0 {
		nodes = int(c.Nodes)
	}
	if c.GPUsPerNode > 0 {
		gpusPerNode = int(c.GPUsPerNode)
	}
	return nodes, gpusPerNode, nil
}

// muri replays a Muri trace by the rules of its simulator.
func (c *simCommand) muri(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	nodes, perNode, err := c.uniform(muri.DefaultNodes, muri.DefaultGPUsPerNode)
	if err != nil {
		return nil, err
	}
	jobs, err := readInput(ctx, s, c.Trace, trace.ReadMuri)
	if err != nil {
		return nil, err
	}
	if c.Read.SubmitAt != nil {
		for i := range jobs {
			jobs[i].SubmitMS = *c.Read.SubmitAt * 1000
		}
	}
	study := newSimStudy()
	study.rulesNote("Muri's simulator", c)
	for i, v := range onePerPolicy(variants) {
		s.progress.Report("sim", i, len(variants), "policies")
		start := s.clock()
		r, err := muri.Run(ctx, jobs, muri.Policy(v.policy), nodes, perNode)
		if err != nil {
			return study, err
		}
		run := publishedRun(v, "muri", r.Outcomes, r.Usage, nodes*perNode)
		run.Events, run.Excluded = r.Events, append(run.Excluded, r.Excluded...)
		run.EventsPerSecond = perSecond(r.Events, s.clock().Sub(start))
		study.add(run)
	}
	return study, nil
}

// pollux replays the workloads of a Pollux trace one by one by the rules of its simulator.
func (c *simCommand) pollux(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	nodes, perNode, err := c.uniform(pollux.DefaultNodes, pollux.DefaultGPUsPerNode)
	if err != nil {
		return nil, err
	}
	rows, err := readInput(ctx, s, c.Trace, trace.ReadPollux)
	if err != nil {
		return nil, err
	}
	profiles, err := readPolluxProfiles(c.Trace)
	if err != nil {
		return nil, err
	}
	study := newSimStudy()
	study.rulesNote("Pollux' simulator", c)
	workloads, names := byWorkload(rows, c.Read)
	if len(names) == 0 {
		return nil, flagError("--vc", c.Read.VC, fmt.Sprintf("%s holds no workload %q", c.Trace, c.Read.VC), "", "a workload such as 6 or realistic-6")
	}
	for i, name := range names {
		s.progress.Report("sim", i, len(names), "workloads")
		start := s.clock()
		r, err := pollux.Run(ctx, workloads[name], profiles, nodes, perNode)
		if err != nil {
			return study, fmt.Errorf("workload %s: %w", name, err)
		}
		run := publishedRun(variants[0], "pollux", r.Outcomes, r.Usage, nodes*perNode)
		run.Workload, run.Events, run.Excluded = name, r.Events, append(run.Excluded, r.Excluded...)
		run.EventsPerSecond = perSecond(r.Events, s.clock().Sub(start))
		if r.Estimated > 0 {
			study.Notes = append(study.Notes, fmt.Sprintf("workload %s: %d allocations of a shape that nobody measured, estimated", name, r.Estimated))
		}
		study.add(run)
	}
	return study, nil
}

// byWorkload groups the rows that are asked for by workload, in order of appearance.
func byWorkload(rows []trace.PolluxJob, f jobFlags) (map[string][]trace.PolluxJob, []string) {
	workloads := map[string][]trace.PolluxJob{}
	var names []string
	for _, row := range rows {
		if f.SubmitAt != nil {
			row.SubmitS = *f.SubmitAt
		}
		if f.VC == "" || row.VC() == f.VC {
			names = appendNew(names, row.VC())
			workloads[row.VC()] = append(workloads[row.VC()], row)
		}
	}
	return workloads, names
}

func onePerPolicy(variants []variant) []variant {
	return slices.CompactFunc(slices.Clone(variants), func(a, b variant) bool { return a.policy == b.policy })
}

// rulesNote says by whose rules a trace is replayed, and which flags those rules do not know.
func (s *simStudy) rulesNote(whose string, c *simCommand) {
	s.Notes = append(s.Notes, fmt.Sprintf("replayed by the rules of %s, where the trace was published; --own replays it by weft's", whose))
	if c.Read.From != (trace.Bound{}) || c.Read.To != (trace.Bound{}) || len(c.Placement) > 0 {
		s.Notes = append(s.Notes, "--from, --to and --placement do not apply to those rules")
	}
}

// publishedRun is a run of a replay outside the engine. Its jobs are listed by index only.
func publishedRun(v variant, rules string, outcomes []sim.Outcome, usage []sim.Usage, gpus int) *simRun {
	r := &sim.Result{Figures: sim.Summarise(outcomes, usage, gpus), Outcomes: outcomes, Usage: usage}
	r.Policy = v.policy
	v.placement = rules
	return newSimRun(v, rules, r, cluster.Uniform(1, gpus))
}

// seedFigures are the figures of one seed of a fill-up.
type seedFigures struct {
	Seed          int64          `json:"seed"`
	Allocation    float64        `json:"allocation_pct"`
	Fragmentation float64        `json:"fragmentation_pct"`
	Placed        int            `json:"placed"`
	Failed        int            `json:"failed"`
	Curve         []fillup.Point `json:"curve"`
}

// fillUp fills the cluster with each placement and seed.
func (c *simCommand) fillUp(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	if c.Cluster == "" {
		return nil, flagError("--cluster", "", "a fill-up needs the cluster's nodes", "", "--cluster openb_node_list_gpu_node.csv")
	}
	machines, err := readFile(c.Cluster, trace.ReadOpenbNodes)
	if err != nil {
		return nil, err
	}
	pods, err := readInput(ctx, s, c.Trace, trace.ReadOpenbPods)
	if err != nil {
		return nil, err
	}
	study := newSimStudy()
	study.fill = c.Fill
	total := len(variants) * len(c.Seeds)
	for i, v := range variants {
		if !slices.Contains(policy.ScoredNames(), v.placement) {
			return nil, flagError("--placement", v.placement, fmt.Sprintf("%s cannot fill a cluster of fractional pods", v.placement), "",
				"one of firstfit, bestfit, dotprod, clustering, packing, fgd, random")
		}
		run := &simRun{Rules: "fgd", gpus: machines.GPUs()}
		run.Placement, run.Share, run.Policy, run.Excluded = v.placement, v.share, "fillup", []trace.Exclusion{}
		for k, seed := range c.Seeds {
			s.progress.Report("sim: fill up with "+v.placement, i*len(c.Seeds)+k, total, "runs")
			start := s.clock()
			r, err := fillup.Run(ctx, machines, pods, fillup.Options{Policy: v.placement, Seed: seed, Fill: c.Fill})
			if err != nil {
				return study, err
			}
			run.addSeed(seed, r, s.clock().Sub(start))
		}
		study.add(run)
	}
	return study, nil
}

// addSeed takes over a seed's figures; those of the run are means over its seeds.
func (r *simRun) addSeed(seed int64, f *fillup.Result, took time.Duration) {
	final := f.Final()
	r.Seeds = append(r.Seeds, seedFigures{seed, final.Allocation, final.Fragmentation, f.Placed, f.Failed, f.Points})
	n := float64(len(r.Seeds))
	fragmentation := 0.0
	if r.Fragmentation != nil {
		fragmentation = *r.Fragmentation
	}
	fragmentation += (final.Fragmentation - fragmentation) / n
	r.Fragmentation = &fragmentation
	r.Allocation += (final.Allocation - r.Allocation) / n
	r.Utilisation = r.Allocation / 100
	r.Jobs += f.Placed + f.Failed
	r.Events += f.Placed + f.Failed
	r.took += took
	r.EventsPerSecond = perSecond(r.Events, r.took)
}
