package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// planCommand packs the jobs of a file by every method and says how far each is from a proven lower bound.
type planCommand struct {
	Jobs    string       `arg:"" optional:"" placeholder:"JOBS.csv" help:"Jobs, one a row: id, model, and optionally batch, workers, floor, class, priority, user, submit_s, duration_s, memory_mib, persistent_mib, profile, gpu_util. - reads the standard input."`
	Cluster clusterFlags `embed:""`
	Read    jobFlags     `embed:""`
	Sharing sharingFlags `embed:""`
	Method  []string     `default:"dedicated,peak,greedy,heuristic,exact,lp" help:"Methods to compare."`
	JSON    bool         `name:"json" help:"Write JSON for programs."`
	Out     string       `placeholder:"FILE" help:"Write the best method's placement as JSON."`
}

// Help is what weft plan --help adds.
func (planCommand) Help() string {
	return `Examples:
  weft generate --jobs 500 > jobs.csv && weft plan jobs.csv --floor 0.85
  weft plan jobs.csv --interference pairs.csv --gpu-model p100 --floor 0.85
  weft plan log.txt --format sacct --models names.csv --gpu-memory 40GiB
  weft plan jobs.csv --method greedy --out plan.json --json

With --from-cluster instead of a file the jobs are the Pods of a Kubernetes
cluster that ask for GPUs, whether they share already or not: what sharing saves
can be seen before anybody opts in. See docs/kube-commands.md.`
}

// planInput is what the methods are run on.
type planInput struct {
	jobs     []cluster.Job
	profiles []profile.Profile
	table    *interference.Table
	timed    bool
	excluded trace.Exclusions
	notes    []string
	partial  bool
}

// Run implements the command.
func (c *planCommand) Run(ctx context.Context, s *session) error {
	methods, err := c.check()
	if err != nil {
		return asInput(err, c.JSON)
	}
	var out *target
	if c.Out != "" {
		if out, err = openTarget(c.Out); err != nil {
			return asInput(err, c.JSON)
		}
		defer out.drop()
	}
	in, err := c.read(ctx, s)
	if err != nil {
		return asInput(err, c.JSON)
	}
	study := c.study(ctx, s, in, methods)
	s.progress.Done()
	if c.JSON {
		s.writeJSON(study)
	} else if err := study.write(s); err != nil {
		return err
	}
	if out != nil {
		if err := out.write(study.writePlacement); err != nil {
			return err
		}
	}
	if study.Partial {
		return errPartial
	}
	return nil
}

// check verifies the flags and finds the methods.
func (c *planCommand) check() ([]placement.Method, error) {
	faults := []error{c.Read.check(), c.Sharing.check(), c.source()}
	var chosen []placement.Method
	var names []string
	for _, m := range placement.Methods() {
		names = append(names, m.Name)
		if slices.Contains(c.Method, m.Name) {
			chosen = append(chosen, m)
		}
	}
	for _, name := range c.Method {
		if !slices.Contains(names, name) {
			faults = append(faults, flagError("--method", name, fmt.Sprintf("unknown method %q", name), "", "one of "+strings.Join(names, ", ")))
		}
	}
	return chosen, errors.Join(faults...)
}

// read reads the jobs and pairs, and sets aside jobs that no GPU can hold.
func (c *planCommand) read(ctx context.Context, s *session) (*planInput, error) {
	table, notes, err := c.Sharing.table()
	if err != nil {
		return nil, err
	}
	if c.Cluster.FromCluster {
		return c.readCluster(ctx, s, &planInput{table: table, notes: notes})
	}
	t, err := s.readJobs(ctx, c.Jobs, &c.Read)
	if err != nil && !(interrupted(err) && t != nil) {
		return nil, err
	}
	in := &planInput{table: table, timed: t.Timed, excluded: t.Excluded, notes: append(notes, t.Notes...), partial: err != nil}
	profiles, stated, err := memory(t.Jobs)
	if err != nil {
		return nil, err
	}
	c.keepFitting(in, t.Jobs, profiles)
	switch {
	case c.Sharing.GPUMemory == 0 && stated:
		in.notes = append(in.notes, noLimit)
	case !stated:
		in.notes = append(in.notes, "no memory column: peak = greedy")
	}
	in.note(ctx, c)
	return in, nil
}

// noLimit is noted where the memory of GPUs is not known.
const noLimit = "no --gpu-memory: memory is no limit, peak = greedy"

// reasonTooLarge is why a job is left out that no GPU can hold; the placers give the same one.
const reasonTooLarge = "TooLarge: fits no GPU"

// keepFitting keeps the jobs that one GPU each can hold.
func (c *planCommand) keepFitting(in *planInput, jobs []cluster.Job, profiles []profile.Profile) {
	limit := c.Sharing.GPUMemory
	var named []string
	for j := range jobs {
		if limit > 0 && profiles[j].Peak() > limit {
			in.excluded.Count(reasonTooLarge, 1)
			if len(named) < namedJobs {
				named = append(named, fmt.Sprintf("%s: %s fits no GPU (max %s)", jobs[j].ID, profiles[j].Peak(), limit))
			}
			continue
		}
		in.jobs = append(in.jobs, jobs[j])
		in.profiles = append(in.profiles, profiles[j])
	}
	in.notes = append(in.notes, named...)
}

