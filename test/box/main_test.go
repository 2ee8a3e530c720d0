// Package box tests weft up whole: the real daemon with its shepherds, real programs of real users, on emulated GPUs that are
// processes of their own. What one box promises is asserted here; docs/box.md has the figures.
package box

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"weft.dev/weft/test/suite"
)

var built suite.Built

func TestMain(m *testing.M) {
	if ran, code := asHelper(); ran {
		os.Exit(code)
	}
	os.Exit(suite.Main(m, &built))
}

// needs skips a test where a program is missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: there is no %s", p)
		}
	}
}

// rooted skips a test that only root can run.
func rooted(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can")
	}
}

// busy says that others use this machine, which makes times longer; "" where they do not.
func busy() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil || load < 3 {
		return ""
	}
	return fmt.Sprintf("; others use this machine, load %.1f", load)
}
