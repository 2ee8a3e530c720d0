package accuracy

import (
	"fmt"
	"html/template"
	"strings"

	"weft.dev/weft/internal/report"
)

// drawn is a chart with its words and numbers.
type drawn struct {
	Title, Source, Summary string
	SVG                    template.HTML
	Bins                   []bin
}

// bin is the predictions within a tenth: whether the mean is right on average, and whether the bound holds.
type bin struct {
	Range                 string
	N                     int
	Predicted, True, Held string
	predicted, truth      float64
}

// Size of the drawing in its own units, and how many points it holds at most: more would only be darker.
const (
	side      = 400.0
	maxPoints = 1500
	bins      = 10
	leastBin  = 5 // fewer say nothing
)

func draw(c Chart) drawn {
	d := drawn{Title: c.Title, Source: c.Source, Bins: binsOf(c.Points)}
	if len(c.Points) == 0 {
		d.Summary = "No predictions."
		return d
	}
	held, sum := 0, 0.0
	for _, p := range c.Points {
		if p.Truth >= p.Lower {
			held++
		}
		sum += max(p.Mean-p.Truth, p.Truth-p.Mean)
	}
	n := float64(len(c.Points))
	d.Summary = fmt.Sprintf("%s predictions, mean error %.3f, bound held for %s.", report.Count(len(c.Points)), sum/n,
		report.PercentTenths(float64(held)/n))
	d.SVG = d.scatter(c)
	return d
}

// scatter draws predicted (across) against true (up): a dot where the bound held, a cross where it did not, the
// diagonal, and the mean of each tenth as a line.
func (d *drawn) scatter(c Chart) template.HTML {
	var dots, crosses, means strings.Builder
	step := max(1, (len(c.Points)+maxPoints-1)/maxPoints)
	for i := 0; i < len(c.Points); i += step {
		p := c.Points[i]
		x, y := p.Mean*side, side-p.Truth*side
		if p.Truth >= p.Lower {
			fmt.Fprintf(&dots, "M%.1f %.1fh0", x, y)
			continue
		}
		fmt.Fprintf(&crosses, "M%.1f %.1fl5 5m0-5l-5 5", x-2.5, y-2.5)
	}
	command := "M"
	for _, b := range d.Bins {
		if b.N >= leastBin {
			fmt.Fprintf(&means, "%s%.1f %.1f", command, b.predicted*side, side-b.truth*side)
			command = "L"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="-46 -32 460 482" role="img" aria-label="%s"><desc>%s</desc>`,
		template.HTMLEscapeString(c.Title+", "+c.Source), template.HTMLEscapeString(d.Summary))
	for tenth := 0; tenth <= 10; tenth += 2 {
		at := side * float64(tenth) / 10
		fmt.Fprintf(&b, `<path class="grid" d="M0 %[1]g H400 M%[1]g 0 V400"/><text x="%[1]g" y="418" text-anchor="middle">%[2]d</text><text x="-8" y="%[3]g" text-anchor="end">%[2]d</text>`,
			at, tenth*10, side-at+4)
	}
	fmt.Fprintf(&b, `<path class="even" d="M0 400L400 0"/><path class="dots" d="%s"/><path class="crosses" d="%s"/><path class="means" d="%s"/>`,
		dots.String(), crosses.String(), means.String())
	b.WriteString(`<text x="400" y="440" text-anchor="end">predicted, % of the rate alone</text><text x="-40" y="-16">true, % of the rate alone</text></svg>`)
	return template.HTML(b.String())
}

// binsOf are the tenths of the predicted rate that hold a prediction.
func binsOf(points []Point) []bin {
	var groups [bins][]Point
	for _, p := range points {
		k := min(max(int(p.Mean*bins), 0), bins-1)
		groups[k] = append(groups[k], p)
	}
	var list []bin
	for k, some := range groups {
		if len(some) == 0 {
			continue
		}
		var predicted, truth, held float64
		for _, p := range some {
			predicted += p.Mean
			truth += p.Truth
			if p.Truth >= p.Lower {
				held++
			}
		}
		n := float64(len(some))
		list = append(list, bin{Range: fmt.Sprintf("%d to %d %%", k*100/bins, (k+1)*100/bins), N: len(some),
			Predicted: report.PercentTenths(predicted / n), True: report.PercentTenths(truth / n),
			Held: report.PercentTenths(held / n), predicted: predicted / n, truth: truth / n})
	}
	return list
}
