// Package pollux replays the simulator that was published with Pollux (Qiao et al., "Pollux: Co-adaptive Cluster
// Scheduling for Goodput-Optimized Deep Learning", OSDI 2021; repository petuum/adaptdl, branch osdi21-artifact) for
// its Tiresias baseline: jobs of fixed size whose speed follows from measured step times and gradient statistics.
// It follows that simulator's rules so that its published averages come out. weft's own policies run in package sim.
package pollux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// The published cluster.
const (
	DefaultNodes       = 16
	DefaultGPUsPerNode = 4
)

// Result is what a replay produced.
type Result struct {
	Outcomes    []sim.Outcome // of the jobs that ended, by index in the job list
	JCTs        []float64     // completion times in seconds, end minus submit, beside Outcomes
	Usage       []sim.Usage   // GPUs allocated, over time
	Preemptions int
	Events      int // rounds of 60 s, without idle ones that were skipped
	Estimated   int // allocations of a shape that nobody measured, with a step time estimated by weft
	Excluded    trace.Exclusions
}

// Run replays rows under Tiresias on nodes machines of gpusPerNode GPUs each. Jobs larger than the cluster are
// excluded with the reason. An application, batch size or allocation that profiles do not cover is an error, known
// for an allocation only when it comes up: the result then holds what ended before, as it does when ctx is done.
//
// An outcome's slowdown is the time with an allocation over that of the job alone on an empty cluster (Standalone).
// Time is O(rounds * jobs); the result depends on nothing but the arguments.
func Run(ctx context.Context, rows []trace.PolluxJob, profiles *trace.PolluxProfiles, nodes, gpusPerNode int) (*Result, error) {
	if nodes < 1 || gpusPerNode < 1 {
		return nil, fmt.Errorf("a cluster of %d nodes of %d GPUs has no GPU", nodes, gpusPerNode)
	}
	jobs, result, err := load(rows, newModels(profiles), nodes*gpusPerNode)
	if err != nil {
		return nil, err
	}
	l := &loop{policy: newTiresias(nodes, gpusPerNode), coming: slices.Clone(jobs)}
	err = l.run(ctx)
	result.Usage, result.Events = l.usage, l.rounds
	// What ended is listed also when ctx is done: standalone run times take milliseconds.
	ctx = context.WithoutCancel(ctx)
	return result, errors.Join(err, result.collect(ctx, jobs, newSolo(profiles, nodes, gpusPerNode)))
}

// load makes the jobs that fit in a cluster of so many GPUs, and counts the others.
func load(rows []trace.PolluxJob, m *models, gpus int) ([]*job, *Result, error) {
	var jobs []*job
	result := &Result{}
	for i, row := range rows {
		if row.Replicas > gpus {
			result.Excluded.Count(tooLarge(gpus), 1)
			continue
		}
		app, err := m.application(row.Application)
		if err != nil {
			return nil, nil, rowError(row, err)
		}
		jobs = append(jobs, newJob(i, row, app))
	}
	return jobs, result, nil
}

func tooLarge(gpus int) string { return fmt.Sprintf("gang larger than the cluster (%d GPUs)", gpus) }

// collect lists the jobs that ended.
func (r *Result) collect(ctx context.Context, jobs []*job, alone *solo) error {
	for _, j := range jobs {
		r.Estimated += j.estimates
		if !j.done {
			continue
		}
		s, err := alone.seconds(ctx, j.row)
		if err != nil {
			return err
		}
		r.Outcomes = append(r.Outcomes, sim.Outcome{
			Job: j.index, Submit: unit.Seconds(j.row.SubmitS), Start: unit.Seconds(j.start), End: unit.Seconds(j.end),
			Run: unit.Duration(j.executed), Ended: true, Standalone: true, Slowdown: max(1, j.executed/s),
			Preemptions: j.preemptions,
		})
		r.JCTs = append(r.JCTs, j.end-j.row.SubmitS)
		r.Preemptions += j.preemptions
	}
	return nil
}

// models makes each application's model when it is first asked for.
type models struct {
	profiles *trace.PolluxProfiles
	byName   map[string]*application
}

func newModels(p *trace.PolluxProfiles) *models { return &models{p, map[string]*application{}} }

func (m *models) application(name string) (*application, error) {
	if a, ok := m.byName[name]; ok {
		return a, nil
	}
	a, err := newApplication(name, m.profiles)
	if err != nil {
		return nil, err
	}
	m.byName[name] = a
	return a, nil
}
