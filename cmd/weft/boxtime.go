package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
)

// Forms of a time that are written with colons or a dash, as in Slurm.
var (
	clockTime  = regexp.MustCompile(`^(\d{1,6}):([0-5]\d):([0-5]\d)$`)
	dayTime    = regexp.MustCompile(`^(\d{1,5})-(\d{1,2}):([0-5]\d):([0-5]\d)$`)
	shortTime  = regexp.MustCompile(`^(\d{1,6}):(\d{2})$`)
	daysHours  = regexp.MustCompile(`^(\d{1,5})-(\d{1,2})(?::(\d{2}))?$`)
	plainTime  = regexp.MustCompile(`^\d{1,12}(\.\d*)?$`)
	daysBefore = regexp.MustCompile(`^(\d{1,6}(?:\.\d+)?)d(.*)$`)
)

// mostTime is the longest time that a job may be given: what is longer was not meant.
const mostTime = 10 * 366 * 24 * time.Hour

// parseTime reads how long something may take: "90s", "2h30m", "1d", "12:00:00" (hours, minutes, seconds), "1-12:00:00" (with
// days). What means one thing to Slurm and another to others is refused with what it could mean.
func parseTime(flag, text string) (time.Duration, error) {
	refuse := func(message, why, fix string) (time.Duration, error) {
		return 0, flagError(flag, text, message, why, fix)
	}
	if plainTime.MatchString(text) {
		return refuse(fmt.Sprintf("%s has no unit", text), "it is minutes to Slurm, and seconds to timeout", fmt.Sprintf("%ss or %sm", text, text))
	}
	if m := shortTime.FindStringSubmatch(text); m != nil {
		return refuse(fmt.Sprintf("%s could be hours or minutes", text), "it is minutes and seconds to Slurm", fmt.Sprintf("%sm%ss or %sh%sm", m[1], m[2], m[1], m[2]))
	}
	if m := daysHours.FindStringSubmatch(text); m != nil {
		return refuse(fmt.Sprintf("%s could be days and hours, or a range", text), "it is days and hours to Slurm", fmt.Sprintf("%sd%sh, or %s-%02s:%02s:00", m[1], m[2], m[1], m[2], m[3]))
	}
	d, ok := clockForm(text)
	if !ok {
		d, ok = unitForm(text)
	}
	switch {
	case !ok:
		return refuse(fmt.Sprintf("%q is no time", text), "", "90s, 45m, 2h30m, 1d, 12:00:00 or 1-12:00:00")
	case d <= 0:
		return refuse(fmt.Sprintf("%s is no time to run", text), "", "leave the flag out for no limit")
	case d > mostTime:
		return refuse(fmt.Sprintf("%s is more than ten years", text), "", "leave the flag out for no limit")
	}
	return d, nil
}

// clockForm reads h:mm:ss and d-hh:mm:ss.
func clockForm(text string) (time.Duration, bool) {
	days := "0"
	m := clockTime.FindStringSubmatch(text)
	if m == nil {
		long := dayTime.FindStringSubmatch(text)
		if long == nil {
			return 0, false
		}
		days, m = long[1], long[1:]
	}
	var n [4]int
	for i, digits := range []string{days, m[1], m[2], m[3]} {
		n[i], _ = strconv.Atoi(digits) // six digits at most
	}
	return time.Duration(n[0])*24*time.Hour + time.Duration(n[1])*time.Hour + time.Duration(n[2])*time.Minute + time.Duration(n[3])*time.Second, true
}

// unitForm reads what time.ParseDuration does, with days before it.
func unitForm(text string) (time.Duration, bool) {
	var days time.Duration
	if m := daysBefore.FindStringSubmatch(text); m != nil {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil || v*float64(24*time.Hour) >= math.MaxInt64/2 {
			return mostTime + 1, err == nil
		}
		days = time.Duration(v * float64(24*time.Hour))
		if text = m[2]; text == "" {
			return days, true
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || strings.HasPrefix(text, "+") || d < 0 && days > 0 {
		return 0, false
	}
	return min(days, math.MaxInt64-max(d, 0)) + d, true
}

// mostArray is how many jobs one array may have.
const mostArray = 10_000

// parseArray reads the indexes of a sweep, both included: "0-31".
func parseArray(text string) (*box.Array, error) {
	refuse := func(message, why, fix string) error { return flagError("array", text, message, why, fix) }
	a, b, isRange := strings.Cut(text, "-")
	if strings.ContainsAny(text, ",:%") {
		return nil, refuse(fmt.Sprintf("%s is no range", text), "steps, lists and limits are not known; priority and max_running do that", "0-31")
	}
	first, bad := strconv.ParseUint(a, 10, 31)
	tooMany := func(n uint64) error {
		return refuse(fmt.Sprintf("array of %s jobs: at most %s", report.Count(int(n)), report.Count(mostArray)), "each is a job with a folder of its own",
			fmt.Sprintf("%d-%d", first, first+mostArray-1))
	}
	if !isRange {
		if bad == nil && first > mostArray {
			n := first
			first = 0
			return nil, tooMany(n)
		}
		if bad == nil {
			return nil, refuse(fmt.Sprintf("%s could be one index or a number of them", text), "", fmt.Sprintf("0-%d, or %s-%s", max(first, 1)-1, text, text))
		}
		return nil, refuse(fmt.Sprintf("%q is no range", text), "", "0-31")
	}
	last, worse := strconv.ParseUint(b, 10, 31)
	switch {
	case bad != nil || worse != nil:
		return nil, refuse(fmt.Sprintf("%q is no range", text), "indexes are whole numbers from 0 on", "0-31")
	case first > last:
		return nil, refuse(fmt.Sprintf("%s ends before it begins", text), "", fmt.Sprintf("%d-%d", last, first))
	case last-first >= mostArray:
		return nil, tooMany(last - first + 1)
	}
	return &box.Array{First: int(first), Last: int(last)}, nil
}
