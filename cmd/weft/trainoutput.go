package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/interference/train"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/accuracy"
)

// trainStudy is what weft train found.
type trainStudy struct {
	pairs    []train.Pair
	splits   []train.Split
	model    *model.Model
	notes    []string
	coverage float64
}

// judgedFigures are figures as --json writes them. The false-admit rate where nothing is admitted is 0.
type judgedFigures struct {
	N          int                `json:"n"`
	MAE        float64            `json:"mae"`
	R2         *float64           `json:"r2"`
	Coverage   float64            `json:"coverage"`
	FalseAdmit map[string]float64 `json:"false_admit"`
	Admitted   map[string]int     `json:"admitted"`
	Possible   map[string]int     `json:"admissible"`
}

func figuresOf(f train.Figures) judgedFigures {
	out := judgedFigures{N: f.N, MAE: f.MAE, Coverage: f.Coverage, FalseAdmit: map[string]float64{}, Admitted: map[string]int{},
		Possible: map[string]int{}}
	if !math.IsNaN(f.R2) {
		out.R2 = &f.R2
	}
	for k, floor := range train.Floors {
		name := fmt.Sprint(floor)
		out.Admitted[name], out.Possible[name] = f.Admitted[k], f.Possible[k]
		if out.FalseAdmit[name] = f.False[k]; math.IsNaN(f.False[k]) {
			out.FalseAdmit[name] = 0
		}
	}
	return out
}

// judgedSplit is one split as --json writes it.
type judgedSplit struct {
	Split   string `json:"split"`
	Source  string `json:"source"`
	GPU     string `json:"gpu_model"`
	Learner string `json:"learner"`
	judgedFigures
}

// trainDocument is the form of --json.
type trainDocument struct {
	Schema   int           `json:"schema"`
	Pairs    int           `json:"pairs"`
	Coverage float64       `json:"nominal_coverage"`
	Default  string        `json:"default_learner"`
	Notes    []string      `json:"notes"`
	Splits   []judgedSplit `json:"splits"`
}

func (t *trainStudy) document() trainDocument {
	d := trainDocument{Schema: 1, Pairs: len(t.pairs), Coverage: t.coverage, Default: learnerNames()[0],
		Notes: append([]string{}, t.notes...), Splits: []judgedSplit{}}
	for _, x := range t.splits {
		d.Splits = append(d.Splits, judgedSplit{x.Split, x.Source, x.GPU, x.Learner, figuresOf(x.Figures)})
	}
	return d
}

// write writes the table: the default learner on every GPU model, the others pooled.
func (t *trainStudy) write(s *session) error {
	if _, err := fmt.Fprintf(s.stdout, "%s pairs, lower bounds at %s coverage\n\n", report.Count(len(t.pairs)), report.Percent(t.coverage)); err != nil {
		return err
	}
	if err := t.table().Write(s.stdout, s.screen); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.stdout, "\n"+t.verdict()); err != nil {
		return err
	}
	for _, n := range t.notes {
		if _, err := fmt.Fprintln(s.stderr, "note:", n); err != nil {
			return err
		}
	}
	return nil
}

func (t *trainStudy) table() *report.Table {
	table := &report.Table{Columns: []report.Column{
		{Title: "HELD OUT", Meaning: "What the fit had not seen: random pairs, every pair of a model (after 0, 1 or 2 measured pairs of the job), of a GPU model, of a source."},
		{Title: "SOURCE", Shrink: true, Meaning: "Whose measurements; for sources, the one held out."},
		{Title: "GPU"}, {Title: "LEARNER"},
		{Title: "N", Number: true, Meaning: "Predicted rates: two of each pair, for each model held out."},
		{Title: "MAE", Number: true, Meaning: "Mean absolute error of the rate, a share of the rate alone."},
		{Title: "R2", Number: true, Meaning: "Share of the variance explained; below 0 the mean rate would have been better."},
		{Title: "COVERED", Number: true, Meaning: "Share of rates at or above their lower bound."},
		{Title: "ADMITTED", Number: true, Meaning: "Rates whose bound reaches a floor of 80 %, of those that do reach it."},
		{Title: "FALSE 0.8", Number: true, Meaning: "Of the admitted at a floor of 80 %, the share below it."},
	}}
	for _, floor := range train.Floors[1:] {
		table.Columns = append(table.Columns, report.Column{Title: fmt.Sprintf("%g", floor), Number: true, Wide: true,
			Meaning: fmt.Sprintf("The same at a floor of %s.", report.Percent(floor))})
	}
	for _, x := range t.ordered() {
		table.Rows = append(table.Rows, t.row(x))
	}
	return table
}

