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
	"weft.dev/weft/internal/trace"
)

// planCommand packs the jobs of a file by every method and says how far each is from a proven lower bound.
type planCommand struct {
	Jobs    string       `arg:"" placeholder:"JOBS.csv" help:"Jobs, one a row: id, model, and optionally batch, workers, floor, class, priority, user, submit_s, duration_s, memory_mib, persistent_mib, profile, gpu_util. - reads the standard input."`
	Read    jobFlags     `embed:""`
	Sharing sharingFlags `embed:""`
	Method  []string     `default:"dedicated,peak,greedy,heuristic,exact,lp" help:"Methods to compare."`
	JSON    bool         `name:"json" help:"Write JSON for programs."`
	Out     string       `type:"path" placeholder:"FILE" help:"Write the best method's placement as JSON."`
}

// Help is what weft plan --help adds.
func (planCommand) Help() string {
	return `Examples:
  weft generate --jobs 500 > jobs.csv && weft plan jobs.csv --floor 0.85
  weft plan jobs.csv --interference pairs.csv --gpu-model p100 --floor 0.85
  weft plan log.txt --format sacct --models names.csv --gpu-memory 40GiB
  weft plan jobs.csv --method greedy --out plan.json --json`
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
	in, err := c.read(ctx, s)
	if err != nil {
		return asInput(err, c.JSON)
	}
	var out *planFile
	if c.Out != "" {
		if out, err = newPlanFile(c.Out); err != nil {
			return asInput(err, c.JSON)
		}
	}
	study := c.study(ctx, s, in, methods)
	s.progress.Done()
	if c.JSON {
		s.writeJSON(study)
	} else if err := study.write(s); err != nil {
		return err
	}
	if out != nil {
		if err := out.write(study); err != nil {
			return asInput(err, c.JSON)
		}
	}
	if study.Partial {
		return errPartial
	}
	return nil
}

// check verifies the flags and finds the methods.
func (c *planCommand) check() ([]placement.Method, error) {
	if err := errors.Join(c.Read.check(), c.Sharing.check()); err != nil {
		return nil, err
	}
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
			return nil, flagError("--method", name, fmt.Sprintf("unknown method %q", name), "", "one of "+strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// read reads the jobs and pairs, and sets aside jobs that no GPU can hold.
func (c *planCommand) read(ctx context.Context, s *session) (*planInput, error) {
	table, notes, err := c.Sharing.table()
	if err != nil {
		return nil, err
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
	in.note(c, stated)
	return in, nil
}

// keepFitting keeps the jobs that one GPU each can hold.
func (c *planCommand) keepFitting(in *planInput, jobs []cluster.Job, profiles []profile.Profile) {
	limit := c.Sharing.GPUMemory
	var named []string
	for j := range jobs {
		if limit > 0 && profiles[j].Peak() > limit {
			in.excluded.Count("TooLarge: fits no GPU", 1)
			if len(named) < 3 {
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
func (in *planInput) note(c *planCommand, memoryStated bool) {
	switch {
	case c.Sharing.GPUMemory == 0 && memoryStated:
		in.notes = append(in.notes, "no --gpu-memory: memory is no limit, peak = greedy")
	case !memoryStated:
		in.notes = append(in.notes, "no memory column: peak = greedy")
	}
	p := in.problem(c.Sharing.options())
	unmeasured, incompatible := p.Lonely()
	if n := len(unmeasured); n > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%d jobs have no measured pair (%s): not shared", n, modelsOf(in.jobs, unmeasured)))
	}
	if n := len(incompatible); n > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%d jobs (%s) can share with nobody under these floors", n, modelsOf(in.jobs, incompatible)))
	}
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

// study runs the methods one after the other. An interruption leaves out the methods that had not finished.
func (c *planCommand) study(ctx context.Context, s *session, in *planInput, methods []placement.Method) *planStudy {
	p := in.problem(c.Sharing.options())
	study := &planStudy{
		Schema: 1, Jobs: len(in.jobs), Workers: p.Workers(), Excluded: in.excluded, Notes: in.notes,
		floors: floorsOf(in.jobs), residents: c.Sharing.MaxResidents, problem: p, Partial: in.partial,
	}
	s.progress.Report("plan: lower bound", 0, 0, "")
	bound := placement.LowerBound(p)
	study.Bound = planBound{GPUs: bound.GPUs, Kind: bound.Kind, whole: bound.Whole()}
	for _, m := range methods {
		p.Progress = func(done, total int) { s.progress.Report("plan: "+m.Name, done, total, "jobs") }
		start := s.clock()
		q, err := m.Pack(ctx, p)
		seconds := s.clock().Sub(start).Seconds()
		if interrupted(err) {
			study.Partial = true
			break
		}
		study.add(m, q, err, seconds)
	}
	if in.timed && !study.Partial {
		study.overTime(ctx, s, c, in, methods)
	}
	return study
}

// floorsOf says in words which floors the jobs have.
func floorsOf(jobs []cluster.Job) string {
	least, most := 1.0, 0.0
	for j := range jobs {
		least, most = min(least, jobs[j].Floor), max(most, jobs[j].Floor)
	}
	if least >= most {
		return fmt.Sprintf("floor %g %%", roundPercent(least))
	}
	return fmt.Sprintf("floors %g to %g %%", roundPercent(least), roundPercent(most))
}
