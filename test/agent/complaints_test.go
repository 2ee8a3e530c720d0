package agent

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// complaints are what users of systems that share GPUs report, and the tests of it: functions of this package, or targets of
// shim/Makefile. Those of a cluster's control plane have none here.
var complaints = []struct {
	complaint string
	tests     []string
}{
	{"memory limit bypassed by a new entry point of CUDA", []string{"TestComplaintNewEntryPoint", "TestLimitOnEveryPath"}},
	{"memory limit lost in an SSH session", []string{"TestComplaintSSHSession", "TestEscapesAreNoticed"}},
	{"false out of memory, usage underflow", []string{"TestComplaintFalseOutOfMemory", "TestCases", "make test-memory"}},
	{"wrong error code, NULL crash", []string{"TestComplaintWrongCode", "TestConformance"}},
	{"compute limit ignored", []string{"TestNoLaunchOutsideToken", "TestGatedOnEveryPath", "make test-hooks"}},
	{"compute limit oscillates between 90 % and nothing", []string{"TestComplaintOscillation"}},
	{"compute limit disproportionate: 10:90 gives 1:6", []string{"TestComplaintDisproportion", "TestShares"}},
	{"CUDA graphs bypass the limit, or crash", []string{"TestComplaintGraphs", "TestGatedOnEveryPath"}},
	{"priority not enforced without a core limit", []string{"TestPriority", "TestPreemption"}},
	{"the shim deadlocks", []string{"TestComplaintDeadlock"}},
	{"slow start with hundreds of processes", []string{"TestStorm"}},
	{"jobs on several GPUs hang", []string{"TestGang"}},
	{"the monitor shows more than 100 %", []string{"TestComplaintMonitor"}},
	{"a crash of the daemon kills every client", []string{"TestAgentRestart"}},
	{"an unhealthy GPU never recovers", []string{"TestComplaintUnhealthyGPU"}},
	{"applications die with the daemon", []string{"TestAgentGone"}},

	{"a global node lock is stuck", nil},
	{"UnexpectedAdmissionError after a reboot", nil},
	{"pods broken by a restart of the kubelet", nil},
	{"webhook missed, so the pod gets the whole GPU", nil},
	{"double or stale allocation", nil},
	{"order of allocation differs from that of binding", nil},
	{"a device plugin fights NVIDIA's own", nil},
}

// TestComplaintsHaveTests wants each test that the table names to exist.
func TestComplaintsHaveTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../shim/test/tests.mk")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(makefile)) {
		if name, _, found := strings.Cut(line, ":"); found {
			known["make "+name] = true
		}
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is {
				known[fn.Name.Name] = true
			}
		}
	}
	for _, c := range complaints {
		for _, test := range c.tests {
			if !known[test] {
				t.Errorf("%s: there is no %s", c.complaint, test)
			}
		}
	}
}

// program is a program of testdata, compiled with what the programs of the shim have of the driver, where everybody may run it.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-program-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	programs, out := filepath.Join("..", "..", "shim", "programs"), filepath.Join(dir, name)
	arguments := []string{"-std=c11", "-O1", "-D_GNU_SOURCE", "-I", filepath.Join("..", "..", "shim", "include"), "-I", programs, filepath.Join("testdata", name+".c")}
	for _, common := range []string{"driver.c", "gpu.c", "options.c"} {
		arguments = append(arguments, filepath.Join(programs, common))
	}
	if err := suite.Run("cc", append(arguments, "-lpthread", "-ldl", "-o", out)...); err != nil {
		t.Fatal(err)
	}
	return out
}

// started starts a program that is killed with the test at the latest.
func started(t *testing.T, b *bench.Bed, job *bench.Job, name string, arguments ...string) *bench.Program {
	t.Helper()
	p := b.Command(soon(t), job, name, arguments...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.Ended() {
			_ = p.Signal(9) // it may end meanwhile
		}
		_ = p.Wait() // it may have been waited for
	})
	return p
}

// ends waits for a program's exit code; 128 and more is a signal's.
func ends(t *testing.T, p *bench.Program) int {
	t.Helper()
	err := p.Wait()
	if err == nil {
		return 0
	}
	return exitCode(t, err)
}

// within is text in which a pattern appears so many times, or a failure of the test.
func within(t *testing.T, what string, text *bytes.Buffer, pattern string, times int) {
	t.Helper()
	if n := strings.Count(text.String(), pattern); n != times {
		t.Errorf("%s has %q %d times, not %d:\n%s", what, pattern, n, times, text)
	}
}

// emulate makes a fault of a GPU.
func emulate(t *testing.T, b *bench.Bed, fault ...string) {
	t.Helper()
	if err := suite.Run(built.Weft, append([]string{"emugpu", "fault", "--socket", b.EmulatedSocket()}, fault...)...); err != nil {
		t.Fatal(fmt.Errorf("fault %v: %w", fault, err))
	}
}
