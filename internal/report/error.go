package report

import (
	"fmt"
	"io"
	"strings"

	"weft.dev/weft/internal/trace"
)

// maxShown is how many faults Errors writes out; it says how many more there are. It equals what the readers gather,
// so that one run shows a file's faults without filling the terminal's memory.
const maxShown = 20

// Error writes one fault of an input: what is wrong, then where with the row it stands in, then why and how to mend it.
//
//	error: floor 1.2 is outside (0, 1]
//	  --> jobs.csv:17 "floor"   bert-large,32,1,1.2,burstable
//	  why: a floor is a share of standalone speed   fix: 0.9 for 90 %
//
// Parts that a fault does not have are left out. The quoted row is shortened to the screen; nothing else is.
func Error(w io.Writer, e *trace.Error, s Screen) error {
	var b strings.Builder
	writeError(&b, e, s)
	_, err := io.WriteString(w, b.String())
	return err
}

// Errors writes the first 20 faults, each as Error does, and how many more there are.
func Errors(w io.Writer, errs trace.Errors, s Screen) error {
	var b strings.Builder
	for i, e := range errs {
		if i == maxShown {
			fmt.Fprintf(&b, "%s and %s more\n", s.paint(bold+";"+red, "error:"), Count(len(errs)-maxShown))
			break
		}
		writeError(&b, e, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// spacer stands between the parts of one line of a fault.
const spacer = "   "

func writeError(b *strings.Builder, e *trace.Error, s Screen) {
	fmt.Fprintf(b, "%s %s\n", s.paint(bold+";"+red, "error:"), Clean(e.Message))
	if place := placeOf(e); place != "" {
		b.WriteString("  --> " + place)
		if left := s.width() - Columns("  --> "+place+spacer); e.Row != "" && left >= leastName {
			b.WriteString(spacer + Shorten(Clean(e.Row), left))
		}
		b.WriteByte('\n')
	}
	var advice []string
	if e.Why != "" {
		advice = append(advice, "why: "+Clean(e.Why))
	}
	if e.Fix != "" {
		advice = append(advice, "fix: "+Clean(e.Fix))
	}
	if len(advice) > 0 {
		b.WriteString("  " + strings.Join(advice, spacer) + "\n")
	}
}

// placeOf is file:line "column".
func placeOf(e *trace.Error) string {
	place := Clean(e.File)
	if e.Line > 0 {
		place += fmt.Sprintf(":%d", e.Line)
	}
	if e.Column != "" {
		place = strings.TrimPrefix(place+" ", " ") + `"` + Clean(e.Column) + `"`
	}
	return place
}
