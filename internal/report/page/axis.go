package page

import (
	"fmt"
	"math"
)

// axis maps values to [0, 1] along one side of a plot and says where its ticks are.
type axis struct {
	title       string // what it measures, with the unit
	kind        string // how the page's script writes a value: time, logtime, percent, count, ratio
	least, most float64
	ticks       []tick
}

type tick struct {
	value float64
	label string
}

// at is where a value lies; values outside lie at the ends.
func (a axis) at(v float64) float64 {
	if a.kind == "logtime" {
		v = math.Log(max(v, a.least)/a.least) / math.Log(a.most/a.least)
	} else {
		v = (v - a.least) / (a.most - a.least)
	}
	return min(max(v, 0), 1)
}

// wantedTicks is how many ticks an axis has at least, if values allow: few enough for labels on a phone.
const wantedTicks = 4

// Seconds of the units that people divide time in.
const (
	second = 1.0
	minute = 60.0
	hour   = 3600.0
	aDay   = 86400.0
)

// decades are the ticks of a logarithmic time axis: about a factor of ten apart, and all whole numbers of a unit.
var decades = []float64{.001, .01, .1, 1, 10, minute, 10 * minute, hour, aDay, 10 * aDay, 100 * aDay, 1000 * aDay,
	10000 * aDay, 100000 * aDay}

// finer are the ticks where fewer than three decades fit.
var finer = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, minute, 2 * minute, 5 * minute,
	10 * minute, 20 * minute, 30 * minute, hour, 2 * hour, 5 * hour, 12 * hour, aDay, 2 * aDay, 5 * aDay, 10 * aDay,
	20 * aDay, 50 * aDay, 100 * aDay, 200 * aDay, 500 * aDay, 1000 * aDay, 10000 * aDay, 100000 * aDay}

// logTime is a logarithmic axis over positive seconds, from the tick at or below least to the one at or above most.
func logTime(title string, least, most float64) axis {
	least = min(max(least, decades[0]), finer[len(finer)-2])
	most = max(most, least)
	all := decades
	if most/least < 300 {
		all = finer
	}
	from, to := 0, len(all)-1
	for from+1 < to && all[from+1] <= least {
		from++
	}
	for to-1 > from && all[to-1] >= most {
		to--
	}
	a := axis{title: title, kind: "logtime", least: all[from], most: all[to]}
	for _, v := range all[from : to+1] {
		a.ticks = append(a.ticks, tick{v, timeLabel(v)})
	}
	return a
}

// timeLabel writes a whole number of the largest unit that divides it.
func timeLabel(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s >= aDay && math.Mod(s, aDay) == 0:
		return fmt.Sprintf("%.0f d", s/aDay)
	case s >= hour && math.Mod(s, hour) == 0:
		return fmt.Sprintf("%.0f h", s/hour)
	case s >= minute && math.Mod(s, minute) == 0:
		return fmt.Sprintf("%.0f min", s/minute)
	case s >= second:
		return fmt.Sprintf("%g s", s)
	}
	return fmt.Sprintf("%.3g ms", s*1000)
}

// timeSteps are the distances between ticks of a linear time axis; above them come 1, 2 and 5 times powers of ten days.
var timeSteps = []float64{1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
	hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, aDay}

// linearTime is an axis over [0, most] seconds that ends with its values, not with a tick: time runs out anywhere.
func linearTime(title string, most float64) axis {
	most = max(most, 1)
	step := niceStep(most/aDay/wantedTicks) * aDay
	for i := len(timeSteps) - 1; i >= 0 && most/step < wantedTicks; i-- {
		step = timeSteps[i]
	}
	unit, name := unitOf(step)
	a := axis{title: title + ", " + name, kind: "time", most: most}
	for i := 0; float64(i)*step <= most; i++ {
		a.ticks = append(a.ticks, tick{float64(i) * step, fmt.Sprintf("%.0f", float64(i)*step/unit)})
	}
	return a
}

func unitOf(step float64) (seconds float64, name string) {
	switch {
	case step >= aDay:
		return aDay, "days"
	case step >= hour:
		return hour, "hours"
	case step >= minute:
		return minute, "minutes"
	}
	return second, "seconds"
}

// niceStep is the largest of 1, 2 or 5 times a power of ten at or below v, at least 1.
func niceStep(v float64) float64 {
	if !(v > 1) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{5, 2} {
		if n*power <= v {
			return n * power
		}
	}
	return power
}

// counts is an axis over whole numbers from 0 to the first tick at or above most.
func counts(title string, most int, write func(int) string) axis {
	step := int(niceStep(float64(most) / wantedTicks))
	a := axis{title: title, kind: "count"}
	for v := 0; ; v += step {
		a.ticks = append(a.ticks, tick{float64(v), write(v)})
		if v >= max(most, 1) {
			a.most = float64(v)
			return a
		}
	}
}

// shares is an axis over shares of 1 from 0 to the first tick at or above most.
func shares(title string, most float64) axis {
	a := counts(title, int(math.Ceil(min(max(most, 0.04), 1)*100-1e-9)), func(v int) string { return fmt.Sprint(v) })
	a.kind = "percent"
	a.most = min(a.most/100, 1)
	var ticks []tick
	for _, t := range a.ticks {
		if t.value <= 100 {
			ticks = append(ticks, tick{t.value / 100, t.label})
		}
	}
	a.ticks = ticks
	return a
}

// ratios is an axis over slowdowns from 1 to most > 1.
func ratios(title string, most float64) axis {
	a := axis{title: title, kind: "ratio", least: 1, most: most}
	step := (most - 1) / wantedTicks
	power := math.Pow(10, math.Floor(math.Log10(step)))
	switch {
	case step >= 5*power:
		step = 5 * power
	case step >= 2*power:
		step = 2 * power
	default:
		step = power
	}
	decimals := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	for i := 0; 1+float64(i)*step <= most+1e-9; i++ {
		v := 1 + float64(i)*step
		a.ticks = append(a.ticks, tick{v, fmt.Sprintf("%.*f", decimals, v)})
	}
	return a
}
