package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"weft.dev/weft/internal/report"
)

// sink is the standard output. It keeps the first failure, so that a result that was lost never ends in success, and
// writes nothing more after it.
type sink struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(b)
	if err != nil {
		s.err = fmt.Errorf("write the result: %w", err)
	}
	return n, s.err
}

// target is a file that a command writes beside its result. It is opened before the work starts, so that a path that
// cannot be written costs nothing, and what it held is kept until write: a run that ends early destroys nothing.
type target struct {
	f     *os.File
	fresh bool // there was no such file
}

func openTarget(path string) (*target, error) {
	if path == "-" {
		return nil, flagError("output", path, "- is no file to write to", "", "name a file; /dev/stdout is the standard output")
	}
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, writing(err)
	}
	return &target{f, os.IsNotExist(missing)}, nil
}

// write replaces the file's content and closes it.
func (t *target) write(fill func(io.Writer) error) error {
	defer t.drop()
	if info, err := t.f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := t.f.Truncate(0); err != nil {
			return err
		}
	}
	t.fresh = false
	b := bufio.NewWriter(t.f)
	if err := fill(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	f := t.f
	t.f = nil
	return f.Close()
}

// drop gives the file back; a new one that was not written is removed. It may be called on nil and more than once.
func (t *target) drop() {
	if t == nil || t.f == nil {
		return
	}
	_ = t.f.Close() // nothing was written, or its failure has been reported
	if t.fresh {
		_ = os.Remove(t.f.Name()) // an empty file left behind harms nobody
	}
	t.f = nil
}

// wrap breaks a sentence between words to the width of a terminal. Elsewhere it stays one line, which programs can find.
func (s *session) wrap(text string) string {
	if !s.tty {
		return text
	}
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		switch n := report.Columns(word); {
		case i == 0:
			used = n
		case used+1+n > s.screen.Width:
			b.WriteString("\n  ")
			used = 2 + n
		default:
			b.WriteByte(' ')
			used += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}
