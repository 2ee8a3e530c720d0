package page

import (
	"cmp"
	"fmt"
	"html"
	"slices"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// Limits of the strips, so that a page of any study stays readable and below a megabyte.
const (
	maxGPUs      = 16   // strips of one run
	maxBars      = 600  // bars of one run
	maxAllBars   = 2400 // bars of all runs together
	shortestPart = 600  // a stay shorter than this part of the time shown is drawn together with its neighbours
)

// strip is one GPU of a run: its stays in lanes, one lane for each resident at a time.
type strip struct {
	gpu   int
	lanes [][]stay
	stays int
	below int
	busy  unit.Time // how long at least one resident was there
}

// stay is one drawn bar: one stay, or several short ones that follow each other.
type stay struct {
	job        string
	start, end unit.Time
	stays      int
	below      int // how many of them were below their floor
}

// strips draws for each run who was on which GPU when. Of many GPUs it takes the busiest, ties by index.
// O(n log n) in the number of stays.
func strips(runs []Run) figure {
	f := figure{ID: "strips", Title: "Who ran where",
		Reading: "A strip for each GPU, a bar for each stay. Bars above each other share the GPU at that time."}
	var last unit.Time
	for _, r := range runs {
		for _, b := range r.Bars {
			last = max(last, b.End)
		}
	}
	if last <= 0 {
		f.Empty = "No job ran on any GPU, so there are no stays to show."
		return f
	}
	f.Keys = []key{{Swatch: "bar c0", Text: "stay of a job, in the colour of its run"}, {Swatch: "bar bad", Text: "below its floor"},
		{Swatch: "bar many c0", Text: "several short stays"}}
	f.Data = data{Caption: "Stays by GPU, of the GPUs drawn", Head: []string{"Run and GPU", "Stays", "Residents at most",
		"Busy", "Below floor"}}
	x := linearTime("time since the start", last.Seconds())
	for i, r := range runs {
		all := stripsOf(r)
		shown := busiest(all, last, min(maxBars, maxAllBars/len(runs)))
		for _, s := range shown {
			f.Data.Rows = append(f.Data.Rows, []string{r.Name + ", " + r.gpuName(s.gpu), report.Count(s.stays),
				report.Count(len(s.lanes)), report.PercentTenths(float64(s.busy) / float64(last)), report.Count(s.below)})
		}
		if len(shown) > 0 {
			said := stripSentence(all, shown)
			f.Summary = append(f.Summary, saying{r.Name, said})
			f.Plots = append(f.Plots, drawStrips(i, r, shown, x, last, said))
		}
	}
	return f
}

func (r Run) gpuName(gpu int) string {
	if gpu >= 0 && gpu < len(r.GPUNames) && r.GPUNames[gpu] != "" {
		return r.GPUNames[gpu]
	}
	return fmt.Sprintf("gpu %d", gpu)
}

// stripsOf sorts the stays of a run into GPUs and lanes: each goes to the first lane that is free when it starts. What
// lies before the start of the trace is cut off, and stays of no length are left out.
func stripsOf(r Run) []strip {
	bars := slices.Clone(r.Bars)
	for i := range bars {
		bars[i].Start = max(bars[i].Start, 0)
	}
	bars = slices.DeleteFunc(bars, func(b Bar) bool { return b.End <= b.Start })
	slices.SortStableFunc(bars, func(a, b Bar) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	var all []strip
	var until unit.Time // when the current GPU falls idle
	for _, b := range bars {
		if len(all) == 0 || all[len(all)-1].gpu != b.GPU {
			all = append(all, strip{gpu: b.GPU})
			until = b.Start
		}
		s := &all[len(all)-1]
		s.busy += max(b.End-max(b.Start, until), 0)
		until = max(until, b.End)
		s.place(stay{job: b.Job, start: b.Start, end: b.End, stays: 1, below: one(b.Below)})
	}
	return all
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (s *strip) place(v stay) {
	s.stays++
	s.below += v.below
	for i, lane := range s.lanes {
		if lane[len(lane)-1].end <= v.start {
			s.lanes[i] = append(lane, v)
			return
		}
	}
	s.lanes = append(s.lanes, []stay{v})
}

// busiest takes the busiest GPUs, as many as may be drawn with the given number of bars but at least one, in order of
// index, with their short stays joined.
func busiest(all []strip, last unit.Time, most int) []strip {
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b strip) int { return cmp.Compare(b.busy, a.busy) })
	var shown []strip
	drawn := 0
	for _, s := range order[:min(len(order), maxGPUs)] {
		n := 0
		joined := make([][]stay, len(s.lanes))
		for i, lane := range s.lanes {
			joined[i] = join(lane, last/shortestPart)
			n += len(joined[i])
		}
		if drawn += n; drawn > most && len(shown) > 0 {
			break
		}
		s.lanes = joined
		shown = append(shown, s)
	}
	slices.SortFunc(shown, func(a, b strip) int { return cmp.Compare(a.gpu, b.gpu) })
	return shown
}

// join makes one bar of short stays that follow each other at less than a short time.
func join(lane []stay, short unit.Time) []stay {
	var joined []stay
	open := false // the last bar may grow
	for _, v := range lane {
		small := v.end-v.start < short
		if n := len(joined) - 1; small && open && v.start-joined[n].end < short {
			joined[n].end = v.end
			joined[n].stays++
			joined[n].below += v.below
			continue
		}
		joined = append(joined, v)
		open = small
	}
	return joined
}

func stripSentence(all, shown []strip) string {
	stays, below := 0, 0
	for _, s := range shown {
		stays += s.stays
		below += s.below
	}
	which := fmt.Sprintf("all %s GPUs in use", report.Count(len(all)))
	if len(shown) < len(all) {
		which = fmt.Sprintf("the %s busiest of %s GPUs in use", report.Count(len(shown)), report.Count(len(all)))
	}
	return fmt.Sprintf("%s, %s stays, %s of them below their floor.", which, report.Count(stays),
		report.Count(below))
}

// Heights of a strip in pixels.
const (
	laneHeight = 14 // holds a label of 11 pixels
	tightLane  = 8  // where more than two share a GPU: no labels, or the strips would not fit a screen
	stripGap   = 6
	letter     = 6.4 // mean width of a letter of a label
	labelArea  = 800 // least width of the area for which labels are made; the style sheet hides them below
)

func drawStrips(i int, r Run, shown []strip, x axis, last unit.Time, said string) plot {
	var c canvas
	lane := laneHeight
	for _, s := range shown {
		if len(s.lanes) > 2 {
			lane = tightLane
		}
	}
	c.xTicks(x)
	y := 0
	for _, s := range shown {
		height := max(len(s.lanes)*lane, laneHeight)
		c.add(`<rect class="bed" x="0" y="%d" width="100%%" height="%d"/><text class="t e" x="-8" y="%d" dy="4">%s</text>`,
			y, height, y+height/2, html.EscapeString(report.Shorten(r.gpuName(s.gpu), 11)))
		for n, stays := range s.lanes {
			for _, v := range stays {
				c.stay(i, v, last, y+n*lane, lane)
			}
		}
		y += height + stripGap
	}
	return plot{Title: r.Name, SVG: c.svg("Stays on GPUs of "+r.Name, said, y-stripGap, "")}
}

// stay draws one bar with a label where it has room, and the same words as its tooltip.
func (c *canvas) stay(i int, v stay, last unit.Time, y, height int) {
	left, right := float64(v.start)/float64(last), float64(v.end)/float64(last)
	class, name := fmt.Sprintf("bar c%d", i%colours), v.job
	if v.stays > 1 {
		class, name = class+" many", fmt.Sprintf("%s short stays", report.Count(v.stays))
	}
	said := fmt.Sprintf("%s: from %s for %s", name, report.Seconds(v.start.Seconds()), report.Duration(v.end.Sub(v.start)))
	hatched := ""
	if v.below > 0 {
		hatched = fmt.Sprintf(`<rect class="bar bad" x="%s" width="%s" y="%d" height="%d"/>`, pct(left), pct(right-left), y,
			height-1)
		said += ", below its floor"
		if v.stays > 1 {
			said += fmt.Sprintf(" in %s", report.Count(v.below))
		}
	}
	c.add(`<g><title>%s</title><rect class="%s" x="%s" width="%s" y="%d" height="%d"/>%s</g>`, html.EscapeString(said), class,
		pct(left), pct(right-left), y, height-1, hatched)
	if width := (right - left) * labelArea; height == laneHeight && v.stays == 1 && hatched == "" &&
		float64(report.Columns(v.job))*letter+8 < width {
		c.add(`<text class="b" x="%s" dx="4" y="%d">%s</text>`, pct(left), y+height-4, html.EscapeString(v.job))
	}
}
