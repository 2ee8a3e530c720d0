// Package smi reads what nvidia-smi --query-gpu=... --format=csv -lms writes, and tables of DCGM fields in the same form:
// one sample a row, of several GPUs in turn, with error lines and repeated headers between them. It is a measurement
// from outside: it shows what a process took from the GPU, not what it uses of it.
package smi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Source names what these recordings come from.
const Source = "nvidia-smi"

// Query is a command that writes what Read needs.
const Query = "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used --format=csv -lms 100"

// field is what a column means.
type field uint8

const (
	none field = iota
	timestamp
	index
	identity // an id that tells GPUs apart where there is no index
	utilisation
	memory
	migMode
)

// names are the columns that are read, without their units: those of nvidia-smi and of DCGM.
var names = map[string]field{
	"timestamp": timestamp, "time": timestamp,
	"index": index, "gpu": index, "gpu_id": index, "gpu id": index,
	"uuid": identity, "gpu_uuid": identity, "pci.bus_id": identity, "gpu_bus_id": identity, "serial": identity,
	"utilization.gpu": utilisation, "dcgm_fi_dev_gpu_util": utilisation, "gputl": utilisation,
	"memory.used": memory, "dcgm_fi_dev_fb_used": memory, "fb_memory_usage.used": memory, "fbusd": memory,
	"mig.mode.current": migMode, "mig.mode": migMode,
}

// Known says whether a text begins with a header, or with rows without one, that this package reads.
func Known(line string) bool {
	cells := split(line)
	if isHeader(cells) {
		return true
	}
	_, err := parseTime(cells[0])
	return err == nil && len(cells) > 1 && len(cells[0]) >= len("1700000000")
}

func isHeader(cells []string) bool {
	found := 0
	for _, c := range cells {
		if n, _ := title(c); names[n] != none {
			found++
		}
	}
	return found >= 2
}

// title divides "memory.used [MiB]" into its name and its unit.
func title(cell string) (name, measure string) {
	name, measure, _ = strings.Cut(cell, "[")
	return strings.ToLower(strings.Trim(name, ` "#`)), strings.TrimSuffix(strings.TrimSpace(measure), "]")
}

func split(line string) []string {
	cells := strings.Split(line, ",")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// maxLine is far beyond any line of nvidia-smi: a longer one is another kind of file.
const maxLine = 1 << 16

// Read reads a table: one recording for each GPU. columns, when not empty, names them in place of a header row. Faults
// are trace.Errors that name the line. A sample without memory is counted and leaves the curve as it was.
func Read(file string, r io.Reader, columns []string, progress recording.Progress) ([]recording.Recording, error) {
	t := &table{file: file, gpus: map[string]*gpu{}}
	if len(columns) > 0 {
		if err := t.header(columns); err != nil {
			return nil, err
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<12), maxLine)
	read := int64(0)
	for lines.Scan() {
		t.line++
		read += int64(len(lines.Bytes())) + 1
		if progress != nil && t.line%4096 == 0 {
			if err := progress(read); err != nil {
				return nil, err
			}
		}
		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" {
			continue
		}
		if err := t.row(text); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, t.fault("long_row", "", fmt.Sprintf("a line is longer than %d KiB", maxLine>>10), "", "check that this is a table of nvidia-smi")
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		t.partial = fmt.Sprintf("the table is cut after line %d: what comes before is used", t.line)
	} else if err != nil {
		return nil, fmt.Errorf("read %s after line %d: %w", file, t.line, err)
	}
	return t.recordings()
}

// table is what was read so far.
type table struct {
	file    string
	line    int
	columns []string
	fields  []field
	units   []string
	gpus    map[string]*gpu
	order   []string
	skipped int // lines that are no sample
	begun   bool
	origin  time.Time
	partial string
}

func (t *table) fault(code, column, message, why, fix string) error {
	return trace.Errors{{Code: code, Message: message, File: t.file, Line: t.line, Column: column, Why: why, Fix: fix}}
}

