package page

import (
	"fmt"
	"html/template"
	"strings"
)

// figure is one chart of the page with everything that makes it readable without seeing it.
type figure struct {
	ID      string
	Title   string
	Reading string // one sentence: how to read it
	Keys    []key  // legend
	Plots   []plot
	Small   bool     // plots stand side by side where there is room
	Summary []saying // what it shows, in words
	Data    data     // the same as a table
	Empty   string   // said instead of the plots when there is nothing to draw
}

// key is an entry of a legend: the sample is a line or a swatch of that class.
type key struct {
	Line, Swatch string
	Text         string
}

// plot is one drawing of a figure. Live ones can be read out value by value.
type plot struct {
	Title string
	SVG   template.HTML
	Live  bool
}

// data is the table behind a chart. The first cell of each row names it.
type data struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// legend names the lines of the runs that have one.
func legend(runs []Run, drawn func(int) bool) []key {
	var keys []key
	for i, r := range runs {
		if drawn(i) {
			keys = append(keys, key{Line: style(i), Text: r.Name})
		}
	}
	return keys
}

// saying is a sentence about one run; Run is "" where it is about the rest.
type saying struct{ Run, Text string }

// maxSaid is how many runs a summary puts into words; the table has all.
const maxSaid = 4

// say makes a sentence of each run, and one that points to the table when there are too many.
func say(runs []Run, sentence func(int, Run) string) []saying {
	var said []saying
	for i, r := range runs {
		if len(said) == maxSaid {
			said = append(said, saying{Text: fmt.Sprintf("The table has the other %d.", len(runs)-i)})
			break
		}
		said = append(said, saying{r.Name, sentence(i, r)})
	}
	return said
}

// description is the summary as one text, for the drawing itself.
func (f *figure) description() string {
	var b strings.Builder
	for _, s := range f.Summary {
		if s.Run != "" {
			b.WriteString(s.Run + ": ")
		}
		b.WriteString(s.Text + " ")
	}
	return strings.TrimSpace(b.String())
}

// heads are the runs' names after a first heading.
func heads(first string, runs []Run) []string {
	head := []string{first}
	for _, r := range runs {
		head = append(head, r.Name)
	}
	return head
}
