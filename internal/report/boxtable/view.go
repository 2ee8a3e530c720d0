// Package boxtable writes what is known of one shared machine for people: jobs, GPUs, events, why a job waits, and the screen
// of weft top. It is told what time it is, and looks at nothing itself.
package boxtable

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// View is when and where something is shown.
type View struct {
	Now    time.Time
	Zone   *time.Location // of times of day; nil is UTC
	Screen report.Screen
}

// clock is a time of day; with its date when that is another day.
func (v View) clock(t time.Time, layout string) string {
	zone := v.Zone
	if zone == nil {
		zone = time.UTC
	}
	t = t.In(zone)
	if now := v.Now.In(zone); now.Year() != t.Year() || now.YearDay() != t.YearDay() {
		return t.Format("Jan 2 " + layout)
	}
	return t.Format(layout)
}

// Layouts of a time of day.
const (
	minutes = "15:04"
	seconds = "15:04:05"
)

// Span is a time that goes on, in the steps in which people look at it: "12s", "52m", "2h14m", "4d04h".
func Span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// secondsOf is a number of seconds as a span; what no span holds is the longest.
func secondsOf(s float64) time.Duration {
	const most = float64(math.MaxInt64) / 2
	return time.Duration(min(max(s*float64(time.Second), 0), most))
}

// ids joins IDs with commas; "-" for none.
func ids(list []box.ID) string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = id.String()
	}
	return cmp.Or(strings.Join(texts, ","), report.None)
}

// numbers joins GPUs with commas; "-" for none.
func numbers(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return cmp.Or(strings.Join(texts, ","), report.None)
}

// gpus names GPUs: "gpu1", "gpu2,3".
func gpus(list []int) string { return "gpu" + numbers(list) }

// share is a share that may not be known.
func share(v *float64) string {
	if v == nil {
		return report.None
	}
	return report.Percent(*v)
}

// gib is an amount of memory in GiB, without the unit.
func gib(b unit.Bytes) string { return strconv.FormatFloat(b.GiB(), 'f', 1, 64) }

// below says whether a rate is below a floor, as both are shown.
func below(rate *float64, floor float64) bool {
	return rate != nil && math.Round(*rate*100) < math.Round(floor*100)
}
