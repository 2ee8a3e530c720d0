package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
)

// planStudy is the answer of weft plan: what --json writes and the table shows.
type planStudy struct {
	Schema   int              `json:"schema"`
	Jobs     int              `json:"jobs"`
	Workers  int              `json:"workers"`
	Bound    planBound        `json:"bound"`
	Methods  []planMethod     `json:"methods"`
	OverTime []planOverTime   `json:"over_time,omitempty"`
	Excluded trace.Exclusions `json:"excluded"`
	Notes    []string         `json:"notes"`
	Partial  bool             `json:"partial,omitempty"`

	floors    string
	residents int
	span      string
	best      *packed // of the best method; nil while none finished
}

type planBound struct {
	GPUs  float64 `json:"gpus"`
	Kind  string  `json:"kind"`
	whole int
}

// planMethod is one method's figures. GPUs is null when the method was skipped.
type planMethod struct {
	Method      string   `json:"method"`
	GPUs        *int     `json:"gpus"`
	Saved       float64  `json:"saved"`
	Mean        float64  `json:"mean_performance"`
	Worst       float64  `json:"worst_performance"`
	P05         float64  `json:"p05_performance"`
	Broken      int      `json:"broken_floors"`
	AboveBound  float64  `json:"above_bound"` // GPUs / bound - 1
	Seconds     float64  `json:"seconds"`
	LimitedBy   []string `json:"limited_by,omitempty"`
	Skipped     string   `json:"skipped,omitempty"`
	label       string
	isDedicated bool
}

// planOverTime is one method's figures over the time of the log.
type planOverTime struct {
	Method   string  `json:"method"`
	Peak     int     `json:"peak_gpus"`
	Average  float64 `json:"average_gpus"`
	GPUHours float64 `json:"gpu_hours"`
	Saved    float64 `json:"saved"` // GPU-hours against dedicated GPUs
	Basis    string  `json:"basis"` // replay, or sampled
	note     string
	err      error
}

// add records what a method did.
func (s *planStudy) add(r packed) {
	row := planMethod{Method: r.method.Name, label: r.method.Label, Seconds: r.seconds, isDedicated: r.method.Name == "dedicated"}
	if r.err != nil { // a *placement.LimitError, or a problem outside a method's contract
		row.Skipped = r.err.Error()
		s.Notes = append(s.Notes, "skipped "+row.Skipped)
		s.Methods = append(s.Methods, row)
		return
	}
	f := r.figures
	row.GPUs, row.Saved, row.Mean, row.Worst, row.P05, row.Broken = &f.GPUs, f.Saved, f.MeanPerformance,
		f.WorstPerformance, f.P05Performance, f.BrokenFloors
	if s.Bound.GPUs > 0 {
		row.AboveBound = max(0, float64(f.GPUs)/s.Bound.GPUs-1)
	}
	if !row.isDedicated {
		for _, l := range r.limits {
			row.LimitedBy = append(row.LimitedBy, fmt.Sprintf("%s %s", l.Code, report.Percent(l.Share)))
		}
	}
	s.Methods = append(s.Methods, row)
	if s.best == nil || f.GPUs < s.best.figures.GPUs ||
		f.GPUs == s.best.figures.GPUs && f.MeanPerformance > s.best.figures.MeanPerformance {
		s.best = &r
	}
}

// interrupt marks the study partial and says where it was cut.
func (s *planStudy) interrupt(where string) {
	s.Partial = true
	s.Notes = append(s.Notes, "partial: interrupted "+where)
}

// write shows the study to a person.
func (s *planStudy) write(out *session) error {
	w := out.stdout
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	p("%s, %s, %s, up to %s\n", report.Several(s.Jobs, "job"), report.Several(s.Workers, "worker"), s.floors, report.Several(s.residents, "resident"))
	switch {
	case s.Partial && s.Bound.Kind == "":
		p("Interrupted before anything was planned.\n")
		s.writeNotes(out)
		return nil
	case s.Workers == 0:
		p("No job to place.\n")
		s.writeNotes(out)
		return nil
	}
	p("Lower bound %s GPUs (%s): no plan needs fewer than %s.\n\n", report.Tenths(s.Bound.GPUs), s.Bound.Kind, report.Count(s.Bound.whole))
	t := s.table()
	if err := t.Write(w, out.screen); err != nil {
		return err
	}
	p("\n%s\n", out.wrap(s.verdict()))
	s.writeNotes(out)
	return s.writeOverTime(out)
}

