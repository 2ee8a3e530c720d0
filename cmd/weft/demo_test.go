package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/demo"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/page"
)

// exampleDemo is a study with the figures of the mock-up.
func exampleDemo() *demoStudy {
	d := &demoStudy{command: &demoCommand{Mix: "typical", Seed: 42}, Modes: []demo.Figures{
		{Mode: demo.Exclusive, Completion: 47.4, Utilisation: 0.58, LowRate: 1, GPUs: 4},
		{Mode: demo.Timeslice, Completion: 44.1, Utilisation: 0.81, HighLoss: 0.38, LowRate: 0.44, Broken: 9, OOM: 12, GPUs: 4},
		{Mode: demo.Weft, Completion: 36.6, Utilisation: 0.84, HighLoss: 0.009, LowRate: 0.27, GPUs: 4},
	}}
	d.setup.GPUs = make([]emugpu.GPU, 4)
	d.setup.Group = []demo.Job{{Name: "01-a", Class: box.Guaranteed, Floor: 0.9, Iterations: 1}, {Name: "02-b", Class: box.BestEffort, Floor: 0.05, Iterations: 1}}
	for i, f := range d.Modes {
		length := time.Duration(i+1) * time.Second
		d.runs = append(d.runs, demo.Run{Mode: f.Mode, Busy: make([]time.Duration, 4), Jobs: []demo.Outcome{
			{Running: length, Stays: []demo.Stay{{GPU: 0, From: 0, To: length}}},
			{Running: length, Stays: []demo.Stay{{GPU: i % 2, From: 0, To: length / 2}, {GPU: 3, From: length / 2, To: length}}},
		}})
	}
	return d
}

func TestDemoTable(t *testing.T) {
	var b strings.Builder
	if err := exampleDemo().table().Write(&b, report.Screen{Width: 80}); err != nil {
		t.Fatal(err)
	}
	const want = `MODE       COMPLETION  CHANGE  UTIL  HIGH LOSS  LOW RATE  BROKEN  OOM  GPUS
exclusive         47s          58 %      0.0 %     100 %       0    0     4
timeslice         44s    -7 %  81 %     38.0 %      44 %       9!  12!    4
weft              37s*  -23 %  84 %*     0.9 %      27 %       0    0     4
`
	if b.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", b.String(), want)
	}
}

func TestDemoVerdict(t *testing.T) {
	d := exampleDemo()
	const want = "Under weft, 2 jobs end 23 % sooner than with a GPU for each, and GPUs compute 84 % of the time instead of 58 %; guaranteed jobs lose 0.9 %, 0 floors broken. " +
		"Time slices take 38.0 % from guaranteed jobs, with 9 floors broken and 12 deaths for want of memory."
	if got := d.verdict(); got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	d.Modes[2].Completion = 50
	if got := d.verdict(); !strings.Contains(got, "5 % later than") {
		t.Errorf("says %q", got)
	}
}

// TestDemoPage has each mode with its rates, floors and stays, the definitions and the command in the report.
func TestDemoPage(t *testing.T) {
	var b bytes.Buffer
	if err := page.HTML(&b, exampleDemo().page(&session{args: []string{"demo", "--dir", "out"}})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"02-b: 50.0 %, floor 5 %", "01-a: 33.3 %, floor 90 %, below it", "gpu3", "Who ran where", "What the columns mean",
		"Times that a job died", "weft demo --dir out", "seed 42", "40 to 80 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not hold %q", want)
		}
	}
}
