package page

import (
	"fmt"
	"math"
	"slices"

	"weft.dev/weft/internal/report"
)

// quantiles are the rows of the completion table: the middle, the quarters, and the tails that people ask for.
var quantiles = []float64{0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1}

// completion draws the distribution function of completion times: for each time the share of finished jobs that took at
// most that long. O(n log n) in the number of jobs.
func completion(runs []Run) figure {
	f := figure{ID: "jct", Title: "Job completion time",
		Reading: "How many of the finished jobs were done within a time after their submission. Higher and further left is better."}
	sorted := make([][]float64, len(runs))
	least, most := math.Inf(1), 0.0
	for i, r := range runs {
		sorted[i] = ordered(r.JCTSeconds, 0)
		for _, v := range sorted[i] {
			if v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if !slices.ContainsFunc(sorted, func(s []float64) bool { return len(s) > 0 }) {
		f.Empty = "No job finished, so there is no completion time to show."
		return f
	}
	if most == 0 { // every job took no time at all
		least, most = second, second
	}
	f.Summary = say(runs, func(i int, r Run) string {
		if len(sorted[i]) == 0 {
			return "no job finished."
		}
		return fmt.Sprintf("half of %s jobs done within %s, 95 %% within %s.", report.Count(len(sorted[i])),
			report.Seconds(quantile(sorted[i], 0.5)), report.Seconds(quantile(sorted[i], 0.95)))
	})
	f.Keys = legend(runs, func(i int) bool { return len(sorted[i]) > 0 })
	f.Data = data{Caption: "Completion time by share of jobs", Head: heads("Share of jobs", runs)}
	for _, q := range quantiles {
		row := []string{quantileName(q, "shortest", "longest")}
		for i := range runs {
			row = append(row, report.Seconds(quantile(sorted[i], q)))
		}
		f.Data.Rows = append(f.Data.Rows, row)
	}
	x, y := logTime("completion time, logarithmic", least, most), shares("% of finished jobs", 1)
	f.Plots = []plot{livePlot(&f, x, y, func(i int) []point { return distribution(sorted[i], x) }, len(runs))}
	return f
}

// livePlot draws one thinned step curve for each run.
func livePlot(f *figure, x, y axis, curve func(int) []point, runs int) plot {
	var c canvas
	c.yTicks(y)
	c.xTicks(x)
	all := make([][]point, runs)
	for i := range all {
		all[i] = thin(curve(i))
	}
	c.curves(all)
	attributes := fmt.Sprintf(` data-x="%s" data-x0="%g" data-x1="%g" data-y="%s" data-y1="%g"`, x.kind, x.least, x.most,
		y.kind, y.most)
	return plot{SVG: c.svg(f.Title, f.description(), 260, attributes), Live: true}
}

// ordered is the finite values from least on, in rising order.
func ordered(values []float64, least float64) []float64 {
	kept := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && v >= least {
			kept = append(kept, v)
		}
	}
	slices.Sort(kept)
	return kept
}

// quantile is the least value that at least the share q of the sorted values do not exceed (the empirical inverse); NaN
// when there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func quantileName(q float64, least, most string) string {
	switch q {
	case 0:
		return least
	case 0.5:
		return "50 % (median)"
	case 1:
		return most
	}
	return report.Percent(q)
}

// distribution is the empirical distribution function of sorted values along an axis.
func distribution(sorted []float64, x axis) []point {
	if len(sorted) == 0 {
		return nil
	}
	points := []point{{0, 0}}
	for i, v := range sorted {
		p := point{x.at(v), float64(i+1) / float64(len(sorted))}
		if points[len(points)-1].x == p.x {
			points[len(points)-1].y = p.y
			continue
		}
		points = append(points, p)
	}
	return append(points, point{1, 1})
}
