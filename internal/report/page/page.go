package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"weft.dev/weft/internal/report"
)

var (
	//go:embed page.html.tmpl
	markup string
	//go:embed page.css
	sheet string
	//go:embed page.js
	script string

	layout = template.Must(template.New("page").Funcs(template.FuncMap{
		"count": report.Count, "runClass": style,
	}).Parse(markup))
)

// view is what the template sees.
type view struct {
	Study
	Sheet    template.CSS
	Script   template.JS
	Policy   string // content security policy: nothing is loaded, and no script runs but ours
	Compared table
	Figures  []figure
	Left     int // rows that take no part
}

// table is the comparison with its columns.
type table struct {
	Columns []report.Column
	Rows    []row
	Meant   bool   // some column has a meaning to explain
	Signs   string // what the signs mean that occur
}

// row is one run; Run is its index if the rows are those of the runs, else -1.
type row struct {
	Run   int
	Cells []cell
}

// cell is a value with its class and its sign.
type cell struct {
	Text, Class, Sign, Said string
	Number                  bool
}

// HTML writes the page. It holds at most 400 points of each curve and 2,400 bars, whatever the size of the study, and
// reads only its arguments: the same study gives the same bytes. It returns the error of w.
func HTML(w io.Writer, s Study) error {
	sum := sha256.Sum256([]byte(script))
	v := view{Study: s, Sheet: template.CSS(sheet), Script: template.JS(script), Compared: compared(s), Figures: figures(s.Runs),
		Policy: fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-%s'",
			base64.StdEncoding.EncodeToString(sum[:]))}
	for _, x := range s.Excluded {
		v.Left += x.Rows
	}
	var b bytes.Buffer
	if err := layout.Execute(&b, v); err != nil {
		return fmt.Errorf("lay out the page: %w", err)
	}
	_, err := b.WriteTo(w)
	return err
}

// figures are the charts of runs; that of rates only where some are given.
func figures(runs []Run) []figure {
	list := []figure{completion(runs), usage(runs), slowdown(runs)}
	if len(longest(runs)) > 0 {
		list = append(list, rates(runs))
	}
	return append(list, strips(runs))
}

func compared(s Study) table {
	t := table{Columns: s.Table.Columns, Signs: signs(s.Table.Rows)}
	for _, c := range s.Table.Columns {
		t.Meant = t.Meant || c.Meaning != ""
	}
	for i, cells := range s.Table.Rows {
		r := row{Run: -1}
		if len(s.Table.Rows) == len(s.Runs) {
			r.Run = i
		}
		for n, c := range s.Table.Columns {
			var text report.Cell
			if n < len(cells) {
				text = cells[n]
			}
			r.Cells = append(r.Cells, shownCell(text, c))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// signs explains the signs that occur.
func signs(rows [][]report.Cell) string {
	var best, bad bool
	for _, cells := range rows {
		for _, c := range cells {
			best = best || c.Mark == report.Best
			bad = bad || c.Mark == report.Bad
		}
	}
	var said []string
	if best {
		said = append(said, "* best of its column")
	}
	if bad {
		said = append(said, "! over a limit")
	}
	return strings.Join(said, "; ")
}

func shownCell(c report.Cell, column report.Column) cell {
	shown := cell{Text: c.Text, Number: column.Number}
	switch c.Mark {
	case report.Best:
		shown.Class, shown.Sign, shown.Said = "best", "*", "best"
	case report.Bad:
		shown.Class, shown.Sign, shown.Said = "wrong", "!", "over a limit"
	case report.Waiting:
		shown.Class = "waiting"
	}
	return shown
}
