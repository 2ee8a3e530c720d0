package page

import (
	"fmt"
	"math"
	"slices"

	"weft.dev/weft/internal/report"
)

// Layout of the slowdown histogram.
const (
	wantedBins = 20    // bars that are wide enough to see on a phone
	tail       = 0.99  // the axis ends at this quantile; what lies beyond is one bar, or a few outliers would hide the rest
	leastTop   = 1.1   // least end of the axis: smaller differences should look small
	mostTop    = 1000  // greatest end of the axis: a job that much slower was stuck, not slowed
	leastBar   = 0.015 // least height of a bar: two pixels, so that a single job below its floor is seen
	tolerance  = 1e-9  // rounding of 1/floor: a job exactly at its floor holds it
)

// histogram counts the slowdowns of a run. Bin i holds those in (edges[i], edges[i+1]]; the first bin ends at 1 and so
// holds the jobs at full speed, and what is slower than the last edge is in beyond.
type histogram struct {
	run    Run
	sorted []float64
	limit  float64 // the slowdown that the floor allows; infinite without one
	edges  []float64
	counts []int
	beyond int
	below  int // jobs slower than the floor allows
}

// slowdown draws for each run how much slower than alone its jobs ran. All share one scale.
// O(n log n) in the number of jobs.
func slowdown(runs []Run) figure {
	f := figure{ID: "slowdown", Title: "Slowdown", Small: true,
		Reading: "Run time over run time alone. The bar at 1 is full speed; a job right of the floor line (hatched) was slower than its floor allows."}
	hists := make([]histogram, len(runs))
	var all []float64
	top := leastTop
	for i, r := range runs {
		hists[i] = histogram{run: r, sorted: ordered(r.Slowdowns, math.Inf(-1)), limit: math.Inf(1)}
		if r.Floor > 0 && r.Floor <= 1 {
			hists[i].limit = 1 / r.Floor
			top = max(top, 1+(hists[i].limit-1)*1.25) // room for bars right of the line
		}
		all = append(all, hists[i].sorted...)
	}
	if len(all) == 0 {
		f.Empty = "No job finished, so there is no slowdown to show."
		return f
	}
	slices.Sort(all)
	top = min(max(top, quantile(all, tail)), mostTop)
	most := 0.0
	for i := range hists {
		hists[i].fill(top)
		most = max(most, hists[i].highest())
	}
	f.Summary = say(runs, func(i int, _ Run) string { return hists[i].sentence() })
	f.Data = slowdownTable(runs, hists)
	for i, h := range hists {
		if len(h.sorted) > 0 {
			f.Plots = append(f.Plots, h.plot(i, shares("% of jobs", most)))
		}
	}
	return f
}

// fill counts up to top at least. With a floor, an edge lies exactly on it.
func (h *histogram) fill(top float64) {
	width := (top - 1) / wantedBins
	h.edges = []float64{1 - width, 1}
	if allowed := h.limit - 1; allowed > 0 && h.limit < top {
		bins := max(math.Round(allowed/width), 1)
		for i := 1.0; i <= bins; i++ {
			h.edges = append(h.edges, 1+allowed*i/bins)
		}
	}
	for from, i := h.edges[len(h.edges)-1], 1.0; h.edges[len(h.edges)-1] < top-tolerance; i++ {
		h.edges = append(h.edges, from+i*width)
	}
	h.counts = make([]int, len(h.edges)-1)
	bin := 0
	for _, v := range h.sorted {
		if v > h.limit+tolerance {
			h.below++
		}
		for bin < len(h.counts) && v > h.edges[bin+1]+tolerance {
			bin++
		}
		if bin == len(h.counts) {
			h.beyond++
			continue
		}
		h.counts[bin]++
	}
}

// highest is the greatest share of the jobs in one bar.
func (h *histogram) highest() float64 {
	return float64(max(slices.Max(h.counts), h.beyond)) / float64(max(len(h.sorted), 1))
}

