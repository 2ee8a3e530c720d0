package progress

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a clock that a test moves.
type fake struct {
	mu  sync.Mutex
	now time.Time
}

func (f *fake) read() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fake) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func started() *fake { return &fake{now: time.Unix(0, 0)} }

func TestTerminalLine(t *testing.T) {
	var b bytes.Buffer
	c := started()
	l := New(&b, true, c.read, false)
	expect := func(want string) {
		t.Helper()
		if got := b.String(); got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
		b.Reset()
	}
	l.Report("plan: greedy", 0, 5000, "workers")
	c.pass(499 * time.Millisecond)
	l.Report("plan: greedy", 1, 5000, "workers")
	expect("") // not before half a second
	c.pass(4461 * time.Millisecond)
	l.Report("plan: greedy", 3100, 5000, "workers")
	expect("\rplan: greedy 3,100/5,000 workers, 3 s left")
	c.pass(99 * time.Millisecond)
	l.Report("plan: greedy", 3200, 5000, "workers")
	expect("") // ten times a second
	c.pass(time.Millisecond)
	l.Report("plan: lp", 1, 9, "types")
	expect("\rplan: lp 1/9 types" + strings.Repeat(" ", len("plan: greedy 3,100/5,000 workers, 3 s left")-len("plan: lp 1/9 types")))
	c.pass(time.Second)
	l.ReportLeft("plan: lp", 2, 9, "types", 42*time.Second)
	expect("\rplan: lp 2/9 types, 42 s left")
	c.pass(time.Second)
	l.ReportLeft("plan: lp", 1, 9, "types", 0)
	expect("\rplan: lp 1/9 types" + strings.Repeat(" ", len(", 42 s left")))
	l.Done()
	expect("\r" + strings.Repeat(" ", len("plan: lp 1/9 types")) + "\r")
	l.Done()
	expect("")
	c.pass(time.Second)
	l.Report("sim", 1200000, 0, "events")
	expect("\rsim 1,200,000 events, 8s")
}

func TestTimeLeftIsOfTheStage(t *testing.T) {
	for _, c := range []struct {
		passed      time.Duration
		done, total int
		want        string
	}{
		{time.Minute, 50, 100, "s 50/100 jobs, 1m00s left\n"},
		{4 * time.Hour, 1, 1000, "s 1/1,000 jobs, 166d12h left\n"},
		{time.Minute, 0, 100, "s 0/100 jobs\n"},
		{time.Minute, 120, 100, "s 120/100 jobs, 0 s left\n"},
	} {
		var b bytes.Buffer
		clock := started()
		l := New(&b, false, clock.read, false)
		clock.pass(time.Hour) // another stage took that long
		l.Report("before", 7, 7, "jobs")
		b.Reset()
		l.Report("s", 0, c.total, "jobs")
		clock.pass(c.passed)
		l.Report("s", c.done, c.total, "jobs")
		if b.String() != c.want {
			t.Errorf("wrote %q, want %q", b.String(), c.want)
		}
	}
}

func TestLogLines(t *testing.T) {
	var b bytes.Buffer
	c := started()
	l := New(&b, false, c.read, false)
	for i := range 350 {
		l.Report("sim", i, 350, "jobs")
		c.pass(100 * time.Millisecond)
	}
	l.Done()
	if got := strings.Count(b.String(), "\n"); got != 3 || strings.Contains(b.String(), "\r") {
		t.Errorf("35 s off a terminal wrote %q", b.String())
	}
}

func TestQuiet(t *testing.T) {
	var b bytes.Buffer
	c := started()
	l := New(&b, true, c.read, true)
	c.pass(time.Hour)
	l.Report("sim", 1, 2, "jobs")
	l.Done()
	if b.Len() > 0 {
		t.Errorf("quiet wrote %q", b.String())
	}
}

func TestLineNeverWrapsNorCarriesControl(t *testing.T) {
	var b bytes.Buffer
	c := started()
	l := New(&b, true, c.read, false)
	c.pass(time.Second)
	l.Report("a\x1b[2J\n"+strings.Repeat("模", 90), 1, 2, "jobs")
	if got := b.String(); strings.ContainsAny(got, "\x1b\n") || len([]rune(got)) > 79 {
		t.Errorf("wrote %q", got)
	}
}

func TestManyGoroutines(t *testing.T) {
	var b bytes.Buffer
	c := started()
	l := New(&b, true, c.read, false)
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 200 {
				c.pass(10 * time.Millisecond)
				l.Report(fmt.Sprintf("stage %d", g), i, 200, "jobs")
			}
			l.Done()
		})
	}
	wait.Wait()
	l.Done()
	for _, line := range strings.Split(b.String(), "\r") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "stage ") {
			t.Errorf("torn line %q", line)
		}
	}
}
