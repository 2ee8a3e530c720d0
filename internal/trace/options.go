package trace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/unit"
)

// Options says which jobs of a trace are kept and what fills the gaps of its rows. The zero value keeps all.
type Options struct {
	From, To Bound  // keep submissions in [From, To); rows outside are counted as excluded
	VC       string // keep one virtual cluster (sacct: one partition); rows of others are counted as excluded

	// SubmitAt, when set, replaces every submission time, after From and To were applied.
	SubmitAt *unit.Time

	IgnoreUnknown bool                         // accept columns that a format does not know
	Models        *ModelMap                    // names a model for jobs whose row names none; nil means no map
	Rates         *Rates                       // steps per second alone, for traces that state work in steps; nil means none
	Draw          func() (model, batch string) // names the model of jobs that still have none, in order of submission; nil leaves them
	DefaultFloor  float64                      // floor of a job that states none, in (0, 1]; 0 means StandardFloor

	// PolluxDuration is the run time of a Pollux job alone, for traces that state none; nil means unknown.
	PolluxDuration func(PolluxJob) (time.Duration, error)
}

// StandardFloor is the floor of a job when neither its row nor the caller states one: a job may lose a tenth of its
// standalone speed.
const StandardFloor = 0.9

func (o *Options) floor() float64 {
	if o.DefaultFloor > 0 && o.DefaultFloor <= 1 {
		return o.DefaultFloor
	}
	return StandardFloor
}

// Bound is one end of a span of submission times: a date, or seconds. Seconds count from the zero of a trace that
// is in seconds, and from the first job of one that is in dates. The zero Bound is open.
type Bound struct {
	kind    boundKind
	date    time.Time
	seconds unit.Time
}

type boundKind uint8

const (
	openBound boundKind = iota
	dateBound
	secondsBound
)

// boundLayouts are the dates ParseBound reads. Without an offset a date is UTC, as naive times of traces are.
var boundLayouts = []string{time.DateOnly, time.DateTime, "2006-01-02T15:04:05", time.RFC3339Nano}

// ParseBound reads "2017-10-01", "2017-10-01 12:00:00", an RFC 3339 time, or a number of seconds of at least 0.
// The empty text is the open bound.
func ParseBound(s string) (Bound, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Bound{}, nil
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(v) {
		if v < 0 || v > maxSeconds {
			return Bound{}, fmt.Errorf("bound %s s is outside [0, 100 years]", s)
		}
		return Bound{kind: secondsBound, seconds: unit.Seconds(v)}, nil
	}
	for _, layout := range boundLayouts {
		if t, err := time.Parse(layout, s); err == nil && validDate(t) {
			return Bound{kind: dateBound, date: t}, nil
		}
	}
	return Bound{}, fmt.Errorf("bound %q is neither a date such as 2017-10-01 or 2017-10-01 12:00:00 nor seconds", s)
}

// Excludes says whether no time lies in [b, to), where both are dates or both seconds.
func (b Bound) Excludes(to Bound) bool {
	return b.kind != openBound && b.kind == to.kind && b.at() >= to.at()
}

// UnmarshalText is ParseBound, for flags.
func (b *Bound) UnmarshalText(text []byte) error {
	v, err := ParseBound(string(text))
	*b = v
	return err
}

// at is the bound on the time axis of a stream: nanoseconds since 1970 for dates, since zero for seconds.
func (b Bound) at() unit.Time {
	if b.kind == dateBound {
		return unit.Time(b.date.UnixNano())
	}
	return b.seconds
}

// maxSeconds is 100 years: a longer run or a later submission is a slip of the pen, and virtual time would saturate.
const maxSeconds = 100 * 365.25 * 86400

// validDate holds dates to where they count as nanoseconds in 64 bits with a century of run time after them.
func validDate(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2150 }
