package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// memorySource is the source whose configurations are packed, and memoryCopies how many jobs each becomes: 33
// configurations whose peaks spread over what one GPU holds make 264 jobs, enough that one GPU is less than a percent.
const (
	memorySource = "salus"
	memoryCopies = 8
)

// catalogueMemoryCommand says what packing by the distribution of memory saves against packing by its peak.
type catalogueMemoryCommand struct {
	GPUMemory    []unit.Bytes `name:"gpu-memory" default:"11GiB,16GiB,24GiB,40GiB,80GiB" help:"Usable memory of each GPU; several are compared."`
	Epsilon      []float64    `default:"0.01,0.05,0.10" help:"Accepted probabilities that jobs want more memory than the GPU has, each in [0, 1)."`
	Shape        string       `default:"resnet50-w0" help:"Measured shape that every job is assumed to have."`
	Persistent   float64      `default:"0.1" help:"Share of the measured peak that is assumed to be always held, in [0, 1]."`
	Context      unit.Bytes   `default:"500MiB" help:"What each process is assumed to hold besides, always."`
	MaxResidents int          `default:"4" help:"Most jobs on one GPU, 1 to 8."`
	JSON         bool         `name:"json" help:"Write JSON for programs."`
}

// Help is what weft catalogue memory --help adds.
func (catalogueMemoryCommand) Help() string {
	return `Packs 8 jobs of each of the 33 CNN configurations of the catalogue whose peak memory the Salus authors measured, as
if they did not slow each other down. It takes seconds, and far longer with more than 4 residents. docs/memory.md
explains the figures.

Examples:
  weft catalogue memory
  weft catalogue memory --gpu-memory 11GiB --epsilon 0.1 --persistent 0`
}

// check verifies the flags.
func (c *catalogueMemoryCommand) check() error {
	for _, m := range c.GPUMemory {
		if m <= 0 {
			return flagError("--gpu-memory", m.String(), "a GPU without memory holds no job", "", "11GiB,16GiB")
		}
		if err := checkGPUMemory(m); err != nil {
			return err
		}
	}
	for _, e := range c.Epsilon {
		if err := (&sharingFlags{MaxResidents: c.MaxResidents, Epsilon: e}).check(); err != nil {
			return err
		}
	}
	if _, ok := profile.NamedShape(c.Shape); !ok {
		return flagError("--shape", c.Shape, fmt.Sprintf("no shape %q", c.Shape), "a shape is how memory is spread over an iteration",
			"one of "+strings.Join(profile.ShapeNames(), ", "))
	}
	if !(c.Persistent >= 0 && c.Persistent <= 1) {
		return flagError("--persistent", fmt.Sprint(c.Persistent), fmt.Sprintf("a share of %v is outside [0, 1]", c.Persistent), "", "0.1 for a tenth")
	}
	return nil
}

// memoryStudy is the answer: what --json writes and the table shows.
type memoryStudy struct {
	Schema         int         `json:"schema"`
	Source         string      `json:"source"`
	Configurations int         `json:"configurations"`
	Copies         int         `json:"copies"`
	Shape          string      `json:"shape"`
	Persistent     float64     `json:"persistent_fraction"`
	Context        unit.Bytes  `json:"context_bytes"`
	MaxResidents   int         `json:"max_residents"`
	Rows           []memoryRow `json:"rows"`
	Partial        bool        `json:"partial,omitempty"`
}

// memoryRow is one GPU size at one epsilon.
type memoryRow struct {
	GPUMemory unit.Bytes   `json:"gpu_memory_bytes"`
	Jobs      int          `json:"jobs"` // that fit such a GPU alone
	Epsilon   float64      `json:"epsilon"`
	Peak      memoryAnswer `json:"peak"`
	Two       memoryAnswer `json:"two_levels"`
	Full      memoryAnswer `json:"all_levels"`
	Saved     float64      `json:"saved_fraction"` // of the GPUs that packing by peak needs
	Limit     string       `json:"limit"`          // what keeps the last answer from being less
}

// memoryAnswer is how many GPUs each method needs, and the bound below which no method can come. LP is null where the
// heuristic already meets the bound.
type memoryAnswer struct {
	GPUs      int     `json:"gpus"`
	Greedy    int     `json:"greedy"`
	Heuristic int     `json:"heuristic"`
	LP        *int    `json:"lp"`
	Bound     float64 `json:"bound"`
}

// Run implements the command.
func (c *catalogueMemoryCommand) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return asInput(err, c.JSON)
	}
	study, err := c.study(ctx, s)
	if err != nil && !interrupted(err) {
		return err
	}
	study.Partial = err != nil
	s.progress.Done()
	if c.JSON {
		s.writeJSON(study)
	} else if err := study.write(s); err != nil {
		return err
	}
	if study.Partial {
		return errPartial
	}
	return nil
}

