package report

import (
	"io"
	"slices"
	"strings"
)

// Mark says what is special about a cell. It is never shown by colour alone.
type Mark uint8

// The marks of a cell.
const (
	Plain   Mark = iota
	Best         // bold and "*": the best of its column
	Bad          // red and "!": below a floor, over a limit
	Waiting      // yellow; the word in the cell says it too
)

func (m Mark) sign() string { return [...]string{"", "*", "!", ""}[m] }

func (m Mark) attribute() string { return [...]string{"", bold, red, yellow}[m] }

// Column describes one column of a Table.
type Column struct {
	Title   string
	Meaning string // one sentence for the HTML report; may be empty
	Number  bool   // aligned right, as numbers are; otherwise left
	Wide    bool   // only shown from WideWidth columns on
	Shrink  bool   // may be shortened to fit the screen: names, never ids, reasons or numbers
	Keep    int    // of Wide ones: the greater, the later it is left out
}

// Cell is one value as text. A value that does not exist is None.
type Cell struct {
	Text string
	Mark Mark
}

// Cells makes a row of unmarked cells.
func Cells(texts ...string) []Cell {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	return row
}

// Table is a table of results: no borders, text left, numbers right, two blanks between columns. A row shorter than
// Columns has empty cells at its end.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Layout of a table.
const (
	gap       = 2 // blanks between columns: a program may split a row at two or more
	leastName = 8 // columns that a shortened column keeps, unless it needs fewer
)

// Write writes the table, its titles first. Below WideWidth the Wide columns are left out. While the rest is wider than
// the screen, Shrink columns are shortened, Wide ones first, then leftmost first; and then Wide columns are left out, those with
// the least Keep first, of equals the rightmost; what is still too wide is written in full.
//
// A sign (*, !) hangs behind its cell, so that digits stay below digits. Where it would come nearer than two blanks to
// the next column, that column moves one to the right. The time is linear in the number of cells.
func (t *Table) Write(w io.Writer, s Screen) error {
	l := t.layout(s)
	var b strings.Builder
	titles := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		titles[i].Text = c.Title
	}
	l.line(&b, titles, s)
	for _, row := range t.Rows {
		l.line(&b, row, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// layout is where the columns of a table stand on a screen.
type layout struct {
	table  *Table
	shown  []int // columns, left to right
	width  []int // of each column of the table
	before []int // blanks before each column of the table
}

func (t *Table) layout(s Screen) *layout {
	l := &layout{table: t, before: make([]int, len(t.Columns))}
	natural := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		if !c.Wide || s.width() >= WideWidth {
			l.shown = append(l.shown, i)
		}
		natural[i] = Columns(c.Title)
		for _, row := range t.Rows {
			natural[i] = max(natural[i], Columns(Clean(at(row, i).Text)))
		}
	}
	for {
		l.width = slices.Clone(natural)
		l.space()
		if l.fit(s.width()) || !l.dropWide() {
			return l
		}
	}
}

func at(row []Cell, i int) Cell {
	if i < len(row) {
		return row[i]
	}
	return Cell{}
}

// space sets the blanks before each shown column.
func (l *layout) space() {
	for n, i := range l.shown {
		l.before[i] = 0
		if n == 0 {
			continue
		}
		l.before[i] = gap
		for _, row := range l.table.Rows {
			l.before[i] = max(l.before[i], gap+l.overhang(row, l.shown[n-1])-l.indent(row, i))
		}
	}
}

// overhang is how far the sign of a cell reaches beyond its column. One that may be shortened counts as full.
func (l *layout) overhang(row []Cell, i int) int {
	c := at(row, i)
	if c.Text == "" {
		return 0
	}
	n := len(c.Mark.sign())
	if column := l.table.Columns[i]; !column.Number && !column.Shrink {
		n -= l.width[i] - Columns(Clean(c.Text))
	}
	return max(n, 0)
}

// indent is how many blanks stand before the text of a cell within its column; none are sure where it may be shortened.
func (l *layout) indent(row []Cell, i int) int {
	if column := l.table.Columns[i]; !column.Number || column.Shrink {
		return 0
	}
	return l.width[i] - Columns(Clean(at(row, i).Text))
}

// fit shortens Shrink columns as far as needed, and says whether the table then fits.
func (l *layout) fit(width int) bool {
	over, tail := -width, 0
	for _, i := range l.shown {
		over += l.before[i] + l.width[i]
		tail = 0
		for _, row := range l.table.Rows {
			tail = max(tail, l.overhang(row, i))
		}
	}
	over += tail // the sign behind the last column
	for _, wide := range []bool{true, false} {
		for _, i := range l.shown {
			if column := l.table.Columns[i]; column.Shrink && column.Wide == wide && over > 0 {
				cut := max(min(over, l.width[i]-leastName), 0)
				l.width[i] -= cut
				over -= cut
			}
		}
	}
	return over <= 0
}

// dropWide leaves one Wide column out, if there is one.
func (l *layout) dropWide() bool {
	drop := -1
	for n, i := range l.shown {
		if c := l.table.Columns[i]; c.Wide && (drop < 0 || c.Keep <= l.table.Columns[l.shown[drop]].Keep) {
			drop = n
		}
	}
	if drop < 0 {
		return false
	}
	l.shown = slices.Delete(l.shown, drop, drop+1)
	return true
}

// line writes one row. Blanks at its end are left out.
func (l *layout) line(b *strings.Builder, row []Cell, s Screen) {
	owed := 0 // blanks not yet written
	hung := 0 // columns the sign before took from the gap
	for _, i := range l.shown {
		c := at(row, i)
		text := Shorten(Clean(c.Text), max(l.width[i], 1))
		free := l.width[i] - Columns(text)
		owed += l.before[i] - hung
		if l.table.Columns[i].Number {
			owed += free
			free = 0
		}
		hung = 0
		if text != "" {
			hung = len(c.Mark.sign())
			b.WriteString(strings.Repeat(" ", owed))
			b.WriteString(s.paint(c.Mark.attribute(), text+c.Mark.sign()))
			owed = 0
		}
		owed += free
	}
	b.WriteByte('\n')
}
