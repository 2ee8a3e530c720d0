// Package agent tests the data path whole: real programs, with libweft.so before an emulated driver, under a real agent.
// What needs a GPU is test/gpu/run.sh.
package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
)

// built is where TestMain put the binaries.
var built struct {
	dir      string // temporary
	weft     string // with the race detector where the tests have it
	programs string // libweft.so, weft-probe, emu/libcuda.so.1
}

func TestMain(m *testing.M) {
	if socket := os.Getenv(hostileSocket); socket != "" {
		beHostile(socket) // a process that the tests start
		return
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "weft-agent-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built.dir, built.weft, built.programs = dir, filepath.Join(dir, "weft"), filepath.Join(dir, "lib")
	arguments := []string{"build", "-buildvcs=false", "-o", built.weft}
	if raced {
		arguments = append(arguments, "-race")
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // a second for each question to the agent
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

// variant is a folder of programs and libraries built with a sanitizer.
func variant(t *testing.T, sanitizer string) string {
	t.Helper()
	dir := filepath.Join(built.dir, sanitizer)
	if err := build("make", "-s", "-j2", "-C", "../../shim", "OUT="+dir, "SAN="+sanitizer, "shim", "programs"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// bed is an agent with emulated GPUs, ended with the test. What agent and programs said is shown if the test fails.
func bed(t *testing.T, gpus int, flags ...string) *bench.Bed {
	t.Helper()
	return bedOf(t, bench.Options{Emulated: gpus, Agent: flags})
}

func bedOf(t *testing.T, o bench.Options) *bench.Bed {
	t.Helper()
	o.Weft = built.weft
	if o.Programs == "" {
		o.Programs = built.programs
	}
	said := &log{}
	o.Log = said
	t.Setenv("WEFT_LIB", o.Programs)
	b, err := bench.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return b
}

// soon is a context that ends before the test's own time does.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// timed skips a test that asserts times where the race detector makes everything slower, and in short runs.
func timed(t *testing.T) {
	t.Helper()
	if raced || testing.Short() {
		t.Skip("asserts times; skipped with -short and -race")
	}
}

// long skips a test of many seconds in short runs, which are to take less than two minutes together.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; skipped with -short")
	}
}
