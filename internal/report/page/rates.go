package page

import (
	"fmt"
	"html"
	"math"
	"slices"

	"weft.dev/weft/internal/report"
)

// Rate is what one job of a run kept of its speed.
type Rate struct {
	Job, Group string  // jobs of a group stand together, groups in the order of their first job
	Rate       float64 // of its speed alone, at least 0; above 1 is drawn as 1
	Floor      float64 // in (0, 1]
}

// below says whether the job was slower than its floor allows.
func (r Rate) below() bool { return r.Rate < r.Floor }

// rates draws what each job kept of its speed beside its floor. Linear in the number of jobs.
func rates(runs []Run) figure {
	f := figure{ID: "rates", Title: "Rate and floor of each job", Small: true,
		Reading: "A bar for each job: its speed while it ran, as a share of its speed alone. The mark on it is its floor; a bar that ends left of it is hatched.",
		Keys:    []key{{Swatch: "bar c0", Text: "rate of a job, in the colour of its run"}, {Swatch: "bar bad", Text: "below its floor"}}}
	f.Data = data{Caption: "Rate of each job", Head: append([]string{"Job", "Class", "Floor"}, heads("", runs)[1:]...)}
	f.Summary = say(runs, func(_ int, r Run) string { return r.rateSentence() })
	for i, r := range runs {
		if len(r.Rates) > 0 {
			f.Plots = append(f.Plots, r.rates(i))
		}
	}
	for n, j := range longest(runs) {
		row := []string{j.Job, j.Group, report.Percent(j.Floor)}
		for _, r := range runs {
			text := report.None
			if n < len(r.Rates) {
				text = report.PercentTenths(r.Rates[n].Rate)
			}
			row = append(row, text)
		}
		f.Data.Rows = append(f.Data.Rows, row)
	}
	return f
}

// longest are the jobs of the run that has most.
func longest(runs []Run) []Rate {
	var list []Rate
	for _, r := range runs {
		if len(r.Rates) > len(list) {
			list = r.Rates
		}
	}
	return list
}

func (r *Run) rateSentence() string {
	if len(r.Rates) == 0 {
		return "no rate is known."
	}
	below := 0
	for _, x := range r.Rates {
		below += one(x.below())
	}
	return fmt.Sprintf("%s of %s jobs below their floor.", report.Count(below), report.Count(len(r.Rates)))
}

// rates draws the bars of the i-th run, a row for each job and one above each group for its name.
func (r *Run) rates(i int) plot {
	var c canvas
	x := shares("% of the speed alone", 1)
	c.xTicks(x)
	y, group := 0, ""
	for _, j := range grouped(r.Rates) {
		if j.Group != group {
			group = j.Group
			c.add(`<text class="a" x="4" y="%d">%s</text>`, y+laneHeight-3, html.EscapeString(report.Shorten(group, groupLetters)))
			y += laneHeight
		}
		c.rate(i, j, x, y)
		y += laneHeight
	}
	return plot{Title: r.Name, SVG: c.svg("Rate of each job, "+r.Name, r.rateSentence(), y, "")}
}

// grouped are rates with those of a group together.
func grouped(list []Rate) []Rate {
	first := map[string]int{}
	for n, j := range list {
		if _, ok := first[j.Group]; !ok {
			first[j.Group] = n
		}
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b Rate) int { return first[a.Group] - first[b.Group] })
	return sorted
}

// How many letters of a job's name stand left of its bar, and of a group's above its bars.
const (
	labelLetters = 12
	groupLetters = 24
)

// rate draws one bar with its floor.
func (c *canvas) rate(i int, j Rate, x axis, y int) {
	said := fmt.Sprintf("%s: %s, floor %s", j.Job, report.PercentTenths(j.Rate), report.Percent(j.Floor))
	class, share := fmt.Sprintf("bar c%d", i%colours), j.Rate
	if math.IsNaN(share) {
		share = 0 // said as unknown
	}
	if j.below() {
		class, said = "bar bad", said+", below it"
	}
	const high = laneHeight - 4
	c.add(`<g><title>%s</title><text class="t e" x="-8" y="%d">%s</text><rect class="%s" x="0" width="%s" y="%d" height="%d"/>`+
		`<line class="floor" x1="%[8]s" x2="%[8]s" y1="%[9]d" y2="%[10]d"/></g>`, html.EscapeString(said), y+high,
		html.EscapeString(report.Shorten(j.Job, labelLetters)), class, pct(x.at(share)), y+1, high, pct(x.at(j.Floor)), y-1, y+laneHeight-1)
}