func (h *histogram) sentence() string {
	if len(h.sorted) == 0 {
		return "no job finished."
	}
	text := fmt.Sprintf("half of the jobs at most %.2f, 95 %% at most %.2f", quantile(h.sorted, 0.5), quantile(h.sorted, 0.95))
	if !math.IsInf(h.limit, 1) {
		text += fmt.Sprintf("; %s of %s jobs below the floor of %s (above %.2f)", report.Count(h.below),
			report.Count(len(h.sorted)), report.Percent(h.run.Floor), h.limit)
	}
	return text + "."
}

// plot draws the histogram of the i-th run. Behind a gap, the last bar holds everything beyond the axis.
func (h *histogram) plot(i int, y axis) plot {
	var c canvas
	edge := h.edges[len(h.edges)-1]
	x := ratios("slowdown", edge)
	x.least = h.edges[0]
	width := 1 - x.least
	if h.beyond > 0 {
		x.most = edge + 1.5*width
	}
	c.yTicks(y)
	c.xTicks(x)
	for n, jobs := range h.counts {
		h.bar(&c, i, x, y, h.edges[n], h.edges[n+1], jobs)
	}
	if h.beyond > 0 {
		h.bar(&c, i, x, y, x.most-width, x.most, h.beyond)
		c.add(`<text class="t e" x="100%%" y="%s" dy="-5">over %.2f</text>`, pct(1-y.at(float64(h.highestEnd(x))/float64(len(h.sorted)))), edge)
	}
	if h.limit <= edge {
		at, side := x.at(h.limit), `dx="5"`
		if at > 0.6 { // the label would leave the plot
			side = `dx="-5" style="text-anchor:end"`
		}
		c.add(`<line class="floor" x1="%[1]s" x2="%[1]s" y1="0" y2="100%%"/><text class="f" x="%[1]s" y="10" %[2]s>floor %[3]s</text>`,
			pct(at), side, report.Percent(h.run.Floor))
	}
	return plot{Title: h.run.Name, SVG: c.svg("Slowdown of "+h.run.Name, h.sentence(), 150, "")}
}

// labelled is the share of the axis, from its end, above which the label of the last bar stands: some 60 of 170 pixels
// where plots are narrowest.
const labelled = 0.36

// highestEnd is the most jobs in a bar under the label of the last one.
func (h *histogram) highestEnd(x axis) int {
	most := h.beyond
	for n, jobs := range h.counts {
		if x.at(h.edges[n+1]) > 1-labelled {
			most = max(most, jobs)
		}
	}
	return most
}

// bar draws a number of jobs between two slowdowns.
func (h *histogram) bar(c *canvas, i int, x, y axis, from, to float64, jobs int) {
	if jobs == 0 {
		return
	}
	class := fmt.Sprintf("bar c%d", i%colours)
	if from >= h.limit-tolerance {
		class = "bar bad"
	}
	const apart = 0.92 // of a bin: bars do not touch
	left, height := x.at(from), max(y.at(float64(jobs)/float64(len(h.sorted))), leastBar)
	c.add(`<rect class="%s" x="%s" width="%s" y="%s" height="%s"/>`, class, pct(left), pct((x.at(to)-left)*apart),
		pct(1-height), pct(height))
}

func slowdownTable(runs []Run, hists []histogram) data {
	d := data{Caption: "Slowdown by share of jobs", Head: heads("Share of jobs", runs)}
	for _, q := range quantiles {
		row := []string{quantileName(q, "least", "greatest")}
		for _, h := range hists {
			text := report.None
			if v := quantile(h.sorted, q); !math.IsNaN(v) {
				text = fmt.Sprintf("%.2f", v)
			}
			row = append(row, text)
		}
		d.Rows = append(d.Rows, row)
	}
	row := []string{"jobs below the floor"}
	for _, h := range hists {
		text := report.None
		if !math.IsInf(h.limit, 1) {
			text = report.Count(h.below)
		}
		row = append(row, text)
	}
	d.Rows = append(d.Rows, row)
	return d
}