// header takes the names of the columns.
func (t *table) header(cells []string) error {
	t.fields, t.units, t.columns = nil, nil, slices.Clone(cells)
	for _, c := range cells {
		name, measure := title(c)
		t.fields = append(t.fields, names[name])
		t.units = append(t.units, measure)
	}
	if !slices.Contains(t.fields, memory) {
		return t.fault("missing_column", "memory.used", "no column \"memory.used\"; found "+quote(strings.Join(cells, ", ")),
			"without memory there is no profile", Query)
	}
	return nil
}

// row takes one line: a sample, a header, or something that nvidia-smi says between them.
func (t *table) row(text string) error {
	cells := split(text)
	if isHeader(cells) {
		if t.fields == nil {
			return t.header(cells)
		}
		t.skipped++
		return nil
	}
	if t.fields == nil {
		return t.headless(cells, text)
	}
	if len(cells) != len(t.fields) {
		t.skipped++
		return nil
	}
	t.sample(cells)
	return nil
}

// headless is the fault of a table that begins with a sample; a line that is none may come before the header.
func (t *table) headless(cells []string, text string) error {
	if _, err := parseTime(cells[0]); err != nil {
		t.skipped++
		return nil
	}
	return t.fault("no_header", "", fmt.Sprintf("no header: the first row has %d cells of data, not column names", len(cells)),
		"which of them is memory in use cannot be told: "+quote(text),
		"name them: --columns timestamp,index,...,memory.used (or record without noheader)")
}

func quote(s string) string {
	const most = 120
	if len(s) > most {
		s = s[:most] + "~"
	}
	return strings.ToValidUTF8(s, "?")
}

// sample takes one row of data.
func (t *table) sample(cells []string) {
	var at time.Time
	when := errNoTime
	key, fallback := "", ""
	for i, f := range t.fields {
		switch f {
		case timestamp:
			at, when = parseTime(cells[i])
		case index:
			key = cells[i]
		case identity:
			if fallback == "" {
				fallback = cells[i]
			}
		}
	}
	if slices.Contains(t.fields, timestamp) && when != nil {
		t.skipped++ // a row without its time is of another kind
		return
	}
	if key == "" || absent(key) {
		key = fallback
	}
	g := t.gpu(key)
	if when == nil {
		g.at(t.since(at))
	} else {
		g.next()
	}
	for i, f := range t.fields {
		switch f {
		case memory:
			g.memory(cells[i], t.units[i])
		case utilisation:
			g.busy(cells[i])
		case migMode:
			g.mig = g.mig || strings.EqualFold(cells[i], "Enabled")
		}
	}
}

// maxGPUs bounds what a table of nonsense makes: no machine has as many.
const maxGPUs = 1024

func (t *table) gpu(key string) *gpu {
	g := t.gpus[key]
	if g == nil {
		if len(t.order) >= maxGPUs {
			return &gpu{} // counted nowhere
		}
		g = &gpu{}
		key = strings.Clone(key)
		t.gpus[key] = g
		t.order = append(t.order, key)
	}
	return g
}

func (t *table) since(at time.Time) unit.Time {
	if !t.begun {
		t.begun, t.origin = true, at
	}
	return unit.Time(at.Sub(t.origin)) // Sub saturates
}

func (t *table) recordings() ([]recording.Recording, error) {
	if t.fields == nil {
		return nil, t.fault("empty", "", "the file holds no header and no sample", "", "record one: "+Query)
	}
	var out []recording.Recording
	missing := 0
	for _, key := range t.order {
		r, ok := t.gpus[key].recording()
		missing += t.gpus[key].missing
		if !ok {
			continue
		}
		r.Device, r.SkippedLines, r.Partial = key, t.skipped, t.partial
		if t.skipped > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d lines are no data (errors, repeated headers) and are skipped", t.skipped))
		}
		if !slices.Contains(t.fields, timestamp) {
			r.Clock = recording.Even
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		t.line = 0
		return nil, t.fault("no_memory", "memory.used", fmt.Sprintf("no memory values: %d samples, none with memory in use", missing),
			"unknown memory is not 0 MiB", "record where memory.used may be read: not inside a container without permission, not on a driver that hides it")
	}
	return out, nil
}