// note adds what the user must know to read the result.
func (in *planInput) note(ctx context.Context, c *planCommand) {
	if n := fractional(in.jobs); n > 0 {
		in.notes = append(in.notes, report.Several(n, "job")+" with a part of a GPU: a plan counts a whole one for each worker")
	}
	lonely, _ := await(ctx, func() [2][]int {
		unmeasured, incompatible := in.problem(c.Sharing.options()).Lonely()
		return [2][]int{unmeasured, incompatible}
	})
	if some := lonely[0]; len(some) > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%s without a measured pair (%s): not shared", report.Several(len(some), "job"), modelsOf(in.jobs, some)))
	}
	if some := lonely[1]; len(some) > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%s (%s) can share with nobody under these floors", report.Several(len(some), "job"), modelsOf(in.jobs, some)))
	}
}

// fractional counts the jobs that ask for less than a whole GPU.
func fractional(jobs []cluster.Job) int {
	n := 0
	for j := range jobs {
		if jobs[j].Share < unit.WholeGPU {
			n++
		}
	}
	return n
}

// modelsOf names the first few configurations of some jobs.
func modelsOf(jobs []cluster.Job, some []int) string {
	var names []string
	for _, j := range some {
		name := interference.Config{Model: jobs[j].Model, Batch: jobs[j].Batch}.String()
		if name == "" {
			name = "no model"
		}
		if names = appendNew(names, name); len(names) > 4 {
			return strings.Join(names[:4], ", ") + ", ..."
		}
	}
	return strings.Join(names, ", ")
}

func (f *sharingFlags) options() placement.Options {
	return placement.Options{GPUMemory: f.GPUMemory, MaxResidents: f.MaxResidents, Epsilon: f.Epsilon}
}

func (in *planInput) problem(o placement.Options) *placement.Problem {
	return placement.NewProblem(in.jobs, in.table, in.profiles, o)
}

// study runs the methods one after the other. An interruption leaves out what had not finished.
func (c *planCommand) study(ctx context.Context, s *session, in *planInput, methods []placement.Method) *planStudy {
	study := &planStudy{
		Schema: 1, Jobs: len(in.jobs), Workers: workersOf(in.jobs), Excluded: append(trace.Exclusions{}, in.excluded...),
		Notes: append([]string{}, in.notes...), Methods: []planMethod{}, floors: floorsOf(in.jobs),
		residents: c.Sharing.MaxResidents, Partial: in.partial,
	}
	pulse := s.pulse("plan: lower bound")
	bound, ok := await(ctx, func() placement.Bound { return placement.LowerBound(in.problem(c.Sharing.options())) })
	pulse.stop()
	if !ok {
		study.interrupt("before the lower bound was found")
		return study
	}
	study.Bound = planBound{GPUs: bound.GPUs, Kind: bound.Kind, whole: bound.Whole()}
	for _, m := range methods {
		pulse := s.pulse("plan: " + m.Name)
		done, ok := await(ctx, func() packed { return c.pack(ctx, s, in, m, pulse) })
		pulse.stop()
		if !ok || interrupted(done.err) {
			study.interrupt("in method " + m.Name)
			return study
		}
		study.add(done)
	}
	if in.timed && !study.Partial {
		study.overTime(ctx, s, c, in, methods)
	}
	return study
}

// packed is what one method made of the jobs.
type packed struct {
	method  placement.Method
	problem *placement.Problem
	packing *placement.Packing
	figures placement.Figures
	limits  []placement.Limit
	err     error
	seconds float64
}

// pack runs one method on a problem of its own.
func (c *planCommand) pack(ctx context.Context, s *session, in *planInput, m placement.Method, at *pulse) packed {
	p := in.problem(c.Sharing.options())
	p.Progress = at.report
	start := s.clock()
	q, err := m.Pack(ctx, p)
	r := packed{method: m, problem: p, packing: q, err: err, seconds: s.clock().Sub(start).Seconds()}
	if err == nil {
		r.figures, r.limits = p.Figures(q), p.Limits(q)
	}
	return r
}

func workersOf(jobs []cluster.Job) int {
	n := 0
	for j := range jobs {
		n += jobs[j].Workers
	}
	return n
}

// floorsOf says in words which floors the jobs have.
func floorsOf(jobs []cluster.Job) string {
	if len(jobs) == 0 {
		return "no floor"
	}
	least, most := 1.0, 0.0
	for j := range jobs {
		least, most = min(least, jobs[j].Floor), max(most, jobs[j].Floor)
	}
	if least >= most {
		return fmt.Sprintf("floor %g %%", roundPercent(least))
	}
	return fmt.Sprintf("floors %g to %g %%", roundPercent(least), roundPercent(most))
}
