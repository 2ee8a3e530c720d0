package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/trace"
)

func TestError(t *testing.T) {
	for _, c := range []struct {
		name string
		err  trace.Error
		want string
	}{
		{"all parts", trace.Error{File: "jobs.csv", Line: 17, Column: "floor", Row: "bert-large,32,1,1.2,burstable",
			Message: "floor 1.2 is outside (0, 1]", Why: "a floor is a share of standalone speed", Fix: "0.9 for 90 %"}, `
error: floor 1.2 is outside (0, 1]
  --> jobs.csv:17 "floor"   bert-large,32,1,1.2,burstable
  why: a floor is a share of standalone speed   fix: 0.9 for 90 %
`},
		{"of the whole file", trace.Error{File: "jobs.csv", Message: "the file is empty", Fix: "write a header row"}, `
error: the file is empty
  --> jobs.csv
  fix: write a header row
`},
		{"of no file", trace.Error{Message: "no jobs"}, `
error: no jobs
`},
		{"of a column of no file", trace.Error{Message: "bad", Column: "floor"}, `
error: bad
  --> "floor"
`},
		{"a long row is cut, nothing else", trace.Error{File: "j.csv", Line: 2, Message: "bad " + strings.Repeat("x", 90),
			Row: strings.Repeat("0123456789", 12)}, `
error: bad ` + strings.Repeat("x", 90) + `
  --> j.csv:2   012345678901234567890123456789012345678901234567890123456789012~
`},
		{"hostile", trace.Error{File: "a\x1bb.csv", Line: 2, Message: "x\ny", Column: "\u202ec", Row: "\x07", Fix: "\r"}, `
error: x?y
  --> a?b.csv:2 "?c"   ?
  fix: ?
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Error(&b, &c.err, narrow); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want[1:], b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrorsSayHowManyMore(t *testing.T) {
	for _, n := range []int{0, 1, 20, 21, 1300} {
		var errs trace.Errors
		for i := range n {
			errs = append(errs, &trace.Error{File: "jobs.csv", Line: i + 2, Message: fmt.Sprintf("id a%d repeats", i)})
		}
		var b bytes.Buffer
		if err := Errors(&b, errs, Screen{Color: true}); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Count(b.String(), "repeats\n"), min(n, 20); got != want {
			t.Errorf("%d faults: %d written, want %d", n, got, want)
		}
		more := fmt.Sprintf("\x1b[1;31merror:\x1b[0m and %s more\n", Count(n-20))
		if got := strings.HasSuffix(b.String(), more); got != (n > 20) {
			t.Errorf("%d faults end with %q", n, b.String()[max(0, b.Len()-60):])
		}
	}
}
