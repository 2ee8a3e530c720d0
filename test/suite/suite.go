// Package suite builds what the tests of the whole run: weft, libweft.so, the emulated driver, the programs on it. It holds
// what those tests share beside that.
package suite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Built is where the programs of a test binary are.
type Built struct {
	Dir  string // temporary, and to be read by all users
	Weft string // with the race detector where the tests have it
	Lib  string // libweft.so, weft-train, weft-probe, emu/libcuda.so.1
}

// ready names a folder with weft and lib, built before, such as bin.
const ready = "WEFT_TEST_PROGRAMS"

// Main builds the programs, runs the tests of m, and returns the code to exit with. What went wrong is told on stderr.
func Main(m *testing.M, b *Built) int {
	code, err := buildAndRun(m, b)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func buildAndRun(m *testing.M, b *Built) (int, error) {
	dir, err := os.MkdirTemp("", "weft-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	*b = Built{Dir: dir, Weft: filepath.Join(dir, "weft"), Lib: filepath.Join(dir, "lib")}
	if folder := os.Getenv(ready); folder != "" && !Raced {
		b.Weft, b.Lib = filepath.Join(folder, "weft"), filepath.Join(folder, "lib")
		return m.Run(), nil
	}
	arguments := []string{"build", "-buildvcs=false", "-o", b.Weft}
	if Raced {
		arguments = append(arguments, "-race")
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // a second for each command
			return 1, err
		}
	}
	if err := Run("go", append(arguments, "../../cmd/weft")...); err != nil {
		return 1, err
	}
	if err := Shim(b.Lib, "all"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// Shim makes targets of the folder shim, with its variables where arguments hold some, into a folder.
func Shim(into string, arguments ...string) error {
	return Run("make", append([]string{"-s", "-j2", "-C", "../../shim", "OUT=" + into}, arguments...)...)
}

// Run runs a program to its end; what it printed is in the error.
func Run(name string, arguments ...string) error {
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, arguments, err, out)
	}
	return nil
}

// Timed skips a test that asserts times where the race detector makes everything slower, and in short runs.
func Timed(t *testing.T) {
	t.Helper()
	if Raced || testing.Short() {
		t.Skip("asserts times; skipped with -short and -race")
	}
}

// Long skips a test of many seconds in short runs.
func Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; skipped with -short")
	}
}

// Slack is how many times a promised time is a failure. Promises are those of a machine that does nothing else, and virtual
// machines, with the same code, were up to ten times slower; a test is to find what became slow. WEFT_STRICT=1 holds the promises.
func Slack() float64 {
	if os.Getenv("WEFT_STRICT") != "" {
		return 1
	}
	return 10
}
