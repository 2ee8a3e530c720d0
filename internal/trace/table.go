package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Columns says which columns a table may have.
type Columns struct {
	Required      []string
	Optional      []string
	IgnoreUnknown bool // accept columns of other names; otherwise they are errors
	Comma         rune // separator; 0 means a comma
}

// Table streams a delimited text with a header row and hands out cells by column name. A byte order mark and CRLF
// line ends are accepted. Faults of cells are gathered, up to maxErrors, so that one run names them all; a row with
// a fault is still returned, with zero values. Memory is that of one row, whatever the size of the text.
//
// Use: for t.Next() { t.Int("workers", 1, 4096) ... }; then t.Err().
type Table struct {
	file    string
	csv     *csv.Reader
	columns map[string]int
	header  []string
	record  []string
	line    int
	errs    Errors
}

// NewTable reads the header row. It returns Errors when the text is empty, a required column is missing, a column
// stands twice, or one is unknown.
func NewTable(file string, r io.Reader, want Columns) (*Table, error) {
	t := &Table{file: file, columns: map[string]int{}}
	b := bufio.NewReaderSize(r, 1<<16)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = b.Discard(3) // cannot fail: the three bytes were peeked
	}
	t.csv = csv.NewReader(b)
	t.csv.ReuseRecord = true
	if want.Comma != 0 {
		t.csv.Comma = want.Comma
		t.csv.LazyQuotes = true
	}
	record, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, Errors{{Code: "empty", File: file, Message: "the file is empty",
			Fix: "write a header row: " + strings.Join(want.Required, ",")}}
	}
	if err != nil {
		return nil, Errors{t.syntaxError(err)}
	}
	t.header = slices.Clone(record)
	t.readHeader(want)
	if len(t.errs) > 0 {
		return nil, t.errs
	}
	return t, nil
}

func (t *Table) readHeader(want Columns) {
	for i, name := range t.header {
		name = strings.TrimSpace(name)
		t.header[i] = name
		if at, twice := t.columns[name]; twice {
			t.fault(&Error{Code: "double_column", Line: 1, Column: name,
				Message: fmt.Sprintf("column %q stands twice (%d, %d)", name, at+1, i+1), Fix: "remove one of them"})
			continue
		}
		t.columns[name] = i
		if !want.IgnoreUnknown && !slices.Contains(want.Required, name) && !slices.Contains(want.Optional, name) {
			t.fault(&Error{Code: "unknown_column", Line: 1, Column: name,
				Message: fmt.Sprintf("unknown column %q", name), Fix: "remove it, or accept it with --ignore-unknown"})
		}
	}
	for _, name := range want.Required {
		if _, ok := t.columns[name]; !ok {
			t.fault(&Error{Code: "missing_column", Line: 1, Column: name,
				Message: fmt.Sprintf("no column %q; found %s", name, strings.Join(t.header, ", ")),
				Fix:     "the first row must name the columns " + strings.Join(want.Required, ", ")})
		}
	}
}

// Next reads one row. It is false at the end of the text, at a row that cannot be split into cells, and once
// maxErrors faults were found.
func (t *Table) Next() bool {
	if len(t.errs) >= maxErrors {
		return false
	}
	record, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		t.errs = append(t.errs, t.syntaxError(err))
		return false
	}
	t.record = record
	t.line, _ = t.csv.FieldPos(0)
	return true
}

// Err is nil, or Errors with every fault found so far.
func (t *Table) Err() error {
	if len(t.errs) == 0 {
		return nil
	}
	return t.errs
}

// Line is the line of the text that the current row starts on, from 1.
func (t *Table) Line() int { return t.line }

// Has says whether the table has a column.
func (t *Table) Has(column string) bool {
	_, ok := t.columns[column]
	return ok
}

// Text is the cell of the current row without surrounding blanks; "" when there is no such column. The text is
// only valid until Next: clone what is kept.
func (t *Table) Text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(t.record[i])
}

// Float is the cell as a finite number in [least, most], or fallback when it is empty or there is no such column.
func (t *Table) Float(column string, least, most, fallback float64) float64 {
	text := t.Text(column)
	if text == "" {
		return fallback
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(v):
		t.Fault(column, "not_a_number", fmt.Sprintf("%s %q is not a number", column, text), "", "write a plain number")
	case v < least || v > most:
		t.outOfRange(column, text, v < 0, formatNumber(least), formatNumber(most))
	default:
		return v
	}
	return fallback
}

// Int is the cell as a whole number in [least, most], or fallback when it is empty or there is no such column.
func (t *Table) Int(column string, least, most, fallback int) int {
	text := t.Text(column)
	if text == "" {
		return fallback
	}
	v, err := strconv.Atoi(text)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		t.Fault(column, "not_a_number", fmt.Sprintf("%s %q is not a whole number", column, text), "",
			"write a whole number")
	case v < least || v > most:
		t.outOfRange(column, text, v < 0, strconv.Itoa(least), strconv.Itoa(most))
	default:
		return v
	}
	return fallback
}

func (t *Table) outOfRange(column, text string, negative bool, least, most string) {
	what := "outside"
	if negative {
		what = "negative, outside"
	}
	t.Fault(column, "out_of_range", fmt.Sprintf("%s %s is %s [%s, %s]", column, text, what, least, most), "",
		fmt.Sprintf("write %s to %s", least, most))
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Fault records a fault of a cell of the current row.
func (t *Table) Fault(column, code, message, why, fix string) {
	t.fault(&Error{Code: code, Message: message, Line: t.line, Column: column, Value: strings.Clone(t.Text(column)),
		Row: t.row(), Why: why, Fix: fix})
}

func (t *Table) fault(e *Error) {
	e.File = t.file
	if len(t.errs) < maxErrors {
		t.errs = append(t.errs, e)
	}
}

// maxRow is how much of a row an error quotes.
const maxRow = 120

func (t *Table) row() string {
	row := strings.Join(t.record, string(t.csv.Comma))
	if len(row) > maxRow {
		row = strings.ToValidUTF8(row[:maxRow], "") + "~"
	}
	return row
}

func (t *Table) syntaxError(err error) *Error {
	var p *csv.ParseError
	if !errors.As(err, &p) {
		return &Error{Code: "unreadable", File: t.file, Line: t.line, Message: err.Error()}
	}
	e := &Error{Code: "syntax", File: t.file, Line: p.StartLine, Message: p.Err.Error()}
	if errors.Is(p.Err, csv.ErrFieldCount) {
		e.Message = fmt.Sprintf("this row does not have %d cells as the header has", len(t.header))
		e.Fix = "quote cells that hold the separator; end every row alike"
	}
	return e
}
