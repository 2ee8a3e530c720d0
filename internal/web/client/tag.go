package client

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"weft.dev/weft/internal/box"
)

// Tag stands for what a user is told of a job while it waits and runs: state, place, reason, attempt, last operation. Jobs with one
// tag have nothing new to tell.
func Tag(j *box.Job) string {
	h := fnv.New64a()
	reason, operation := "", ""
	if j.Reason != nil {
		reason = j.Reason.Text
	}
	if j.Operation != nil {
		operation = fmt.Sprint(j.Operation.Verb, j.Operation.Time.UnixNano())
	}
	_, _ = fmt.Fprintf(h, "%q %q %v %v %q %d %q", j.State, j.Outcome, j.On, j.Beside, reason, j.Attempt, operation) // a hash takes all
	return strconv.FormatUint(h.Sum64(), 36)
}
