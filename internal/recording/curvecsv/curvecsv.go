// Package curvecsv reads memory curves as tables: a column time_ms, a column of bytes, and optionally the bytes that
// the allocator held in reserve and the iteration each row belongs to.
package curvecsv

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Source names what these recordings come from.
const Source = "curve"

// Columns of the table. The first of levels that is there is the curve.
const (
	columnTime     = "time_ms"
	columnReserved = "reserved_bytes"
	columnStep     = "profiler_step"
	columnDelta    = "delta_bytes_from_start"
)

var levels = []string{"allocated_bytes", "total_bytes", "bytes", columnDelta}

// Known says whether a text begins with a header that this package reads.
func Known(line string) bool {
	return slices.ContainsFunc(strings.Split(line, ","), func(c string) bool { return strings.TrimSpace(c) == columnTime })
}

// Bounds of the cells: a year, and a pebibyte.
const (
	maxTime  = 366 * 24 * 3600 * 1e3
	maxBytes = 1 << 50
)

// curve is what was read so far.
type curve struct {
	held, reserved recording.Builder
	marks          marks
	last           float64
	missing        int
	rows           int
}

// Read reads one curve. Faults are trace.Errors that name line and column.
func Read(file string, r io.Reader, progress recording.Progress) ([]recording.Recording, error) {
	counted := &counter{r: r}
	t, err := trace.NewTable(file, counted, trace.Columns{Required: []string{columnTime}, IgnoreUnknown: true})
	if err != nil {
		return nil, err
	}
	level := ""
	for _, name := range levels {
		if level == "" && t.Has(name) {
			level = name
		}
	}
	if level == "" {
		return nil, trace.Errors{{Code: "missing_column", File: file, Line: 1, Message: "no column of bytes",
			Fix: "name it one of " + strings.Join(levels, ", ")}}
	}
	var c curve
	for t.Next() {
		c.row(t, level)
		if progress != nil && c.rows%4096 == 0 {
			if err := progress(counted.n); err != nil {
				return nil, err
			}
		}
	}
	partial := ""
	if err := t.Err(); errors.Is(err, io.ErrUnexpectedEOF) && c.rows > 0 {
		partial = fmt.Sprintf("the table is cut after line %d: what comes before is used", t.Line())
	} else if err != nil {
		return nil, err
	}
	if c.held.Points() == 0 {
		return nil, recording.Bad(file, "empty", "the table holds no row with memory", -1, "", "write a row for each change of memory")
	}
	return []recording.Recording{c.recording(level, partial)}, nil
}

// row takes one row; what is at fault in it is left to the table.
func (c *curve) row(t *trace.Table, level string) {
	c.rows++
	at := t.Float(columnTime, 0, maxTime, -1)
	least := 0.0
	if level == columnDelta {
		least = -maxBytes
	}
	held := t.Float(level, least, maxBytes, maxBytes*2)
	reserved := t.Float(columnReserved, 0, maxBytes, -1)
	switch {
	case at < 0 && t.Text(columnTime) == "":
		t.Fault(columnTime, "missing_value", "no time", "", "write milliseconds since the start")
		return
	case at < 0:
		return
	case at < c.last:
		t.Fault(columnTime, "out_of_order", fmt.Sprintf("time %v is before %v", at, c.last), "a curve runs forward", "sort the rows by time")
		return
	}
	c.last = at
	now := unit.Time(at * 1e6)
	c.marks.row(now, t.Text(columnStep))
	if held > maxBytes {
		c.missing++
		return
	}
	c.held.Add(now, unit.Bytes(held))
	if reserved >= 0 {
		c.reserved.Add(now, unit.Bytes(reserved))
	}
}

func (c *curve) recording(level, partial string) recording.Recording {
	r := recording.Recording{Source: Source, Partial: partial, Missing: c.missing, Relative: level == columnDelta}
	var thinned bool
	r.Allocated, thinned = c.held.Curve(0, unit.Time(c.last*1e6))
	if c.reserved.Points() > 0 {
		r.Reserved, _ = c.reserved.Curve(0, r.Allocated.End)
	}
	r.Marks = c.marks.iterations()
	if r.Relative {
		r.Notes = append(r.Notes, "memory counts from the start of the recording: what was allocated before is missing")
	}
	if c.missing > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d rows without memory: the level before them is taken to last", c.missing))
	}
	if thinned {
		r.Notes = append(r.Notes, "a long recording: neighbouring rows are joined at the higher of their levels")
	}
	return r
}

// counter counts the bytes read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
