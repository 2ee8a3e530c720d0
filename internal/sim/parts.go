package sim

import (
	"context"
	"fmt"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
)

// part is a pool of nodes and the jobs that run on it, and how both are numbered in the whole.
type part struct {
	vc       string
	cluster  cluster.Cluster
	jobs     []cluster.Job
	index    []int32 // job list index of each job
	firstGPU []int32 // first GPU of each node, in the whole cluster
	orphaned bool    // there are no nodes for these jobs
}

// split makes one part of each virtual cluster, in order of first node, then one of each virtual cluster without
// nodes, in order of first job. It makes one part where no node names a virtual cluster.
func split(c cluster.Cluster, jobs []cluster.Job) []part {
	var parts []part
	at, first := map[string]int{}, firstGPUs(c)
	add := func(vc string, orphaned bool) {
		if _, ok := at[vc]; !ok {
			at[vc] = len(parts)
			parts = append(parts, part{vc: vc, orphaned: orphaned})
		}
	}
	for i, n := range c.Nodes {
		add(n.VC, false)
		p := &parts[at[n.VC]]
		p.cluster.Nodes = append(p.cluster.Nodes, n)
		p.firstGPU = append(p.firstGPU, first[i])
	}
	onePool := len(parts) == 1 && parts[0].vc == ""
	for i := range jobs {
		vc := jobs[i].VC
		if onePool {
			vc = ""
		}
		add(vc, true)
		p := &parts[at[vc]]
		p.jobs = append(p.jobs, jobs[i])
		p.index = append(p.index, int32(i))
	}
	return parts
}

// replayParts replays one part after the other and puts the results together.
func replayParts(ctx context.Context, cfg Config, parts []part, place func(part) policy.Placer) (*Result, error) {
	began := now(cfg)
	p := &progress{report: cfg.Progress, total: len(cfg.Jobs)}
	m := newMerger(cfg)
	for _, part := range parts {
		if part.orphaned {
			m.orphans(part)
			p.skip(len(part.jobs))
			continue
		}
		if ctx.Err() != nil {
			m.result.Partial = true
			break
		}
		e := newEngine(cfg, part, place(part), p)
		if err := e.run(ctx.Done()); err != nil {
			return nil, fmt.Errorf("replay on the %s: %w", part.name(), err)
		}
		m.add(e)
	}
	r := m.finish()
	if seconds := now(cfg).Sub(began).Seconds(); seconds > 0 {
		r.EventsPerSecond = float64(r.Events) / seconds
	}
	p.finish()
	return r, nil
}
