package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/sim/pollux"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/workload"
)

// jobFlags say which jobs are read.
type jobFlags struct {
	Format        string      `default:"csv" help:"What the file is: ${formats}."`
	Models        string      `placeholder:"MAP.csv" help:"Names models for jobs without one: columns pattern, model, batch, profile."`
	Mix           string      `enum:",light,gentle,whole" default:"" help:"Draw a model for every job that still has none: of the 13 gentlest P100 configurations (light), the 8 gentlest of them (gentle), or all 26 (whole)."`
	MixSeed       uint64      `default:"42" help:"Equal seeds draw alike."`
	Rates         string      `placeholder:"FILE" help:"Standalone steps per second, for traces that state work in steps (gavel)."`
	VC            string      `name:"vc" placeholder:"ID" help:"Keep one virtual cluster."`
	From          trace.Bound `placeholder:"TIME" help:"Keep submissions from this date or second on."`
	To            trace.Bound `placeholder:"TIME" help:"Keep submissions before this date or second."`
	SubmitAt      *float64    `placeholder:"SECONDS" help:"Submit every job at this second."`
	Floor         float64     `default:"0.9" help:"Floor of jobs that state none: the least share of standalone speed, in (0, 1]."`
	IgnoreUnknown bool        `help:"Accept columns that weft does not know."`
}

// sharingFlags say when jobs may share a GPU.
type sharingFlags struct {
	Interference string     `placeholder:"PAIRS.csv" help:"Measured pairs: job_a, batch_a, job_b, batch_b, norm_a, norm_b. Default: the built-in pairs of --gpu-model."`
	Source       string     `placeholder:"S" help:"Keep the pairs of one source."`
	GPUModel     string     `name:"gpu-model" placeholder:"M" help:"Keep the pairs of one GPU model."`
	GPUMemory    unit.Bytes `name:"gpu-memory" placeholder:"16GiB" help:"Usable memory of each GPU. Default: memory is no limit."`
	MaxResidents int        `default:"4" help:"Most jobs on one GPU, 1 to 8."`
	Epsilon      float64    `default:"0.05" help:"Accepted probability that jobs want more memory than the GPU has, in [0, 1)."`
}

func (f *jobFlags) check() error {
	if !(f.Floor > 0 && f.Floor <= 1) {
		return flagError("--floor", fmt.Sprint(f.Floor), fmt.Sprintf("floor %v is outside (0, 1]", f.Floor),
			"a floor is a share of standalone speed", "0.9 for 90 %")
	}
	if !slices.Contains(trace.Formats(), f.Format) {
		return flagError("--format", f.Format, fmt.Sprintf("unknown format %q", f.Format), "",
			"one of "+strings.Join(trace.Formats(), ", "))
	}
	if f.From.Excludes(f.To) {
		return flagError("--from, --to", "", "--to is not after --from", "submissions in [from, to) are kept", "swap them, or leave one out")
	}
	if f.SubmitAt != nil && !(*f.SubmitAt >= 0 && *f.SubmitAt <= maxSubmitAt) {
		return flagError("--submit-at", fmt.Sprint(*f.SubmitAt), fmt.Sprintf("second %v is outside [0, %.0f]", *f.SubmitAt, maxSubmitAt),
			"virtual time begins at 0 and lasts 292 years", "0")
	}
	return nil
}

// maxSubmitAt is 100 years in seconds: later, the run time of jobs could leave virtual time.
const maxSubmitAt = 100 * 365.25 * 86400

func (f *sharingFlags) check() error {
	switch {
	case f.MaxResidents < 1 || f.MaxResidents > 8:
		return flagError("--max-residents", fmt.Sprint(f.MaxResidents), fmt.Sprintf("%d residents are outside [1, 8]", f.MaxResidents),
			"pair rates say little about more jobs on one GPU", "write 1 to 8")
	case !(f.Epsilon >= 0 && f.Epsilon < 1):
		return flagError("--epsilon", fmt.Sprint(f.Epsilon), fmt.Sprintf("epsilon %v is outside [0, 1)", f.Epsilon),
			"it is a probability; 0 packs by peak memory", "0.05")
	}
	return checkGPUMemory(f.GPUMemory)
}

// checkGPUMemory refuses what no GPU has, for it was meant in another unit. 0 is no limit.
func checkGPUMemory(b unit.Bytes) error {
	if b == 0 || b >= unit.MiB {
		return nil
	}
	return flagError("--gpu-memory", b.String(), fmt.Sprintf("no GPU has as little memory as %v", b),
		"a number without a unit is bytes", "write a unit, such as 16GiB")
}

// open is a file by name, or the standard input for "-". Reading it reports progress.
func (s *session) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return &counted{ReadCloser: io.NopCloser(s.stdin), s: s}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &counted{ReadCloser: f, s: s}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		r.total = info.Size()
	}
	return r, nil
}

// openUntil is open, with reads that an interruption ends: a terminal or a pipe may stay silent for ever.
func (s *session) openUntil(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := s.open(path)
	if c, ok := r.(*counted); ok && c.total == 0 {
		c.ReadCloser = prompt{c.ReadCloser, ctx}
	}
	return r, err
}

// prompt reads apart from its caller, and ends with its context.
type prompt struct {
	io.ReadCloser
	ctx context.Context
}

// Read implements io.Reader. A read that was abandoned keeps its own buffer.
func (p prompt) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	own := make([]byte, len(b))
	r, ok := await(p.ctx, func() result {
		n, err := p.ReadCloser.Read(own)
		return result{n, err}
	})
	if !ok {
		return 0, p.ctx.Err()
	}
	return copy(b, own[:r.n]), r.err
}

