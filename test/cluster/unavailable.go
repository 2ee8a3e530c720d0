package cluster

import (
	"errors"
	"strings"
	"testing"
)

// Unavailable says why a machine can have no cluster, each reason with its remedy. Tests that want one are then skipped.
type Unavailable struct {
	Reasons []string
}

func (u *Unavailable) Error() string {
	return "no real cluster here: " + strings.Join(u.Reasons, "; ")
}

// SkipOr ends a test that has no cluster: it skips it where the machine can have none, and says why, and fails it for every
// other error. Nil is neither.
func SkipOr(t testing.TB, err error) {
	t.Helper()
	var u *Unavailable
	switch {
	case errors.As(err, &u):
		t.Skipf("SKIPPED, %v", u)
	case err != nil:
		t.Fatal(err)
	}
}
