package trace

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Alone is what a pair table says of one of its jobs before it shared. 0 is unknown.
type Alone struct {
	Rate      float64 // steps per second
	GPUUtil   float64 // share of the time with a kernel on the GPU, 0..1
	MemUtil   float64 // share of the time with memory traffic, 0..1
	MemoryMiB float64 // peak
	Doubted   bool    // some figure was out of range and is ignored
}

// MeasuredPair is a pair with what was known of its jobs.
type MeasuredPair struct {
	Pair
	AloneA, AloneB Alone
	MemoryMiB      float64 // of both together; 0 unknown
}

// MeasuredPairs is a table of pairs with what to say about it.
type MeasuredPairs struct {
	Pairs []MeasuredPair
	Notes []string // each kind of oddity once, with the first line it stands on
}

// pairAlone are the columns on each job alone; pairSynonyms are other names of them.
var (
	pairAlone = []string{"gpu_util_a", "gpu_util_b", "mem_util_a", "mem_util_b", "memory_mib_a", "memory_mib_b",
		"gpu_util_pct_a", "gpu_util_pct_b", "mem_util_pct_a", "mem_util_pct_b", "mem_used_mib_a", "mem_used_mib_b",
		"mem_used_a", "mem_used_b", "memory_a", "memory_b"}
	pairSynonyms = map[string][]string{
		"gpu_util_":   {"gpu_util_", "gpu_util_pct_"},
		"mem_util_":   {"mem_util_", "mem_util_pct_"},
		"memory_mib_": {"memory_mib_", "mem_used_mib_", "mem_used_", "memory_"},
	}
)

// ReadMeasuredPairs reads a table of measured pairs with everything that it says of the jobs: standalone rates
// (alone_a, alone_b; steps per second), utilisation (gpu_util_a, mem_util_a, ...: per cent, or shares if no value of the
// column exceeds 1) and memory (memory_mib_a, ...). A figure that cannot be is ignored with a note, a rate above 1 is
// noted, columns that are not known are noted; a rate that is missing or not above 0 is an error, as in ReadPairs.
func ReadMeasuredPairs(file string, r io.Reader) (*MeasuredPairs, error) {
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	t, err := NewTable(file, in, Columns{Required: pairRequired, Optional: pairOptional, IgnoreUnknown: true})
	if err != nil {
		return nil, err
	}
	m := &pairReader{t: t, names: interner{}, out: &MeasuredPairs{}, first: map[string]int{}, most: map[string]float64{}}
	for t.Next() {
		m.row()
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	m.settle()
	return m.out, nil
}

// pairReader reads rows and remembers what was odd about them.
type pairReader struct {
	t     *Table
	names interner
	out   *MeasuredPairs
	first map[string]int     // first line of each oddity
	order []string           // oddities as they appeared
	most  map[string]float64 // greatest value of each kind of utilisation
}

func (m *pairReader) row() {
	t := m.t
	cellsFilled(t, pairRequired)
	text := func(column string) string { return m.names.text(t.Text(column)) }
	p := MeasuredPair{Pair: Pair{Source: text("source"), GPU: text("gpu_type"), JobA: text("job_a"), BatchA: text("batch_a"),
		JobB: text("job_b"), BatchB: text("batch_b"), NormA: t.positive("norm_a"), NormB: t.positive("norm_b")}}
	for _, norm := range []float64{p.NormA, p.NormB} {
		if norm > 1 {
			m.odd("rates above 1 (the first: %s) are counted as 1", formatNumber(norm))
		}
	}
	p.AloneA, p.AloneB = m.alone("a"), m.alone("b")
	p.MemoryMiB, _ = m.within("mem_used_mib", maxPairMiB)
	m.out.Pairs = append(m.out.Pairs, p)
}

// maxPairMiB is 1 TiB and maxPairRate a step each nanosecond: beyond them a column holds something else.
const (
	maxPairMiB  = 1 << 20
	maxPairRate = 1e9
)

// alone reads the columns of side "a" or "b".
func (m *pairReader) alone(side string) Alone {
	var a Alone
	ok := [4]bool{}
	a.Rate, ok[0] = m.within("alone_"+side, maxPairRate)
	a.GPUUtil, ok[1] = m.utilisation("gpu_util_", side)
	a.MemUtil, ok[2] = m.utilisation("mem_util_", side)
	a.MemoryMiB, ok[3] = m.within(m.column("memory_mib_", side), maxPairMiB)
	a.Doubted = slices.Contains(ok[:], false)
	return a
}

// column is the name that the table uses for a figure of a side.
func (m *pairReader) column(kind, side string) string {
	for _, name := range pairSynonyms[kind] {
		if m.t.Has(name + side) {
			return name + side
		}
	}
	return kind + side
}

func (m *pairReader) utilisation(kind, side string) (float64, bool) {
	v, ok := m.within(m.column(kind, side), 100)
	m.most[kind] = max(m.most[kind], v)
	return v, ok
}

// within is a cell in [0, most], 0 where there is none. It is false, with a note, for a value outside, which is ignored.
func (m *pairReader) within(column string, most float64) (float64, bool) {
	v := m.t.Float(column, math.Inf(-1), math.Inf(1), 0)
	if v >= 0 && v <= most {
		return v, true
	}
	m.odd(column+" %s: ignored, range widened", formatNumber(v))
	return 0, false
}

// odd counts an oddity. The value of the first one stands in the note.
func (m *pairReader) odd(format, value string) {
	if _, seen := m.first[format]; !seen {
		m.first[format] = 0
		m.order = append(m.order, fmt.Sprintf("line %d: ", m.t.Line())+fmt.Sprintf(format, value))
	}
	m.first[format]++
}

// settle turns utilisation into shares, now that it is known which the file holds, and writes the notes.
func (m *pairReader) settle() {
	gpu, mem := unitOfShare(m.most["gpu_util_"]), unitOfShare(m.most["mem_util_"])
	for i := range m.out.Pairs {
		for _, a := range []*Alone{&m.out.Pairs[i].AloneA, &m.out.Pairs[i].AloneB} {
			a.GPUUtil /= gpu
			a.MemUtil /= mem
		}
	}
	m.out.Notes = m.order
	if unused := m.unused(); len(unused) > 0 {
		m.out.Notes = append(m.out.Notes, "columns not used: "+strings.Join(unused, ", "))
	}
}

// unitOfShare is what a column's values are parts of: 1 if none exceeds it, else 100.
func unitOfShare(most float64) float64 {
	if most <= 1 {
		return 1
	}
	return 100
}

// unused are the columns that nothing reads.
func (m *pairReader) unused() []string {
	var unused []string
	for _, name := range m.t.header {
		if !slices.Contains(pairRequired, name) && !slices.Contains(pairOptional, name) {
			unused = append(unused, clean(name))
		}
	}
	return unused
}
