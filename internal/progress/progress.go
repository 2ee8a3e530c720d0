// Package progress tells a waiting person how far a long computation is, in one line. It starts no goroutine: the
// computation drives it by reporting, and the clock is an input.
package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weft.dev/weft/internal/report"
)

const (
	patience    = 500 * time.Millisecond // what ends sooner needs no line
	refresh     = 100 * time.Millisecond // a terminal line changes ten times a second: it looks alive, costs nothing
	logInterval = 10 * time.Second       // away from a terminal every line stays, so there are few
	maxLine     = 79                     // a line that fills an 80-column terminal would wrap and could not be rewritten
)

// Line reports progress on one line that a terminal rewrites, or every 10 s on a line of its own elsewhere. It may be
// used by several goroutines at once. A nil *Line reports nothing.
type Line struct {
	mu      sync.Mutex
	w       io.Writer
	tty     bool
	clock   func() time.Time
	started time.Time
	next    time.Time // no line before then
	stage   string
	since   time.Time // when the stage began
	begun   int       // what was done when it began
	last    int       // what was done at the last report; less is a new pass of the stage
	shown   int       // columns the terminal line takes
}

// New makes a Line on w, which should be the standard error. tty says that w is a terminal whose line can be rewritten.
// It returns nil when quiet. Failures to write are ignored: progress must not stop the work.
func New(w io.Writer, tty bool, clock func() time.Time, quiet bool) *Line {
	if quiet {
		return nil
	}
	now := clock()
	l := &Line{w: w, tty: tty, clock: clock, started: now, next: now.Add(logInterval)}
	if tty {
		l.next = now.Add(patience)
	}
	return l
}

// Report says that done of total things are done in a stage such as "plan: greedy"; what names the things: "workers". A
// stage without countable things has neither. A total of 0 means that it is not known. The time left is what the rest
// takes at the mean speed of the stage so far.
//
// It reads the clock, and seldom more; a loop of very short steps should still call it every thousand steps or so.
func (l *Line) Report(stage string, done, total int, what string) {
	l.report(stage, done, total, what, "")
}

// ReportLeft is Report for who knows better how long the rest takes. At most 0 is not known, and not said.
func (l *Line) ReportLeft(stage string, done, total int, what string, left time.Duration) {
	text := fmt.Sprintf("%s %s/%s %s", stage, report.Count(done), report.Count(total), what)
	if left > 0 {
		text += ", " + remaining(left.Seconds()) + " left"
	}
	l.report(stage, done, total, what, text)
}

// report says text, or what it makes itself of the rest where that is "".
func (l *Line) report(stage string, done, total int, what, text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if stage != l.stage || done < l.last {
		l.stage, l.since, l.begun = stage, now, done
	}
	l.last = done
	if now.Before(l.next) {
		return
	}
	if text == "" {
		text = l.text(now, done, total, what)
	}
	text = report.Shorten(report.Clean(text), maxLine)
	if !l.tty {
		l.next = now.Add(logInterval)
		_, _ = fmt.Fprintln(l.w, text)
		return
	}
	l.next = now.Add(refresh)
	l.rewrite(text)
}

// Done clears the terminal line, so that what is written next starts on a clean one. Reporting may go on afterwards.
func (l *Line) Done() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown > 0 {
		l.rewrite("")
	}
}

// rewrite replaces the terminal line by blanks and returns, not by escape sequences: every terminal knows those.
func (l *Line) rewrite(text string) {
	width := report.Columns(text)
	line := "\r" + text + strings.Repeat(" ", max(l.shown-width, 0))
	if text == "" {
		line += "\r"
	}
	l.shown = width
	_, _ = io.WriteString(l.w, line)
}

func (l *Line) text(now time.Time, done, total int, what string) string {
	if total <= 0 && what == "" {
		return fmt.Sprintf("%s, %s", l.stage, report.Duration(now.Sub(l.started)))
	}
	if total <= 0 {
		return fmt.Sprintf("%s %s %s, %s", l.stage, report.Count(done), what, report.Duration(now.Sub(l.started)))
	}
	text := fmt.Sprintf("%s %s/%s %s", l.stage, report.Count(done), report.Count(total), what)
	if left, ok := l.left(now, done, total); ok {
		text += ", " + left + " left"
	}
	return text
}

// left is the time that the rest of the stage takes at its mean speed. It is unknown before anything was done.
func (l *Line) left(now time.Time, done, total int) (string, bool) {
	passed := now.Sub(l.since)
	if done <= l.begun || passed <= 0 {
		return "", false
	}
	return remaining(passed.Seconds() * float64(max(total-done, 0)) / float64(done-l.begun)), true
}

// remaining writes how many seconds are left.
func remaining(seconds float64) string {
	if seconds < 59.5 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return report.Seconds(seconds)
}
