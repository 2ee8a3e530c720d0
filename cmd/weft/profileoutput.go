package main

import (
	"fmt"
	"os"
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/recording/drawing"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

func summaries(profiles []profiled) []recording.Summary {
	out := make([]recording.Summary, len(profiles))
	for i, p := range profiles {
		out[i] = p.analysis.Summary(p.name)
	}
	return out
}

// document is one profile as itself, several as a bundle, as --out writes them.
func document(profiles []profiled) any {
	s := summaries(profiles)
	if len(s) == 1 {
		return s[0]
	}
	return recording.Bundle{Schema: recording.SchemaVersion, Profiles: s}
}

// save writes the files asked for.
func (c *profileCommand) save(profiles []profiled) error {
	if c.Out != "" {
		err := saveTo(c.Out, func(f *os.File) error { return recording.Write(f, c.Out, summaries(profiles)) })
		if err != nil {
			return err
		}
	}
	if c.PNG == "" {
		return nil
	}
	return saveTo(c.PNG, func(f *os.File) error { return drawing.Write(f, profiles[0].name, profiles[0].analysis) })
}

func saveTo(path string, write func(f *os.File) error) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close() // the write error says more
		return err
	}
	return f.Close()
}

// showProfiles shows profiles to a person. Notes go to the standard error, each once.
func (s *session) showProfiles(profiles []profiled) error {
	var b strings.Builder
	for i, p := range profiles {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(profiles) > 1 || s.screen.Width >= report.WideWidth {
			fmt.Fprintf(&b, "%s (%s)\n", report.Clean(p.name), p.analysis.Recording.Source)
		}
		s.drawProfile(&b, p.analysis)
		b.WriteString(p.analysis.Verdict.Text + "\n")
	}
	if _, err := fmt.Fprint(s.stdout, b.String()); err != nil {
		return err
	}
	for _, p := range profiles {
		prefix := "note: "
		if len(profiles) > 1 {
			prefix += report.Clean(p.name) + ": "
		}
		if p.analysis.Recording.Partial != "" {
			_, _ = fmt.Fprintln(s.stderr, prefix+"partial: "+report.Clean(p.analysis.Recording.Partial))
		}
		for _, n := range p.analysis.Notes {
			_, _ = fmt.Fprintln(s.stderr, prefix+report.Clean(n))
		}
	}
	return nil
}

// Size of the drawing: as many rows as there are texts beside it, and columns that leave them room on 80.
const (
	plotRows    = 4
	plotColumns = 27
	plotWidest  = 60
	textColumns = 44
)

// drawProfile draws the curve with its figures beside it, or below it on a narrow screen.
func (s *session) drawProfile(b *strings.Builder, a *recording.Analysis) {
	low, high := a.Profile.Persistent, a.Profile.Peak()
	texts := profileTexts(a)
	width := s.screen.Width
	if width <= 0 {
		width = 80
	}
	label := max(len(high.String()), len(low.String()))
	columns := min(max(width-label-5-textColumns, plotColumns), plotWidest)
	below := label+3+columns+2+textColumns > width
	if below {
		columns = min(max(width-label-3, 8), plotWidest)
	}
	samples := a.Recording.Allocated.Samples(a.Span(), columns)
	for row := plotRows - 1; row >= 0; row-- {
		name := map[int]string{plotRows - 1: high.String(), 0: low.String()}[row]
		line := fmt.Sprintf("%*s |%s", label, name, plotRow(samples, low, high, row))
		if !below {
			line += strings.Repeat(" ", 2) + texts[plotRows-1-row]
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if below {
		b.WriteString(strings.Join(texts, "\n") + "\n")
	}
}

// plotRow marks the instants at which memory reaches into a row; what is persistent fills the lowest.
func plotRow(samples []unit.Bytes, low, high unit.Bytes, row int) string {
	var b strings.Builder
	threshold := low + (high-low)/plotRows*unit.Bytes(row)
	for _, held := range samples {
		if row == 0 || held > threshold {
			b.WriteByte('#')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// profileTexts are the figures beside the drawing, plotRows of them.
func profileTexts(a *recording.Analysis) []string {
	iterations := "no period found"
	switch {
	case a.Period > 0:
		iterations = fmt.Sprintf("%s iterations of %s", report.Count(len(a.Iterations)), report.Duration(a.Period))
	case len(a.Iterations) > 0:
		iterations = fmt.Sprintf("%s iterations, period unknown", report.Count(len(a.Iterations)))
	case len(a.Profile.Ephemeral) == 0:
		iterations = "no iterations: the line is flat"
	}
	peak, low := a.Profile.Peak(), a.Profile.Persistent
	held := fmt.Sprintf("persistent %s, ephemeral up to %s", low, peak-low)
	mean := "mean " + unit.Bytes(a.Mean).String()
	if r := a.Recording.Reserved; !r.Empty() {
		_, most := r.Range(r.Start(), r.End)
		mean += ", reserved " + most.String()
	}
	busy := "GPU utilisation unknown"
	if u := a.Recording.Utilisation; u != nil {
		busy = "GPU busy " + report.Percent(*u)
	}
	return []string{iterations, held, mean, busy}
}
