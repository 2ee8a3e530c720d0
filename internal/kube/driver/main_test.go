package driver

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes this program the container runtime, and the driver that is killed, of its own tests.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(sandboxed) != "":
		err = enter(os.Getenv(sandboxed))
	case os.Getenv(crashing) != "":
		err = crash(os.Getenv(crashing))
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
