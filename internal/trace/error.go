package trace

import (
	"fmt"
	"strings"
)

// maxErrors is how many faults of one input are listed before reading stops: enough to mend a file in one go, few
// enough to read.
const maxErrors = 20

// Error is one fault of an input: what is wrong, where, why it matters and how to mend it. Line and Column are
// empty where the fault is of the whole file.
type Error struct {
	Code    string `json:"code"` // stable for programs: missing_column, out_of_range, ...
	Message string `json:"message"`
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  string `json:"column,omitempty"`
	Value   string `json:"value,omitempty"`
	Row     string `json:"row,omitempty"`
	Why     string `json:"why,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// Error is the one-line form: file:line "column": message.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, " %q", e.Column)
	}
	b.WriteString(": " + e.Message)
	return b.String()
}

// Errors is every fault found in one input, in file order.
type Errors []*Error

// Error joins the one-line forms.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Exclusion counts rows that are not replayed, and why: nothing is dropped in silence.
type Exclusion struct {
	Reason string `json:"reason"`
	Rows   int    `json:"rows"`
}

// Exclusions counts by reason, in order of first appearance.
type Exclusions []Exclusion

// Count adds n rows to a reason.
func (x *Exclusions) Count(reason string, n int) {
	for i := range *x {
		if (*x)[i].Reason == reason {
			(*x)[i].Rows += n
			return
		}
	}
	*x = append(*x, Exclusion{reason, n})
}
