// Package demo holds `weft demo` to what it is to show, as a user runs it: the built program, its processes, its files.
package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// built is where TestMain put the binaries.
var built struct{ weft, programs string }

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "weft-demo-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built.weft, built.programs = filepath.Join(dir, "weft"), filepath.Join(dir, "lib")
	for _, command := range [][]string{
		{"go", "build", "-buildvcs=false", "-o", built.weft, "../../cmd/weft"},
		{"make", "-s", "-j2", "-C", "../../shim", "OUT=" + built.programs, "all"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return 1, fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	return m.Run(), nil
}
