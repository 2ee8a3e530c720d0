// Package box tests weft up whole: the real daemon with its shepherds, real programs of real users, on emulated GPUs that are
// processes of their own. What one box promises is asserted here; docs/box.md has the figures.
package box

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// built is where TestMain put the binaries.
var built struct {
	dir      string // temporary, and of all users
	weft     string // with the race detector where the tests have it
	programs string // libweft.so, weft-train, emu/libcuda.so.1
}

func TestMain(m *testing.M) {
	if ran, code := asHelper(); ran {
		os.Exit(code)
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "weft-box-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	built.dir, built.weft, built.programs = dir, filepath.Join(dir, "weft"), filepath.Join(dir, "lib")
	if ready := os.Getenv("WEFT_BOX_BUILT"); ready != "" { // a folder with both, for the edit loop
		built.weft, built.programs = filepath.Join(ready, "weft"), filepath.Join(ready, "lib")
		return m.Run(), nil
	}
	arguments := []string{"build", "-buildvcs=false", "-o", built.weft}
	if raced {
		arguments = append(arguments, "-race")
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // a second for each command
			return 1, err
		}
	}
	if err := build("go", append(arguments, "../../cmd/weft")...); err != nil {
		return 1, err
	}
	if err := build("make", "-s", "-j2", "-C", "../../shim", "OUT="+built.programs, "all"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func build(name string, arguments ...string) error {
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, arguments, err, out)
	}
	return nil
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

// long skips a test of many seconds in short runs, which are to take half a minute together.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; skipped with -short")
	}
}

// timed skips a test that asserts times where the race detector makes everything slower, and in short runs.
func timed(t *testing.T) {
	t.Helper()
	if raced || testing.Short() {
		t.Skip("asserts times; skipped with -short and -race")
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
