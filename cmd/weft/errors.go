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

// failure is what cannot be done though the command line is right, with an exit code of its own.
type failure struct {
	inputError
	code int
}

// flagError is a fault of one flag's value.
func flagError(flag, value, message, why, fix string) error {
	return trace.Errors{{Code: "bad_flag", Message: message, File: "command line", Column: flag, Value: value, Why: why, Fix: fix}}
}

// finish tells the user what went wrong, in the form asked for, and returns the exit code.
func (s *session) finish(err error) int {
	var input *inputError
	var failed *failure
	var status statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, errPartial), errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(s.stderr, "interrupted: what is shown is partial")
		return exitInterrupted
	case errors.As(err, &failed):
		s.finish(&failed.inputError)
		return failed.code
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

// ended is the exit code of a command once its output is counted in: what was lost is a failure.
func (s *session) ended(code int) int {
	out, ok := s.stdout.(*sink)
	if !ok || out.err == nil || code != exitOK {
		return code
	}
	_, _ = fmt.Fprintln(s.stderr, "error:", out.err)
	return exitFailed
}

// asInput turns faults of an input, and files that cannot be read, into an inputError; other errors stay.
func asInput(err error, asJSON bool) error {
	if faults := faultsIn(err); len(faults) > 0 {
		return &inputError{faults, asJSON}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return &inputError{trace.Errors{unusable(path)}, asJSON}
	}
	return err
}

// faultsIn is every fault of an input that an error wraps or joins.
func faultsIn(err error) trace.Errors {
	var joined interface{ Unwrap() []error }
	var faults trace.Errors
	if !errors.As(err, &joined) {
		errors.As(err, &faults)
		return faults
	}
	for _, part := range joined.Unwrap() {
		faults = append(faults, faultsIn(part)...)
	}
	return faults
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

// writeJSON writes one indented value. A failure to write is kept by the sink.
func (s *session) writeJSON(v any) {
	e := json.NewEncoder(s.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		if out, ok := s.stdout.(*sink); ok && out.err == nil {
			out.err = err
		}
	}
}

// create opens a file for writing.
func create(path string) (*os.File, error) {
	f, err := os.Create(path)
	return f, writing(err)
}

// writing marks the error of opening a file as one of a file to be written.
func writing(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		p.Op = "create"
	}
	return err
}
