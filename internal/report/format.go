package report

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// None stands for a value that does not exist: a mean of nothing, the waiting time of a job that never waited.
const None = "-"

const day = 24 * time.Hour

// Duration writes a span of job time with the precision that three to five digits give, rounded to the nearest:
//
//	below 1 s      "9 ms"      (whole milliseconds, 0 is "0 ms")
//	below 1 min    "12s"
//	below 1 h      "1m45s"
//	below 10 h     "3h13m05s"
//	below 100 h    "14h51m"
//	from there on  "15d20h"
//
// A negative span has a minus sign before it.
func Duration(d time.Duration) string {
	if d < 0 {
		return minus(d, Duration)
	}
	if d < time.Second-time.Millisecond/2 {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	s := d.Round(time.Second)
	switch {
	case s < time.Minute:
		return fmt.Sprintf("%ds", s/time.Second)
	case s < time.Hour:
		return fmt.Sprintf("%dm%02ds", s/time.Minute, s%time.Minute/time.Second)
	case s < 10*time.Hour:
		return fmt.Sprintf("%dh%02dm%02ds", s/time.Hour, s%time.Hour/time.Minute, s%time.Minute/time.Second)
	}
	return hoursOrDays(d)
}

// Elapsed writes how long weft itself took: "9 ms", "1.3 s" from a second on, and as Duration from a minute on.
func Elapsed(d time.Duration) string {
	const tenth = time.Second / 10
	if d < time.Second-time.Millisecond/2 || d >= time.Minute-tenth/2 {
		return Duration(d)
	}
	return fmt.Sprintf("%.1f s", d.Round(tenth).Seconds())
}

func hoursOrDays(d time.Duration) string {
	if m := d.Round(time.Minute); m < 100*time.Hour {
		return fmt.Sprintf("%dh%02dm", m/time.Hour, m%time.Hour/time.Minute)
	}
	h := d.Round(time.Hour)
	return fmt.Sprintf("%dd%02dh", h/day, h%day/time.Hour)
}

func minus(d time.Duration, write func(time.Duration) string) string {
	if d == math.MinInt64 { // has no positive counterpart
		d++
	}
	return "-" + write(-d)
}

// Seconds is Duration of a number of seconds; NaN and the infinities are None.
func Seconds(s float64) string {
	if !finite(s) {
		return None
	}
	return Duration(time.Duration(clamp(s*1e9, math.MinInt64, math.MaxInt64)))
}

// Percent writes a share of 1 to the whole percent: 0.944 is "94 %". A share below 1 never reads "100 %" but "99 %": what
// was missed by little was missed. Not finite: None.
func Percent(share float64) string { return percent(share, 0) }

// PercentTenths writes a share of 1 to the tenth: "48.1 %"; the whole, and nothing below it, is "100 %".
func PercentTenths(share float64) string {
	if share == 1 {
		return "100 %"
	}
	return percent(share, 1)
}

// Change writes a relative difference to the tenth with its sign: 0.023 is "+2.3 %"; not finite: None.
func Change(ratio float64) string {
	if !finite(ratio) {
		return None
	}
	text := strconv.FormatFloat(ratio*100, 'f', 1, 64)
	switch {
	case text == "-0.0":
		text = "0.0"
	case text[0] != '-' && text != "0.0":
		text = "+" + text
	}
	return text + " %"
}

func percent(share float64, decimals int) string {
	if !finite(share) {
		return None
	}
	least := math.Pow10(-decimals) // the smallest step shown, in percent
	v := math.Round(share*100/least) * least
	if share < 1 && v >= 100 {
		v = 100 - least
	}
	return strconv.FormatFloat(v+0, 'f', decimals, 64) + " %" // + 0 makes -0 into 0
}

// Count writes a whole number with a comma every three digits: "37,589".
func Count(n int) string {
	text := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return sign + text
}

// Several writes a number with what it counts, which becomes many with an s: "1 job", "1,412 jobs".
func Several(n int, one string) string {
	return Count(n) + " " + Form(n, one, one+"s")
}

// Form is the form of a word that goes with a number.
func Form(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Tenths writes a number to the tenth with a comma every three digits: "38.2", "1,204.5"; not finite: None. Numbers
// beyond 10^15 are written as Amount: a float has no tenths there.
func Tenths(v float64) string {
	if !finite(v) || math.Abs(v) >= 1e15 {
		return Amount(v)
	}
	tenths := int(math.Round(math.Abs(v) * 10))
	text := fmt.Sprintf("%s.%d", Count(tenths/10), tenths%10)
	if v < 0 && tenths > 0 {
		return "-" + text
	}
	return text
}

// Amount writes a quantity of any size: a whole number below a million ("37,589"), three digits and a decimal prefix
// from there on ("1.62 M", "23.4 G", "1.00 T"). Beyond 1000 T the number before the prefix grows. Not finite: None.
func Amount(v float64) string {
	if !finite(v) {
		return None
	}
	if v < 0 && math.Round(v) != 0 {
		return "-" + Amount(-v)
	}
	if v = math.Abs(v); math.Round(v) < 1e6 {
		return Count(int(math.Round(v)))
	}
	prefix := "M"
	v /= 1e6
	for _, larger := range []string{"G", "T"} {
		if v < 999.5 {
			break
		}
		v /= 1e3
		prefix = larger
	}
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f %s", v, prefix)
	case v < 99.95:
		return fmt.Sprintf("%.1f %s", v, prefix)
	case v < 1e15:
		return Count(int(math.Round(v))) + " " + prefix
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + prefix
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// clamp limits v to what an int64 holds. The upper end is the largest float64 below 2^63.
func clamp(v, least, most float64) float64 {
	return min(max(v, least), math.Nextafter(most, 0))
}
