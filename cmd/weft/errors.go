package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
)

// inputError is a fault of what the user gave: a flag or a file. Nothing was done.
type inputError struct {
	faults trace.Errors
	json   bool
}

func (e *inputError) Error() string { return e.faults.Error() }

// flagError is a fault of one flag's value.
func flagError(flag, value, message, why, fix string) error {
	return trace.Errors{{Code: "bad_flag", Message: message, File: "command line", Column: flag, Value: value, Why: why, Fix: fix}}
}

// finish tells the user what went wrong, in the form asked for, and returns the exit code.
func (s *session) finish(err error) int {
	var input *inputError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errPartial), errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(s.stderr, "interrupted: what is shown is partial")
		return exitInterrupted
	case errors.As(err, &input) && input.json:
		s.writeJSON(map[string]any{"error": input.faults[0], "errors": input.faults})
		return exitBadInput
	case errors.As(err, &input):
		_ = report.Errors(s.stderr, input.faults, s.errors)
		return exitBadInput
	}
	_, _ = fmt.Fprintln(s.stderr, "error:", err)
	return exitFailed
}

// asInput turns faults of an input, and files that cannot be read, into an inputError; other errors stay.
func asInput(err error, asJSON bool) error {
	var faults trace.Errors
	if errors.As(err, &faults) {
		return &inputError{faults, asJSON}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return &inputError{trace.Errors{unusable(path)}, asJSON}
	}
	return err
}

// unusable says what is wrong with a file and what to do about it.
func unusable(e *fs.PathError) *trace.Error {
	what, code, fix := "read", "unreadable", "check the path"
	if e.Op != "open" && e.Op != "read" {
		what, code, fix = "write", "unwritable", "name a file in a folder that you may write to"
	}
	if errors.Is(e.Err, fs.ErrPermission) {
		fix = "check the file's permissions"
	}
	return &trace.Error{Code: code, File: e.Path, Message: fmt.Sprintf("cannot %s %s: %v", what, e.Path, e.Err), Fix: fix}
}

// writeJSON writes one indented value. What is written to a closed pipe is lost, as for any filter.
func (s *session) writeJSON(v any) {
	e := json.NewEncoder(s.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		_, _ = fmt.Fprintln(s.stderr, "error: write the result:", err)
	}
}

// create opens a file for writing before the work starts, so that a path that cannot be written costs nothing.
func create(path string) (*os.File, error) {
	f, err := os.Create(path)
	var p *fs.PathError
	if errors.As(err, &p) {
		p.Op = "create"
	}
	return f, err
}