// ordered are the splits to show, those of other learners pooled, by source and split so that learners stand together.
func (t *trainStudy) ordered() []train.Split {
	var shown []train.Split
	var sources, kinds []string
	for _, x := range t.splits {
		sources, kinds = appendNew(sources, x.Source), appendNew(kinds, x.Split)
		if x.GPU == train.AllGPUs || x.Learner == learnerNames()[0] {
			shown = append(shown, x)
		}
	}
	slices.SortStableFunc(shown, func(a, b train.Split) int {
		return cmp.Or(slices.Index(sources, a.Source)-slices.Index(sources, b.Source),
			slices.Index(kinds, a.Split)-slices.Index(kinds, b.Split))
	})
	return shown
}

func (t *trainStudy) row(x train.Split) []report.Cell {
	row := report.Cells(splitName(x.Split), x.Source, x.GPU, x.Learner, report.Count(x.N), fmt.Sprintf("%.3f", x.MAE),
		decimals(x.R2), report.PercentTenths(x.Coverage), fmt.Sprintf("%d/%d", x.Admitted[0], x.Possible[0]))
	if train.Exceeds(x.N-int(math.Round(x.Coverage*float64(x.N))), x.N, 1-t.coverage) {
		row[7].Mark = report.Bad
	}
	for k := range train.Floors {
		cell := report.Cell{Text: report.None}
		if x.Admitted[k] > 0 {
			cell.Text = report.PercentTenths(x.False[k])
			if train.Exceeds(int(math.Round(x.False[k]*float64(x.Admitted[k]))), x.Admitted[k], 1-t.coverage) {
				cell.Mark = report.Bad
			}
		}
		row = append(row, cell)
	}
	return row
}

// splitName is a split in the words of a person.
func splitName(split string) string {
	return map[string]string{
		train.RandomPairs: "random pairs", train.LeaveModel: "model", train.OneProbe: "model, 1 probe",
		train.TwoProbes: "model, 2 probes", train.LeaveGPU: "GPU model", train.LeaveSource: "source",
	}[split]
}

func decimals(v float64) string {
	if math.IsNaN(v) {
		return report.None
	}
	return fmt.Sprintf("%.2f", v)
}

// verdict says which learner has the least error where a model is new, of each source.
func (t *trainStudy) verdict() string {
	var parts []string
	for _, first := range train.Pooled(t.splits, train.LeaveModel, t.splits[0].Learner) {
		best, least := "", math.Inf(1)
		for _, x := range t.splits {
			if x.Split == train.LeaveModel && x.GPU == train.AllGPUs && x.Source == first.Source && x.MAE < least {
				best, least = x.Learner, x.MAE
			}
		}
		parts = append(parts, fmt.Sprintf("%s %s (%.3f)", first.Source, best, least))
	}
	if len(parts) == 0 {
		return "One model alone: none could be held out."
	}
	return "Least error on held-out models: " + strings.Join(parts, ", ") + "."
}

// page writes the HTML report.
func (t *trainStudy) page(w io.Writer, s *session) error {
	p := accuracy.Study{Title: "How far to trust the predictor", Command: "weft " + strings.Join(s.args, " "), Verdict: t.verdict(),
		Table: t.table(), Notes: t.notes, Floors: train.Floors, Coverage: t.coverage}
	for _, x := range t.splits {
		if x.GPU != train.AllGPUs || x.Learner != learnerNames()[0] {
			continue
		}
		c := accuracy.Chart{Title: "Held out: " + splitName(x.Split), Source: x.Source}
		for _, o := range x.Outcomes {
			c.Points = append(c.Points, accuracy.Point{Truth: o.Truth, Mean: o.Mean, Lower: o.Lower})
		}
		p.Charts = append(p.Charts, c)
	}
	return accuracy.HTML(w, p)
}
