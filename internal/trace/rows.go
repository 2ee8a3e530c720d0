package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRow is the longest row in bytes. A longer one is a lost quote or no table at all, and must not fill memory.
const maxRow = 1 << 20

// errLongRow is what a rationed reader gives once a row is longer than maxRow.
var errLongRow = errors.New("row too long")

// rationed passes bytes on until its ration is used up. The splitter above renews the ration for each row.
type rationed struct {
	r    io.Reader
	left int
}

func (l *rationed) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongRow
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// newBuffer is a buffered, rationed reader past the byte order mark.
func newBuffer(r io.Reader) (*bufio.Reader, *rationed) {
	ration := &rationed{r: r, left: maxRow}
	b := bufio.NewReaderSize(ration, 1<<16)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = b.Discard(3) // cannot fail: the three bytes were peeked
	}
	return b, ration
}

// csvRows splits by RFC 4180: cells may be quoted and then hold separators and line ends.
type csvRows struct {
	csv    *csv.Reader
	ration *rationed
	first  byte
}

func newCSVRows(r io.Reader, comma rune) *csvRows {
	b, ration := newBuffer(r)
	c := &csvRows{csv: csv.NewReader(b), ration: ration, first: firstByte(b)}
	c.csv.ReuseRecord = true
	if comma != 0 {
		c.csv.Comma = comma
		c.csv.LazyQuotes = true
	}
	return c
}

func (c *csvRows) comma() string { return string(c.csv.Comma) }

func (c *csvRows) starts() byte { return c.first }

func (c *csvRows) read() ([]string, int, error) {
	c.ration.left = maxRow
	record, err := c.csv.Read()
	if err == nil {
		line, _ := c.csv.FieldPos(0)
		return record, line, nil
	}
	var p *csv.ParseError
	switch {
	case errors.Is(err, errLongRow):
		return nil, 0, longRow(0)
	case !errors.As(err, &p):
		return nil, 0, err
	case errors.Is(p.Err, csv.ErrFieldCount):
		return nil, 0, cellCount(p.StartLine, len(record), c.csv.FieldsPerRecord,
			"quote cells that hold the separator; end every row alike")
	}
	return nil, 0, &Error{Code: "syntax", Line: p.StartLine, Message: p.Err.Error(),
		Fix: "double the quotes inside a quoted cell"}
}

func longRow(line int) *Error {
	return &Error{Code: "long_row", Line: line, Message: fmt.Sprintf("a row is longer than %d KiB", maxRow>>10),
		Fix: "close the quote that was opened, or check that this is a table"}
}

func cellCount(line, found, want int, fix string) *Error {
	return &Error{Code: "cell_count", Line: line, Fix: fix,
		Message: fmt.Sprintf("this row has %d cells, the header %d", found, want)}
}

// plainRows splits each line at every separator: quotes mean nothing. It leaves the number of cells to its user.
type plainRows struct {
	b      *bufio.Reader
	ration *rationed
	sep    string // found in the first line
	line   int
	record []string
	find   func(header string) (sep string, err *Error)
}

func newPlainRows(r io.Reader, find func(header string) (string, *Error)) *plainRows {
	b, ration := newBuffer(r)
	return &plainRows{b: b, ration: ration, find: find}
}

func (p *plainRows) comma() string { return p.sep }

func (p *plainRows) starts() byte { return firstByte(p.b) }

func (p *plainRows) read() ([]string, int, error) {
	for {
		p.ration.left = maxRow
		text, err := p.b.ReadString('\n')
		p.line++
		switch {
		case errors.Is(err, errLongRow):
			return nil, p.line, longRow(p.line)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, p.line, err
		case strings.TrimSpace(text) == "" && err != nil:
			return nil, p.line, io.EOF
		case strings.TrimSpace(text) == "":
			continue
		}
		text = strings.TrimRight(text, "\r\n")
		if p.sep == "" {
			sep, e := p.find(text)
			if e != nil {
				e.Line = p.line
				return nil, p.line, e
			}
			p.sep = sep
		}
		p.split(text)
		return p.record, p.line, nil
	}
}

func (p *plainRows) split(text string) {
	p.record = p.record[:0]
	for {
		cell, rest, more := strings.Cut(text, p.sep)
		p.record = append(p.record, cell)
		if !more {
			return
		}
		text = rest
	}
}
