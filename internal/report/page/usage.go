package page

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// usageRows is how many equal stretches of time the table of GPUs in use has.
const usageRows = 24

// usage draws how many GPUs have a resident over time. Linear in the number of steps.
func usage(runs []Run) figure {
	f := figure{ID: "gpus", Title: "GPUs in use over time",
		Reading: "How many GPUs have at least one resident. Lower means fewer GPUs for the same jobs."}
	peak, last := 0, unit.Time(0)
	for _, r := range runs {
		for _, s := range r.Usage {
			peak, last = max(peak, s.GPUs), max(last, s.At)
		}
	}
	if peak == 0 {
		f.Empty = "No GPU was ever in use, so there is nothing to show over time."
		return f
	}
	f.Summary = say(runs, func(_ int, r Run) string {
		if len(r.Usage) == 0 {
			return "no GPU was ever in use."
		}
		most, mean := stretch(r.Usage, r.Usage[0].At, r.Usage[len(r.Usage)-1].At)
		return fmt.Sprintf("at most %s GPUs, %s on average, for %s.", report.Count(most), report.Tenths(mean),
			report.Duration(r.Usage[len(r.Usage)-1].At.Sub(r.Usage[0].At)))
	})
	f.Keys = legend(runs, func(i int) bool { return len(runs[i].Usage) > 0 })
	f.Data = usageTable(runs, last)
	x, y := linearTime("time since the start", last.Seconds()), counts("GPUs in use", peak, report.Count)
	f.Plots = []plot{livePlot(&f, x, y, func(i int) []point { return steps(runs[i].Usage, x, y) }, len(runs))}
	return f
}

func steps(usage []Step, x, y axis) []point {
	var points []point
	for _, s := range usage {
		points = append(points, point{x.at(s.At.Seconds()), y.at(float64(s.GPUs))})
	}
	return points
}

// stretch is the peak and the mean over time of the GPUs in use in [from, to). Before its first step a curve is 0. The
// mean of an empty stretch is its value.
func stretch(usage []Step, from, to unit.Time) (peak int, mean float64) {
	var sum float64
	for i, s := range usage {
		end := unit.Never
		if i+1 < len(usage) {
			end = usage[i+1].At
		}
		if end <= from && from != to || s.At >= to && from != to {
			continue
		}
		peak = max(peak, s.GPUs)
		sum += float64(s.GPUs) * min(end, to).Sub(max(s.At, from)).Seconds()
	}
	if to <= from {
		return peak, float64(peak)
	}
	return peak, sum / to.Sub(from).Seconds()
}

func usageTable(runs []Run, last unit.Time) data {
	d := data{Caption: "GPUs in use: average, and peak in brackets", Head: heads("From", runs)}
	width := last/usageRows + 1
	for i := range usageRows {
		from := unit.Time(i) * width
		if from >= last {
			break
		}
		row := []string{report.Seconds(from.Seconds())}
		for _, r := range runs {
			peak, mean := stretch(r.Usage, from, min(from.Add(time.Duration(width)), last))
			row = append(row, fmt.Sprintf("%s (%s)", report.Tenths(mean), report.Count(peak)))
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}
