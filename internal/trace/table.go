package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
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
	rows    rows
	columns map[string]int
	header  []string
	record  []string
	line    int
	count   int // rows handed out
	errs    Errors
	failure error // of the reader below, not of the text
}

// rows splits a text into records. A record is valid until the next call; line is where it starts, from 1.
type rows interface {
	read() (record []string, line int, err error)
	comma() string
	starts() byte // first byte of the text that is not blank; only before the first read
}

// NewTable reads the header row. It returns Errors when the text is empty or has no header row, a required column is
// missing, a column stands twice, or one is unknown.
func NewTable(file string, r io.Reader, want Columns) (*Table, error) {
	t, err := openTable(file, newCSVRows(r, want.Comma), want.Required)
	if err != nil {
		return nil, err
	}
	return t, t.check(want)
}

// openTable reads the header row and leaves it to the caller to check it.
func openTable(file string, rows rows, hint []string) (*Table, error) {
	t := &Table{file: file, columns: map[string]int{}, rows: rows}
	if start := rows.starts(); start == '[' || start == '{' {
		t.fault(isJSON(hint))
		return nil, t.errs
	}
	record, line, err := rows.read()
	t.line = line
	if errors.Is(err, io.EOF) {
		return nil, Errors{{Code: "empty", File: file, Message: "the file is empty; it needs a header",
			Fix: "write a header row: " + strings.Join(hint, ",")}}
	}
	if err != nil {
		t.refuse(err)
		return nil, t.Err()
	}
	t.header = slices.Clone(record)
	for i, name := range t.header {
		t.header[i] = strings.TrimSpace(name)
	}
	return t, nil
}

// check holds the header against what is wanted.
func (t *Table) check(want Columns) error {
	if e := cmp.Or(misseparated(t.header, t.rows.comma()), headless(t.header, want.Required)); e != nil {
		t.fault(e)
		return t.errs
	}
	for i, name := range t.header {
		if at, twice := t.columns[name]; twice {
			t.fault(&Error{Code: "double_column", Line: t.line, Column: clean(name),
				Message: fmt.Sprintf("column %q twice (%d, %d)", clean(name), at+1, i+1), Fix: "remove one of them"})
			continue
		}
		t.columns[name] = i
	}
	for _, name := range want.Required {
		if _, ok := t.columns[name]; !ok {
			t.missing(name, "the first row must name the columns "+strings.Join(want.Required, ", "))
		}
	}
	for _, name := range t.header {
		if !want.IgnoreUnknown && !slices.Contains(want.Required, name) && !slices.Contains(want.Optional, name) {
			t.fault(&Error{Code: "unknown_column", Line: t.line, Column: clean(name),
				Message: fmt.Sprintf("unknown column %q", clean(name)),
				Fix:     "remove it, or accept it with --ignore-unknown"})
		}
	}
	return t.Err()
}

func (t *Table) missing(column, fix string) {
	if other := looksLike(t.header); other != "" {
		fix += "; this header is of --format " + other
	}
	t.fault(&Error{Code: "missing_column", Line: t.line, Column: column,
		Message: fmt.Sprintf("no column %q; found %s", column, clean(strings.Join(t.header, ", "))), Fix: fix})
}

// Next reads one row. It is false at the end of the text, at a row that cannot be split into cells, and once
// maxErrors faults were found.
func (t *Table) Next() bool {
	if len(t.errs) >= maxErrors || t.failure != nil {
		return false
	}
	record, line, err := t.rows.read()
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		t.refuse(err)
		return false
	}
	t.record, t.line = record, line
	t.count++
	return true
}

// Err is nil, Errors with every fault of the text found so far, or the failure of the reader below it.
func (t *Table) Err() error {
	switch {
	case t.failure != nil:
		return t.failure
	case len(t.errs) > 0:
		return t.errs
	}
	return nil
}

// Line is the line of the text that the current row starts on, from 1.
func (t *Table) Line() int { return t.line }

// Has says whether the table has a column.
func (t *Table) Has(column string) bool {
	_, ok := t.columns[column]
	return ok
}

// Text is the cell of the current row without surrounding blanks; "" when there is no such column. The text shares
// memory with its whole row: clone what is kept.
func (t *Table) Text(column string) string {
	i, ok := t.columns[column]
	if !ok || i >= len(t.record) {
		return ""
	}
	return strings.TrimSpace(t.record[i])
}

// Fault records a fault of a cell of the current row.
func (t *Table) Fault(column, code, message, why, fix string) {
	t.fault(&Error{Code: code, Message: message, Line: t.line, Column: column, Value: clean(t.Text(column)),
		Row: t.row(), Why: why, Fix: fix})
}

func (t *Table) fault(e *Error) {
	e.File = t.file
	if len(t.errs) < maxErrors {
		t.errs = append(t.errs, e)
	}
}

// refuse files an error of the splitter: a *Error is a fault of the text, anything else of the reader below.
func (t *Table) refuse(err error) {
	var e *Error
	if errors.As(err, &e) {
		t.fault(e)
		return
	}
	t.failure = fmt.Errorf("read %s after line %d: %w", t.file, t.line, err)
}

func (t *Table) row() string { return clean(strings.Join(t.record, t.rows.comma())) }

// maxQuote is how much of a row or a cell an error quotes.
const maxQuote = 120

// clean is a text fit to be shown: cut to maxQuote bytes, in UTF-8, and without control characters, which could
// otherwise steer a terminal.
func clean(s string) string {
	tail := ""
	if len(s) > maxQuote {
		s, tail = s[:maxQuote], "~"
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Clone(s) + tail
}
