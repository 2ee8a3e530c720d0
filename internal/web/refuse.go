package web

import (
	"encoding/json"
	"errors"
	"net/http"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// statusError is a refusal with a status of its own.
type statusError struct {
	status int
	told   box.Error
}

func (e *statusError) Error() string { return e.told.Message }

// errStopping is told to those who wait while the server ends.
var errStopping = &statusError{http.StatusServiceUnavailable, box.Error{Kind: box.Trouble, Code: client.CodeStopping,
	Message: "the daemon stops", Why: "running jobs go on", Fix: "ask again once it is up"}}

// errBusy is told when there are as many streams as there may be.
var errBusy = &statusError{http.StatusServiceUnavailable, box.Error{Kind: box.Trouble, Code: "busy",
	Message: "too many streams are open", Fix: "close some of them, or ask again later"}}

// bad is a refusal of what was given.
func bad(field, value, message, fix string) error {
	return &box.Error{Kind: box.BadInput, Code: "bad_request", Message: message, Field: field, Value: value, Fix: fix}
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	status, told := http.StatusInternalServerError, &box.Error{Kind: box.Trouble, Code: "trouble", Message: err.Error()}
	var own *statusError
	var refusal *box.Error
	switch {
	case errors.As(err, &own):
		status, told = own.status, &own.told
	case errors.As(err, &refusal):
		status, told = statusOf(refusal.Kind), refusal
	}
	if status == http.StatusInternalServerError {
		s.o.Log.Error("web", "code", told.Code, "error", told.Message)
	}
	w.Header().Set("Cache-Control", "no-store")
	s.write(w, status, client.Refusal{Error: told})
}

func statusOf(k box.Kind) int {
	switch k {
	case box.BadInput:
		return http.StatusBadRequest
	case box.Forbidden:
		return http.StatusForbidden
	case box.NotFound:
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// write answers with a value.
func (s *Server) write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.o.Log.Error("web", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // who does not read is gone
}

// answer answers a question with a value that must not be kept.
func (s *Server) answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Cache-Control", "no-store")
	s.write(w, http.StatusOK, v)
	return nil
}
