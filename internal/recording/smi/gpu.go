package smi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/unit"
)

// gpu is the samples of one GPU.
type gpu struct {
	held      recording.Builder
	now, last unit.Time
	gaps      []unit.Time // between the first samples
	begun     bool
	missing   int // samples without memory
	samples   int
	util      float64 // percent, summed
	utils     int
	hidden    string // what stood where utilisation must, when it never was a number
	mig       bool
	back      int // samples older than the one before
}

// gapSamples is how many gaps between samples are looked at for the interval.
const gapSamples = 256

// at moves to the time of a sample.
func (g *gpu) at(now unit.Time) {
	if g.begun && now < g.last {
		g.back++
	} else if g.begun && len(g.gaps) < gapSamples {
		g.gaps = append(g.gaps, now-g.last)
	}
	g.begun, g.now, g.last = true, now, max(g.last, now)
	g.samples++
}

// next moves to a sample without a time: one second after the one before, for the shape only.
func (g *gpu) next() { g.at(g.last + unit.Time(time.Second)) }

// absent says whether a cell stands for a value that could not be read: "[N/A]", "[Not Supported]", "[Unknown Error]",
// "[Insufficient Permissions]", "ERR!" and the like.
func absent(cell string) bool {
	return cell == "" || cell[0] == '[' || strings.EqualFold(cell, "N/A") || strings.HasPrefix(cell, "ERR") || cell == "-"
}

// maxMemory is 1 TiB, beyond any GPU.
const maxMemory = unit.TiB

func (g *gpu) memory(cell, columnUnit string) {
	b, ok := amount(cell, columnUnit)
	if !ok || b > maxMemory {
		g.missing++
		return
	}
	g.held.Add(g.now, b)
}

// amount reads memory with the unit of the cell, else that of the column, else MiB, which nvidia-smi and DCGM mean.
func amount(cell, columnUnit string) (unit.Bytes, bool) {
	if absent(cell) {
		return 0, false
	}
	number, u, _ := strings.Cut(cell, " ")
	if u == "" {
		u = columnUnit
	}
	if u == "" {
		u = "MiB"
	}
	if v, err := strconv.ParseFloat(number, 64); err != nil || !(v >= 0 && v < 1e15) {
		return 0, false
	}
	b, err := unit.ParseBytes(number + u)
	return b, err == nil
}

func (g *gpu) busy(cell string) {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(cell, "%")), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		if g.hidden == "" {
			g.hidden = quote(cell)
		}
		return
	}
	g.util += v
	g.utils++
}

func (g *gpu) recording() (recording.Recording, bool) {
	if g.held.Points() == 0 {
		return recording.Recording{}, false
	}
	r := recording.Recording{Source: Source, Outside: true, Missing: g.missing}
	interval := g.interval()
	// The last sample stands for as long as the others.
	r.Allocated, _ = g.held.Curve(0, g.last+interval)
	r.SampleInterval = time.Duration(interval)
	if g.utils > 0 {
		mean := math.Min(1, g.util/float64(g.utils)/100)
		r.Utilisation = &mean
	}
	r.Notes = g.notes(interval)
	return r, true
}

func (g *gpu) interval() unit.Time {
	if len(g.gaps) == 0 {
		return 1
	}
	gaps := slices.Clone(g.gaps)
	slices.Sort(gaps)
	return max(1, gaps[len(gaps)/2])
}

func (g *gpu) notes(interval unit.Time) []string {
	var notes []string
	if g.utils == 0 && g.hidden != "" {
		why := "MIG mode hides it, or the GPU does not report it"
		switch {
		case g.mig:
			why = "MIG mode hides it, and memory is the sum of all instances"
		case strings.Contains(g.hidden, "Not Supported"):
			why = "this GPU or driver does not report it"
		}
		notes = append(notes, fmt.Sprintf("utilisation is unknown: every sample says %s (%s)", g.hidden, why))
	}
	if g.missing > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d samples are missing: the level before them is taken to last", g.missing, g.samples))
	}
	if g.back > 0 {
		notes = append(notes, fmt.Sprintf("%d samples are older than the one before: the clock was set back", g.back))
	}
	if interval > 1 {
		notes = append(notes, fmt.Sprintf("one sample each %s: what is shorter does not show", time.Duration(interval).Round(time.Millisecond)))
	}
	return notes
}

var errNoTime = errors.New("no time")

// layouts are the times that nvidia-smi and the common loggers write.
var layouts = []string{"2006/01/02 15:04:05.000", "2006/01/02 15:04:05", time.RFC3339Nano, "2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999"}

// parseTime reads one of the layouts, or seconds since 1970 (milliseconds when it has as many digits).
func parseTime(cell string) (time.Time, error) {
	for _, l := range layouts {
		if at, err := time.Parse(l, cell); err == nil {
			return at, nil
		}
	}
	v, err := strconv.ParseFloat(cell, 64)
	const milliseconds = 1e11 // as seconds the year 5138, as milliseconds 1973
	switch {
	case err != nil || !(v >= 0 && v < 1e14):
		return time.Time{}, errNoTime
	case v >= milliseconds:
		v /= 1e3
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
}
