package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// catalogueCommand looks into the catalogue of measured models.
type catalogueCommand struct {
	List   catalogueListCommand   `cmd:"" default:"withargs" help:"List the catalogue, or what TEXT finds in it."`
	Memory catalogueMemoryCommand `cmd:"" help:"GPUs that the measured CNNs need when packed by peak memory and by its distribution."`
}

// catalogueListCommand lists and searches the catalogue.
type catalogueListCommand struct {
	Text string `arg:"" optional:"" help:"Part of a name (model:batch), GPU or source, in any case."`
	GPU  string `name:"gpu" placeholder:"G" help:"Keep one GPU model: k80, p100, v100, t4, a100, a100-40gb."`
	JSON bool   `name:"json" help:"Write JSON for programs."`
}

// Help is what weft catalogue list --help adds.
func (catalogueListCommand) Help() string {
	return `Figures were measured by others on one GPU, alone; docs/catalogue.md says by whom and how. A dash is unknown.

Examples:
  weft catalogue resnet
  weft catalogue vit --gpu v100
  weft catalogue salus --json`
}

// catalogueEntry is an entry as --json writes it; unknown figures are null.
type catalogueEntry struct {
	Model      string      `json:"model"`
	Batch      string      `json:"batch"`
	GPU        *string     `json:"gpu"`
	Rate       *float64    `json:"rate"`
	GPUUtil    *float64    `json:"gpu_util_fraction"`
	MemUtil    *float64    `json:"mem_util_fraction"`
	Persistent *unit.Bytes `json:"persistent_bytes"`
	Peak       *unit.Bytes `json:"peak_bytes"`
	Shape      *string     `json:"shape"`
	Source     string      `json:"source"`
	Licence    string      `json:"licence"`
}

// Run implements the command.
func (c *catalogueListCommand) Run(s *session) error {
	found := catalogue.Search(c.Text)
	if c.GPU != "" {
		found = slices.DeleteFunc(found, func(e catalogue.Entry) bool { return !strings.EqualFold(e.GPU, c.GPU) })
	}
	if len(found) == 0 {
		return c.missing()
	}
	if c.JSON {
		list := make([]catalogueEntry, len(found))
		for i, e := range found {
			list[i] = catalogueEntry{e.Model, e.Batch, known(e.GPU), known(e.Rate), known(e.GPUUtil), known(e.MemUtil),
				known(e.Persistent), known(e.Peak), known(e.Shape), e.Source, e.Licence}
		}
		s.writeJSON(map[string]any{"schema": 1, "entries": list})
		return nil
	}
	if err := catalogueTable(found).Write(s.stdout, s.screen); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.stdout, "\n%s of %s entries. RATE is steps per second alone; - is unknown.\n",
		report.Count(len(found)), report.Count(len(catalogue.All())))
	return err
}

// known is nil for the zero value, which stands for unknown.
func known[T comparable](v T) *T {
	var unknown T
	if v == unknown {
		return nil
	}
	return &v
}

// missing says that nothing was found, and what there is.
func (c *catalogueListCommand) missing() error {
	var models, gpus []string
	for _, e := range catalogue.All() {
		models = appendNew(models, e.Model)
		if e.GPU != "" {
			gpus = appendNew(gpus, e.GPU)
		}
	}
	slices.Sort(gpus)
	what := ""
	if c.Text != "" {
		what = fmt.Sprintf(" for %q", c.Text)
	}
	if c.GPU != "" {
		what += fmt.Sprintf(" on GPU %q", c.GPU)
	}
	return &failure{inputError{trace.Errors{{Code: "not_found", Message: "nothing in the catalogue" + what,
		File: "catalogue", Value: c.Text,
		Why: "an unknown configuration counts as one that needs the whole GPU",
		Fix: fmt.Sprintf("weft catalogue lists its %d models; GPUs: %s", len(models), strings.Join(gpus, ", "))}}, c.JSON}, exitNotFound}
}

func catalogueTable(entries []catalogue.Entry) *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Title: "NAME", Shrink: true}, {Title: "BATCH", Number: true}, {Title: "GPU"}, {Title: "RATE", Number: true},
		{Title: "GPU UTIL", Number: true}, {Title: "MEM UTIL", Number: true}, {Title: "PEAK", Number: true},
		{Title: "SOURCE"}, {Title: "SHAPE", Wide: true}, {Title: "LICENCE", Wide: true},
	}}
	for _, e := range entries {
		t.Rows = append(t.Rows, report.Cells(e.Model, orNone(e.Batch), orNone(e.GPU), figure(e.Rate), share(e.GPUUtil),
			share(e.MemUtil), memoryCell(e.Peak), e.Source, orNone(e.Shape), e.Licence))
	}
	return t
}

func orNone(s string) string {
	if s == "" {
		return report.None
	}
	return s
}

// figure writes a figure of the catalogue with the digits that it has.
func figure(v float64) string {
	if v == 0 {
		return report.None
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func share(v float64) string {
	if v == 0 {
		return report.None
	}
	return report.Percent(v)
}

func memoryCell(b unit.Bytes) string {
	if b == 0 {
		return report.None
	}
	return b.String()
}
