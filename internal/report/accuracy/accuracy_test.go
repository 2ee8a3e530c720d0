package accuracy

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"weft.dev/weft/internal/report"
)

func study() Study {
	s := Study{Title: "Trust <it>", Verdict: "fine", Command: "weft train 'a&b'", Coverage: 0.9,
		Table: &report.Table{Columns: []report.Column{{Title: "LEARNER", Meaning: "which"}, {Title: "MAE", Number: true}},
			Rows: [][]report.Cell{{{Text: "one"}, {Text: "0.03", Mark: report.Bad}}}},
		Notes:  []string{"a note <b>"},
		Charts: []Chart{{Title: "Held out: model", Source: "mine"}, {Title: "nothing"}},
	}
	for i := range 4000 {
		truth := float64(i%100) / 100
		s.Charts[0].Points = append(s.Charts[0].Points, Point{Truth: truth, Mean: truth, Lower: truth - 0.05})
	}
	s.Charts[0].Points[0] = Point{Truth: 0.1, Mean: 0.5, Lower: 0.3} // missed
	return s
}

func page(t *testing.T, s Study) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageShowsFiguresAndLoadsNothing(t *testing.T) {
	text := page(t, study())
	for _, part := range []string{"Trust &lt;it&gt;", "4,000 predictions", `class="n bad"`, "0.03!", "a note &lt;b&gt;", "prefers-color-scheme: dark",
		`name="viewport"`, "default-src &#39;none&#39;", "which", "misses what is nominal"} {
		if !strings.Contains(text, part) && !strings.Contains(text, strings.ReplaceAll(part, "&#39;", "'")) {
			t.Errorf("no %q", part)
		}
	}
	for _, part := range []string{"http://", "https://", "<script", "<it>", "NaN"} {
		if strings.Contains(text, part) {
			t.Errorf("the page holds %q", part)
		}
	}
	if text != page(t, study()) {
		t.Error("two pages of one study differ")
	}
	if len(text) > 200<<10 {
		t.Errorf("%d bytes: points are not thinned", len(text))
	}
}

// A miss is a cross, a rate that held a dot; the drawing is well-formed.
func TestScatterMarksMisses(t *testing.T) {
	d := draw(study().Charts[0])
	svg := string(d.SVG)
	if n := strings.Count(svg, "l5 5m0-5l-5 5"); n != 1 {
		t.Errorf("%d crosses, want 1", n)
	}
	if n := strings.Count(svg, "h0"); n < 1000 || n > maxPoints {
		t.Errorf("%d dots", n)
	}
	x := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := x.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	if len(d.Bins) != bins || d.Bins[5].Range != "50 to 60 %" || d.Bins[0].N != 399 {
		t.Errorf("bins %+v", d.Bins)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }

func TestPageReturnsTheWritersError(t *testing.T) {
	if err := HTML(broken{}, study()); err == nil || err.Error() != "full" {
		t.Errorf("%v", err)
	}
}
