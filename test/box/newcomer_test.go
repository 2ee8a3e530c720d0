package box

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestNewcomer follows docs/box.md from a fresh machine to the first pair of jobs that share a GPU, as a script.
func TestNewcomer(t *testing.T) {
	b := newBed(t) // which holds that nothing is left
	began := time.Now()
	t.Run("session", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Files: []string{filepath.Join("testdata", "newcomer.txtar")}, WorkdirRoot: b.dir,
			Setup: func(e *testscript.Env) error {
				e.Setenv("PATH", filepath.Dir(built.Weft)+":"+os.Getenv("PATH"))
				for _, name := range []string{"HOME", "WEFT_LIB", "WEFT_RUNTIME_DIR", "WEFT_CONFIG"} {
					e.Setenv(name, b.variable(name))
				}
				e.Setenv("STATE", b.state)
				e.Setenv("TRAIN", program("weft-train"))
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"eventually": eventually},
		})
	})
	if took := time.Since(began); took > 5*time.Minute {
		t.Errorf("the first pair took %v", took)
	} else {
		t.Logf("the first pair took %.1f s%s", took.Seconds(), busy())
	}
}

// eventually runs a command until its output has a text.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND...")
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%v has no %q: %v\n%s%s", args[1:], args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

// variable is one of the environment of a bed.
func (b *bed) variable(name string) string {
	for _, v := range b.env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}