func (c *catalogueMemoryCommand) study(ctx context.Context, s *session) (*memoryStudy, error) {
	configs := memoryConfigs()
	study := &memoryStudy{Schema: 1, Source: memorySource, Configurations: len(configs), Copies: memoryCopies, Shape: c.Shape,
		Persistent: c.Persistent, Context: c.Context, MaxResidents: c.MaxResidents, Rows: []memoryRow{}}
	shape, _ := profile.NamedShape(c.Shape)
	for i, gpu := range c.GPUMemory {
		at := memoryAt{c: c, configs: configs, gpu: gpu}
		peak, err := at.answer(ctx, nil, 0)
		if err != nil {
			return study, err
		}
		for j, epsilon := range c.Epsilon {
			s.progress.Report("memory: "+gpu.String(), i*len(c.Epsilon)+j, len(c.GPUMemory)*len(c.Epsilon), "rows")
			row := memoryRow{GPUMemory: gpu, Jobs: at.fitting(), Epsilon: epsilon, Peak: peak}
			if row.Two, err = at.answer(ctx, twoLevels(shape), epsilon); err != nil {
				return study, err
			}
			if row.Full, err = at.answer(ctx, shape, epsilon); err != nil {
				return study, err
			}
			if peak.GPUs > 0 {
				row.Saved = 1 - float64(row.Full.GPUs)/float64(peak.GPUs)
			}
			row.Limit = "memory"
			if full := (row.Jobs + c.MaxResidents - 1) / c.MaxResidents; row.Full.GPUs == full {
				row.Limit = "residents"
			}
			study.Rows = append(study.Rows, row)
		}
	}
	return study, nil
}

// memoryConfigs are the configurations to pack.
func memoryConfigs() []catalogue.Entry {
	var list []catalogue.Entry
	for _, e := range catalogue.All() {
		if e.Source == memorySource {
			list = append(list, e)
		}
	}
	return list
}

// twoLevels is a shape with its time up to and above half of the swing only, quantised to their upper edges.
func twoLevels(shape profile.Shape) profile.Shape {
	if len(shape) == 0 {
		return nil
	}
	two := make(profile.Shape, 2)
	for i, fraction := range shape {
		two[i*2/len(shape)] += fraction
	}
	return two
}

// memoryAt is the jobs on one size of GPU.
type memoryAt struct {
	c       *catalogueMemoryCommand
	configs []catalogue.Entry
	gpu     unit.Bytes
}

// fitting counts the jobs that fit a GPU alone.
func (m memoryAt) fitting() int {
	n := 0
	for _, e := range m.configs {
		if m.c.Context.Add(e.Peak) <= m.gpu {
			n += memoryCopies
		}
	}
	return n
}

// problem is the jobs that fit, with memory of a shape and without interference: all run one model that does not slow
// itself down.
func (m memoryAt) problem(shape profile.Shape, epsilon float64) *placement.Problem {
	table := interference.NewTable()
	table.Add(interference.Config{Model: memorySource}, interference.Config{Model: memorySource}, 1, 1)
	var jobs []cluster.Job
	var profiles []profile.Profile
	for _, e := range m.configs {
		if m.c.Context.Add(e.Peak) > m.gpu {
			continue
		}
		persistent := m.c.Context.Add(unit.Bytes(math.Ceil(float64(e.Peak) * m.c.Persistent)))
		p := profile.New(persistent, m.c.Context.Add(e.Peak), shape)
		for copy := range memoryCopies {
			jobs = append(jobs, cluster.Job{ID: fmt.Sprintf("%s:%s:%d", e.Model, e.Batch, copy), Model: memorySource, Workers: 1, Floor: 1})
			profiles = append(profiles, p)
		}
	}
	return placement.NewProblem(jobs, table, profiles,
		placement.Options{GPUMemory: m.gpu, MaxResidents: m.c.MaxResidents, Epsilon: epsilon})
}

// answer packs the jobs by each method.
func (m memoryAt) answer(ctx context.Context, shape profile.Shape, epsilon float64) (memoryAnswer, error) {
	p := m.problem(shape, epsilon)
	greedy, err := placement.Greedy(ctx, p)
	if err != nil {
		return memoryAnswer{}, err
	}
	heuristic, err := placement.Heuristic(ctx, p)
	if err != nil {
		return memoryAnswer{}, err
	}
	bound := placement.LowerBound(p)
	a := memoryAnswer{GPUs: len(heuristic.GPUs), Greedy: len(greedy.GPUs), Heuristic: len(heuristic.GPUs), Bound: bound.GPUs}
	if a.GPUs > bound.Whole() {
		lp, err := placement.LP(ctx, p)
		if err != nil {
			return memoryAnswer{}, err
		}
		n := len(lp.GPUs)
		a.LP, a.GPUs = &n, min(a.GPUs, n)
	}
	return a, nil
}

// write shows the study to a person.
func (m *memoryStudy) write(s *session) error {
	_, _ = fmt.Fprintf(s.stdout, "%d configurations x %d jobs, up to %d residents, no interference. Assumed of each job: %s and %s of its peak\nalways held, the rest as %s.\n\n",
		m.Configurations, m.Copies, m.MaxResidents, m.Context, report.Percent(m.Persistent), m.Shape)
	t := &report.Table{Columns: []report.Column{
		{Title: "GPU"}, {Title: "JOBS", Number: true}, {Title: "EPSILON", Number: true}, {Title: "PEAK", Number: true},
		{Title: "2 LEVELS", Number: true}, {Title: "ALL LEVELS", Number: true}, {Title: "BOUND", Number: true},
		{Title: "SAVED", Number: true}, {Title: "LIMIT"},
	}}
	for _, r := range m.Rows {
		t.Rows = append(t.Rows, report.Cells(r.GPUMemory.String(), report.Count(r.Jobs), fmt.Sprintf("%.2f", r.Epsilon),
			report.Count(r.Peak.GPUs), report.Count(r.Two.GPUs), report.Count(r.Full.GPUs), report.Tenths(r.Full.Bound),
			report.PercentTenths(r.Saved), r.Limit))
	}
	return t.Write(s.stdout, s.screen)
}