func (s *planStudy) table() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Title: "METHOD"}, {Title: "GPUS", Number: true}, {Title: "SAVED", Number: true}, {Title: "MEAN", Number: true},
		{Title: "WORST", Number: true}, {Title: "P05", Number: true, Wide: true}, {Title: "BROKEN", Number: true},
		{Title: "BOUND", Number: true}, {Title: "TIME", Number: true}, {Title: "LIMITED BY", Wide: true},
	}}
	gpus := make([]float64, len(s.Methods))
	for i, m := range s.Methods {
		gpus[i] = math.NaN()
		if m.GPUs != nil {
			gpus[i] = float64(*m.GPUs)
		}
		t.Rows = append(t.Rows, m.cells())
	}
	for _, i := range report.BestOf(gpus, false) {
		t.Rows[i][1].Mark = report.Best
	}
	return t
}

// limitsShown is how many reasons a row of the table names.
const limitsShown = 2

func (m *planMethod) cells() []report.Cell {
	if m.GPUs == nil {
		row := report.Cells(m.label, report.None, report.None, report.None, report.None, report.None, report.None, report.None,
			report.None, "skipped: too large")
		return row
	}
	saved, limited := report.PercentTenths(m.Saved), report.None
	if m.isDedicated {
		saved = report.None
	}
	if len(m.LimitedBy) > 0 {
		limited = strings.Join(m.LimitedBy[:min(limitsShown, len(m.LimitedBy))], ", ")
	}
	row := report.Cells(m.label, report.Count(*m.GPUs), saved, report.PercentTenths(m.Mean), report.PercentTenths(m.Worst),
		report.PercentTenths(m.P05), report.Count(m.Broken), report.Change(m.AboveBound), elapsed(m.Seconds), limited)
	if m.Broken > 0 {
		row[6].Mark = report.Bad
	}
	return row
}

// verdict is the answer in one sentence.
func (s *planStudy) verdict() string {
	switch {
	case s.best == nil:
		return "No method finished."
	case s.best.figures.GPUs == s.Workers && s.best.method.Name == "dedicated" && len(s.Methods) == 1:
		return fmt.Sprintf("%s for %s, one each.", report.Several(s.Workers, "GPU"), report.Several(s.Workers, "worker"))
	case s.best.figures.GPUs == s.Workers:
		return fmt.Sprintf("%s for %s: sharing saves nothing under these floors.", report.Several(s.Workers, "GPU"), report.Several(s.Workers, "worker"))
	}
	return fmt.Sprintf("%s GPUs do the work of %s; the slowest job keeps %s of its speed.", report.Count(s.best.figures.GPUs),
		report.Count(s.Workers), report.PercentTenths(s.best.figures.WorstPerformance))
}

func (s *planStudy) writeNotes(out *session) {
	for _, note := range s.Notes {
		_, _ = fmt.Fprintln(out.stdout, out.wrap("note: "+report.Clean(note)))
	}
	for _, x := range s.Excluded {
		_, _ = fmt.Fprintln(out.stdout, out.wrap(fmt.Sprintf("excluded: %s: %s", report.Several(x.Rows, "row"), report.Clean(x.Reason))))
	}
}

func (s *planStudy) writeOverTime(out *session) error {
	if len(s.OverTime) == 0 {
		return nil
	}
	t := &report.Table{Columns: []report.Column{
		{Title: "OVER TIME"}, {Title: "PEAK", Number: true}, {Title: "AVERAGE", Number: true},
		{Title: "GPU-HOURS", Number: true}, {Title: "SAVED", Number: true}, {Title: "BASIS"},
	}}
	for _, o := range s.OverTime {
		saved := report.PercentTenths(o.Saved)
		if o.Method == "dedicated" {
			saved = report.None
		}
		t.Rows = append(t.Rows, report.Cells(o.Method, report.Count(o.Peak), report.Tenths(o.Average),
			report.Amount(o.GPUHours), saved, o.Basis))
	}
	_, _ = fmt.Fprintf(out.stdout, "\n%s\n", s.span)
	return t.Write(out.stdout, out.screen)
}

func roundPercent(share float64) float64 { return math.Round(share*1000) / 10 }

func elapsed(seconds float64) string {
	return report.Elapsed(time.Duration(seconds * float64(time.Second)))
}
