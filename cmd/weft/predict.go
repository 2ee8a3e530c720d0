package main

import (
	"fmt"
	"io"
	"strings"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/interference/train"
	"weft.dev/weft/internal/trace"
)

// predictCommand says what one pair would lose, or how right a model is on measured pairs.
type predictCommand struct {
	A        string   `placeholder:"MODEL:BATCH" help:"One job."`
	B        string   `placeholder:"MODEL:BATCH" help:"The other job."`
	GPUModel string   `name:"gpu-model" placeholder:"M" help:"GPU model that they would share."`
	Probes   string   `placeholder:"PAIRS.csv" help:"Measured pairs of a job that the model does not know, on the same GPU model: one or two tell most of it."`
	Model    string   `placeholder:"FILE" help:"A model of weft train. Default: the built-in one."`
	Evaluate string   `placeholder:"PAIRS.csv" help:"Hold the model against measured pairs instead. - reads the standard input."`
	Source   []string `placeholder:"S" help:"Keep the pairs of these sources."`
	JSON     bool     `name:"json" help:"Write JSON for programs."`
}

// Help is what weft predict --help adds.
func (predictCommand) Help() string {
	return `A rate is a share of the job's rate alone. SAFE FLOOR holds with the model's coverage (90 % built in): admission uses it.

Examples:
  weft predict --a ResNet-18:16 --b Transformer:64 --gpu-model P100
  weft predict --a mine:32 --b LM:20 --gpu-model V100 --probes measured.csv
  weft predict --model model.json --evaluate pairs.csv --json`
}

// Run implements the command.
func (c *predictCommand) Run(s *session) error { return asInput(c.run(s), c.JSON) }

func (c *predictCommand) run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	m, err := readModel(c.Model)
	if err != nil {
		return err
	}
	if c.Evaluate != "" {
		return c.evaluate(s, m)
	}
	return c.answer(s, m)
}

func (c *predictCommand) check() error {
	const fix = "weft predict --a ResNet-18:16 --b Transformer:64 --gpu-model P100"
	switch {
	case c.Evaluate != "" && (c.A != "" || c.B != ""):
		return flagError("--evaluate", c.Evaluate, "--evaluate takes its pairs from the file", "", "leave out --a and --b")
	case c.Evaluate != "":
		return nil
	case c.A == "" || c.B == "":
		return flagError("--a, --b", "", "two jobs are needed", "interference is of a pair", fix)
	case c.GPUModel == "":
		return flagError("--gpu-model", "", "no GPU model", "a rate holds on one GPU model", fix)
	}
	return nil
}

// readModel reads a model file; without a name it is the built-in model.
func readModel(path string) (*model.Model, error) {
	if path == "" {
		return model.Default()
	}
	return readFile(path, func(file string, r io.Reader) (*model.Model, error) {
		text, err := io.ReadAll(io.LimitReader(r, maxModelBytes+1))
		if err != nil {
			return nil, err
		}
		if len(text) > maxModelBytes {
			return nil, modelFault(file, "larger than any model: more than 16 MiB")
		}
		m, err := model.Decode(text)
		if err != nil {
			return nil, modelFault(file, err.Error())
		}
		return m, nil
	})
}

// maxModelBytes is far above what weft train writes.
const maxModelBytes = 16 << 20

func modelFault(file, message string) error {
	return trace.Errors{{Code: "bad_model", Message: message, File: file, Fix: "make a model with weft train PAIRS.csv --out model.json"}}
}

// configOf is a job as people write it: MODEL or MODEL:BATCH.
func configOf(text string) interference.Config {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return interference.Config{Model: text}
	}
	return interference.Config{Model: text[:at], Batch: text[at+1:]}
}

// catalogueEntries are the catalogue's jobs as a model reads them.
func catalogueEntries() []model.Entry {
	var list []model.Entry
	for _, e := range catalogue.All() {
		list = append(list, model.Entry{Source: e.Source, GPU: e.GPU, Config: interference.Config{Model: e.Model, Batch: e.Batch},
			Job: model.Job{Rate: e.Rate, GPUUtil: e.GPUUtil, MemUtil: e.MemUtil, MemoryMiB: float64(e.Peak) / (1 << 20)}})
	}
	return list
}

// probesOf reads measured pairs of new jobs, and what they say of jobs that the model was not trained on.
func (c *predictCommand) probesOf(s *session, m *model.Model) ([]model.Probe, []model.Entry, []string, error) {
	if c.Probes == "" {
		return nil, nil, nil, nil
	}
	pairs, notes, err := s.readMeasured(c.Probes, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	var probes []model.Probe
	var entries []model.Entry
	for _, p := range pairs {
		if p.GPU == "" {
			p.GPU = strings.ToLower(c.GPUModel)
		}
		probes = append(probes, model.Probe{GPU: p.GPU, A: p.A, B: p.B, RateA: p.RateA, RateB: p.RateB})
		for _, e := range []model.Entry{{Config: p.A, Job: p.AloneA}, {Config: p.B, Job: p.AloneB}} {
			if e.GPU, e.Source = p.GPU, p.Source; !m.Trained(e.GPU, e.Config) {
				entries = append(entries, e)
			}
		}
	}
	return probes, entries, notes, nil
}

// answer predicts one pair.
func (c *predictCommand) answer(s *session, m *model.Model) error {
	probes, entries, notes, err := c.probesOf(s, m)
	if err != nil {
		return err
	}
	p := m.Predictor(append(entries, catalogueEntries()...), probes)
	a, b, gpu := configOf(c.A), configOf(c.B), strings.ToLower(c.GPUModel)
	out := &predictAnswer{coverage: m.Coverage, gpu: gpu, notes: notes, jobs: [2]predictedJob{
		predicted(p, "b", model.Query{GPU: gpu, Self: a, Partner: b}),
		predicted(p, "a", model.Query{GPU: gpu, Self: b, Partner: a}),
	}}
	for _, j := range out.jobs {
		for _, n := range j.Notes {
			out.notes = appendNew(out.notes, n)
		}
	}
	if c.JSON {
		s.writeJSON(out.document())
		return nil
	}
	return out.write(s)
}

// evaluate holds the model against measured pairs.
func (c *predictCommand) evaluate(s *session, m *model.Model) error {
	pairs, notes, err := s.readMeasured(c.Evaluate, c.Source)
	if err != nil {
		return err
	}
	outcomes, said := train.Evaluate(m, pairs)
	figures := figuresOf(train.Summarise(outcomes))
	notes = append(notes, said...)
	if c.JSON {
		s.writeJSON(struct {
			Schema int `json:"schema"`
			judgedFigures
			Nominal float64  `json:"nominal_coverage"`
			Notes   []string `json:"notes"`
		}{1, figures, m.Coverage, append([]string{}, notes...)})
		return nil
	}
	study := &trainStudy{coverage: m.Coverage, splits: []train.Split{{Split: "", Source: strings.Join(c.Source, ","),
		GPU: train.AllGPUs, Learner: "model", Figures: train.Summarise(outcomes)}}}
	if err := study.table().Write(s.stdout, s.screen); err != nil {
		return err
	}
	return writeNotes(s, notes)
}

// mostNotes is how many notes are written one by one.
const mostNotes = 8

func writeNotes(s *session, notes []string) error {
	for i, n := range notes {
		if i == mostNotes {
			n = fmt.Sprintf("and %d more like these", len(notes)-i)
		}
		if _, err := fmt.Fprintln(s.stderr, "note:", n); err != nil {
			return err
		}
		if i == mostNotes {
			break
		}
	}
	return nil
}
