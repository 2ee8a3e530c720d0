// Package accuracy writes the report on a predictor as one HTML file: predicted against true rates, calibration and the
// table of figures. It loads nothing from anywhere.
package accuracy

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"weft.dev/weft/internal/report"
)

// Study is what the page shows.
type Study struct {
	Title    string
	Verdict  string
	Command  string
	Coverage float64 // nominal, of lower bounds
	Floors   []float64
	Table    *report.Table
	Notes    []string
	Charts   []Chart
}

// Chart is the predictions of one way to hold data out.
type Chart struct {
	Title  string
	Source string
	Points []Point
}

// Point is one prediction: rates are shares of the rate alone.
type Point struct{ Truth, Mean, Lower float64 }

var (
	//go:embed accuracy.html.tmpl
	markup string
	//go:embed accuracy.css
	sheet string

	layout = template.Must(template.New("accuracy").Parse(markup))
)

// view is what the template sees.
type view struct {
	Study
	Sheet  template.CSS
	Rows   [][]cell
	Drawn  []drawn
	Signed bool // some figure misses what is nominal
}

type cell struct {
	Text        string
	Number, Bad bool
}

// HTML writes the page. The same study gives the same bytes. It returns the error of w.
func HTML(w io.Writer, s Study) error {
	v := view{Study: s, Sheet: template.CSS(sheet)}
	for _, cells := range s.Table.Rows {
		var row []cell
		for i, c := range cells {
			bad := c.Mark == report.Bad
			v.Signed = v.Signed || bad
			row = append(row, cell{c.Text, s.Table.Columns[i].Number, bad})
		}
		v.Rows = append(v.Rows, row)
	}
	for _, c := range s.Charts {
		v.Drawn = append(v.Drawn, draw(c))
	}
	var b bytes.Buffer
	if err := layout.Execute(&b, v); err != nil {
		return fmt.Errorf("lay out the page: %w", err)
	}
	_, err := b.WriteTo(w)
	return err
}
