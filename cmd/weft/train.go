package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/interference/train"
	"weft.dev/weft/internal/trace"
)

// trainCommand fits an interference model to measured pairs and says how far to trust it.
type trainCommand struct {
	Pairs    string   `arg:"" placeholder:"PAIRS.csv" help:"Measured pairs: job_a, batch_a, job_b, batch_b, norm_a, norm_b, and optionally source, gpu_type, alone_a, gpu_util_a, mem_util_a, memory_mib_a and the same of b. - reads the standard input."`
	Source   []string `placeholder:"S" help:"Keep the pairs of these sources."`
	Out      string   `placeholder:"FILE" help:"Write the model as JSON."`
	Report   string   `placeholder:"FILE" help:"Write the figures as one HTML page."`
	Coverage float64  `default:"0.9" help:"Share of rates that the lower bound must hold for, in (0.5, 1)."`
	Learner  []string `placeholder:"L" help:"Judge these learners only; the model is always the first: ${learners}."`
	Seed     uint64   `default:"42" help:"Seed of every random choice."`
	JSON     bool     `name:"json" help:"Write JSON for programs."`
}

// Help is what weft train --help adds.
func (trainCommand) Help() string {
	return `Each learner is judged on pairs that it has not seen: random pairs, every pair of a model, of a GPU model, of a source.
docs/predict.md explains the figures.

Examples:
  weft train pairs.csv --out model.json --report report.html
  weft train pairs.csv --source mine --learner gbdt --json
  weft predict --model model.json --evaluate others.csv`
}

// Run implements the command.
func (c *trainCommand) Run(ctx context.Context, s *session) error {
	err := c.run(ctx, s)
	return asInput(err, c.JSON)
}

func (c *trainCommand) run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	pairs, notes, err := s.readMeasured(c.Pairs, c.Source)
	if err != nil {
		return err
	}
	if len(pairs) < train.LeastPairs {
		return flagError("PAIRS.csv", c.Pairs, fmt.Sprintf("%d pairs are too few to hold any out", len(pairs)), "",
			fmt.Sprintf("measure at least %d pairs, or use the built-in model", train.LeastPairs))
	}
	outputs, err := c.open()
	if err != nil {
		return err
	}
	defer outputs.drop()
	splits, m, err := train.Study(ctx, pairs, train.Options{Coverage: c.Coverage, Seed: c.Seed, Learners: c.Learner,
		Progress: func(done, total int) { s.progress.Report("train", done, total, "fits") }})
	s.progress.Done()
	if err != nil {
		return err
	}
	study := &trainStudy{pairs: pairs, splits: splits, model: m, notes: notes, coverage: c.Coverage}
	if err := outputs.write(study, s); err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(study.document())
		return nil
	}
	return study.write(s)
}

func (c *trainCommand) check() error {
	if !(c.Coverage > 0.5 && c.Coverage < 1) {
		return flagError("--coverage", fmt.Sprint(c.Coverage), fmt.Sprintf("coverage %v is outside (0.5, 1)", c.Coverage),
			"it is the share of rates that a lower bound holds for", "0.9")
	}
	names := learnerNames()
	for _, l := range c.Learner {
		if !slices.Contains(names, l) {
			return flagError("--learner", l, fmt.Sprintf("unknown learner %q", l), "", "one of "+strings.Join(names, ", "))
		}
	}
	return nil
}

func learnerNames() []string {
	var names []string
	for _, l := range train.Learners() {
		names = append(names, l.Name)
	}
	return names
}

// trainOutputs are the files to write; nil ones were not asked for.
type trainOutputs struct{ model, report *target }

func (c *trainCommand) open() (o trainOutputs, err error) {
	if c.Out != "" {
		if o.model, err = openTarget(c.Out); err != nil {
			return o, err
		}
	}
	if c.Report != "" {
		if o.report, err = openTarget(c.Report); err != nil {
			o.model.drop()
			return o, err
		}
	}
	return o, nil
}

func (o *trainOutputs) drop() {
	o.model.drop()
	o.report.drop()
}

func (o *trainOutputs) write(study *trainStudy, s *session) error {
	if o.model != nil {
		text, err := study.model.Encode()
		if err != nil {
			return err
		}
		if err := o.model.write(func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return err
		}
	}
	if o.report != nil {
		return o.report.write(func(w io.Writer) error { return study.page(w, s) })
	}
	return nil
}

// unnamedSource is the source of pairs in a table that names none.
const unnamedSource = "unnamed"

// readMeasured reads measured pairs, of some sources if any are named.
func (s *session) readMeasured(path string, sources []string) ([]train.Pair, []string, error) {
	r, err := s.open(path)
	if err != nil {
		return nil, nil, err
	}
	table, err := trace.ReadMeasuredPairs(path, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, nil, err
	}
	var pairs []train.Pair
	var found []string
	for _, p := range table.Pairs {
		if p.Source == "" {
			p.Source = unnamedSource
		}
		found = appendNew(found, p.Source)
		if len(sources) == 0 || slices.Contains(sources, p.Source) {
			pairs = append(pairs, trainPair(p))
		}
	}
	for _, source := range sources {
		if !slices.Contains(found, source) {
			return nil, nil, flagError("--source", source, fmt.Sprintf("%s holds no pair of source %q", path, source), "",
				"one of "+strings.Join(found, ", "))
		}
	}
	if len(pairs) == 0 {
		return nil, nil, flagError("PAIRS.csv", path, path+" holds no pair", "", "write one measured pair a row")
	}
	return pairs, table.Notes, nil
}

func trainPair(p trace.MeasuredPair) train.Pair {
	alone := func(a trace.Alone) model.Job {
		return model.Job{Rate: a.Rate, GPUUtil: a.GPUUtil, MemUtil: a.MemUtil, MemoryMiB: a.MemoryMiB}
	}
	return train.Pair{
		Source: p.Source, GPU: strings.ToLower(p.GPU),
		A: interference.Config{Model: p.JobA, Batch: p.BatchA}, B: interference.Config{Model: p.JobB, Batch: p.BatchB},
		AloneA: alone(p.AloneA), AloneB: alone(p.AloneB), MemoryMiB: p.MemoryMiB,
		Doubted: p.AloneA.Doubted || p.AloneB.Doubted, RateA: p.NormA, RateB: p.NormB,
	}
}
