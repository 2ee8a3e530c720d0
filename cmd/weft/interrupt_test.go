package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/workload"
)

// cutReader is an input that interrupts the program after so many reads.
type cutReader struct {
	r     io.Reader
	reads int
	cut   context.CancelFunc
}

func (c *cutReader) Read(b []byte) (int, error) {
	if c.reads--; c.reads < 0 {
		c.cut()
	}
	return c.r.Read(b)
}

func generated(t *testing.T, jobs int) string {
	t.Helper()
	var b strings.Builder
	o := workload.Options{Jobs: jobs, Span: 24 * time.Hour, Mix: workload.LightMix(), Floor: 0.85, Seed: 1}
	if err := trace.WriteJobs(&b, workload.Generate(o), true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestInterruptedReadingIsPartial(t *testing.T) {
	const jobs = 20_000
	text := generated(t, jobs)
	for _, command := range []string{"plan", "sim"} {
		ctx, cut := context.WithCancel(t.Context())
		var out, errs strings.Builder
		code := run(ctx, []string{command, "-", "--json"}, &cutReader{strings.NewReader(text), 5, cut}, &out, &errs)
		cut()
		var got struct {
			Partial  bool
			Jobs     int
			Methods  []any
			Policies []struct{ Partial bool }
		}
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || code != exitInterrupted || !got.Partial {
			t.Errorf("%s: exit %d, partial %v, %v", command, code, got.Partial, err)
		}
		if command == "plan" && (got.Jobs == 0 || got.Jobs >= jobs || got.Methods == nil) {
			t.Errorf("plan: %d of %d jobs read, methods %v", got.Jobs, jobs, got.Methods)
		}
		if !strings.Contains(errs.String(), "partial") {
			t.Errorf("%s says %q", command, errs.String())
		}
	}
}

func TestAwaitAnswersAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, ok := await(ctx, func() int { <-release; return 1 }); ok {
		t.Error("work that never ends was waited for")
	}
	if _, ok := await(ctx, func() int { t.Error("work began after the interruption"); return 1 }); ok {
		t.Error("an interrupted context gave a result")
	}
	if v, ok := await(context.Background(), func() int { return 7 }); v != 7 || !ok {
		t.Errorf("got %d, %v", v, ok)
	}
}

// Tables of both commands fit a terminal of 80 columns; sentences may wrap.
func TestTablesFitEightyColumns(t *testing.T) {
	narrow := report.Screen{Width: 80}
	study := answer[planStudy](t, "plan", writeFile(t, generated(t, 300)))
	for i := range study.Methods {
		study.Methods[i].label = study.Methods[i].Method + " (2)"
	}
	runs := answer[simStudy](t, "sim", writeFile(t, generated(t, 300)), "--policy", "fifo,tiresias", "--share", "never,floor",
		"--placement", "consolidated,heuristic")
	for _, table := range []*report.Table{study.table(), runs.table()} {
		var b strings.Builder
		if err := table.Write(&b, narrow); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := report.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

func TestWrapOnlyOnTerminals(t *testing.T) {
	s := &session{screen: report.Screen{Width: 10}}
	const text = "note: four words wrap"
	if got := s.wrap(text); got != text {
		t.Errorf("a pipe gets %q", got)
	}
	s.tty = true
	if got := s.wrap(text); got != "note: four\n  words\n  wrap" {
		t.Errorf("a terminal gets %q", got)
	}
}