// counted reports how much of an input has been read.
type counted struct {
	io.ReadCloser
	s           *session
	done, total int64 // bytes; total is 0 when unknown
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.done += int64(n)
	c.s.progress.Report("read", int(c.done>>20), int(c.total>>20), "MiB")
	return n, err
}

// readInput reads the file that a command is about, or the standard input.
func readInput[T any](ctx context.Context, s *session, path string, read func(file string, r io.Reader) (T, error)) (T, error) {
	r, err := s.openUntil(ctx, path)
	if err != nil {
		var none T
		return none, err
	}
	defer func() { _ = r.Close() }() // only read from
	return read(path, r)
}

// readFile opens a file, reads it and closes it.
func readFile[T any](path string, read func(file string, r io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer func() { _ = f.Close() }() // only read from
	return read(path, f)
}

// readJobs reads the jobs of a file. A Pollux trace states no run times: they follow from the measurements beside it.
func (s *session) readJobs(ctx context.Context, path string, f *jobFlags) (*trace.Trace, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	if f.Format == "pollux" {
		profiles, err := readPolluxProfiles(path)
		if err != nil {
			return nil, err
		}
		options.PolluxDuration = pollux.Standalone(ctx, profiles, pollux.DefaultNodes, pollux.DefaultGPUsPerNode)
	}
	r, err := s.openUntil(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read from
	return trace.Read(ctx, f.Format, path, r, options)
}

func (f *jobFlags) options() (trace.Options, error) {
	o := trace.Options{From: f.From, To: f.To, VC: f.VC, IgnoreUnknown: f.IgnoreUnknown, DefaultFloor: f.Floor}
	if f.SubmitAt != nil {
		at := unit.Seconds(*f.SubmitAt)
		o.SubmitAt = &at
	}
	var err error
	if f.Models != "" {
		if o.Models, err = readFile(f.Models, trace.ReadModelMap); err != nil {
			return o, err
		}
	}
	if mix := workload.MixNamed(f.Mix); mix != nil {
		o.Draw = workload.Draw(mix, f.MixSeed)
	}
	if f.Rates != "" {
		o.Rates, err = readFile(f.Rates, func(file string, r io.Reader) (*trace.Rates, error) {
			return trace.ReadRates(file, r, trace.RateSource{})
		})
	}
	return o, err
}

// table is the pairs that jobs may share by, with notes on where they come from.
func (f *sharingFlags) table() (*interference.Table, []string, error) {
	if f.Interference == "" {
		return f.catalogue()
	}
	pairs, err := readFile(f.Interference, trace.ReadPairs)
	if err != nil {
		return nil, nil, err
	}
	return f.choose(pairs)
}

// catalogue is the built-in table of the GPU model, of the first one where none is named.
func (f *sharingFlags) catalogue() (*interference.Table, []string, error) {
	gpus := interference.CatalogueGPUs()
	gpu := strings.ToLower(f.GPUModel)
	if gpu == "" {
		gpu = gpus[0]
	}
	if !slices.Contains(gpus, gpu) {
		return nil, nil, flagError("--gpu-model", f.GPUModel, fmt.Sprintf("no built-in pairs for GPU model %q", f.GPUModel),
			"without measured pairs no two jobs may share", "give --interference PAIRS.csv, or one of "+strings.Join(gpus, ", "))
	}
	note := fmt.Sprintf("no --interference: pairs measured on one %s (Gavel, built in)", strings.ToUpper(gpu))
	return interference.Catalogue(gpu), []string{note}, nil
}

// choose keeps the pairs asked for. Where several sources measured a pair, the worse rates count.
func (f *sharingFlags) choose(pairs []trace.Pair) (*interference.Table, []string, error) {
	table := interference.NewTable()
	var sources, gpus, used []string
	for _, p := range pairs {
		sources, gpus = appendNew(sources, p.Source), appendNew(gpus, p.GPU)
		if f.Source != "" && p.Source != f.Source || f.GPUModel != "" && !strings.EqualFold(p.GPU, f.GPUModel) {
			continue
		}
		used = appendNew(used, p.Source)
		table.Add(interference.Config{Model: p.JobA, Batch: p.BatchA}, interference.Config{Model: p.JobB, Batch: p.BatchB},
			p.NormA, p.NormB)
	}
	if f.GPUModel == "" && len(gpus) > 1 {
		return nil, nil, flagError("--gpu-model", "", fmt.Sprintf("%s holds pairs of several GPU models", f.Interference),
			"a rate holds on the GPU it was measured on", "choose one with --gpu-model: "+strings.Join(gpus, ", "))
	}
	if len(used) == 0 {
		return nil, nil, flagError("--gpu-model", f.GPUModel, fmt.Sprintf("%s holds no pair of source %q and GPU model %q", f.Interference, f.Source, f.GPUModel),
			"without measured pairs no two jobs may share",
			fmt.Sprintf("sources: %s; GPU models: %s", strings.Join(sources, ", "), strings.Join(gpus, ", ")))
	}
	var notes []string
	if len(used) > 1 {
		notes = append(notes, fmt.Sprintf("pairs of %d sources (%s): where several measured a pair the worse rates count; --source keeps one",
			len(used), strings.Join(used, ", ")))
	}
	return table, notes, nil
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// interrupted says whether an error is the user's Ctrl-C.
func interrupted(err error) bool { return errors.Is(err, context.Canceled) }
