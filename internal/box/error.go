package box

import "fmt"

// Kind is what sort of refusal an Error is.
type Kind string

// The kinds.
const (
	BadInput  Kind = "bad_input" // nothing was done
	Forbidden Kind = "forbidden"
	NotFound  Kind = "not_found"
	Trouble   Kind = "trouble" // weft's own
)

// Error is why something that was asked for cannot be, with the place and the remedy.
type Error struct {
	Kind    Kind   `json:"kind"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // of a Spec: the flag without its dashes
	Value   string `json:"value,omitempty"`
	Why     string `json:"why,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// NoJob is the error of a job that there is not.
func NoJob(id ID) *Error {
	return &Error{Kind: NotFound, Code: "no_job", Message: fmt.Sprintf("there is no job %d", id), Field: "ID", Value: id.String(), Fix: "weft ps --all lists them"}
}

// Caller is who asks.
type Caller struct {
	UID, GID int
	PID      int
	Admin    bool // may do everything: root, or the user whose daemon it is
}

// May says whether a caller may touch what belongs to a user.
func (c Caller) May(uid int) bool { return c.Admin || c.UID == uid }
