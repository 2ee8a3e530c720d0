package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// TestEscapesAreNoticed has jobs whose processes the shim cannot enter: they are seen within seconds through the
// driver's list, their bytes are charged to their job, and it is said.
func TestEscapesAreNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the driver's list, looked at once a second")
	}
	b := bed(t, 1)
	train := []string{"--persistent", "512MiB", "--seconds", "20"}
	static := append([]string{linked(t, "static", "-static")}, train...)
	setuid := append([]string{"/usr/bin/setpriv", "--reuid", "65534", "--clear-groups", linked(t, "setuid", "-Wl,-rpath,"+filepath.Join(built.Lib, "emu"))}, train...)
	if err := os.Chmod(setuid[4], 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	scrubbed := append([]string{"/usr/bin/env", "-i", "LD_LIBRARY_PATH=" + filepath.Join(built.Lib, "emu"), "WEFT_EMU_SOCKET=" + b.EmulatedSocket(),
		b.Path("weft-train")}, train...)
	for _, c := range []struct {
		name string
		line []string
	}{{"static", static}, {"setuid", setuid}, {"scrubbed", scrubbed}} {
		t.Run(c.name, func(t *testing.T) {
			p := b.Command(soon(t), &bench.Job{Name: c.name, Reserved: "2GiB"}, c.line[0], c.line[1:]...)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = p.Signal(15) // it may have ended
				if err := p.Wait(); err != nil && t.Failed() {
					t.Log(err)
				}
			}()
			var seen agent.Job
			took := eventually(t, 5*time.Second, "the escaped process is seen", func() bool {
				job, ok := jobOf(t, b, c.name)
				seen = job
				return ok && len(job.Escaped) > 0 && job.Escaped[0].Bytes >= 512<<20 // it may be seen before it allocates
			})
			t.Logf("seen after %v: %+v", took.Round(time.Millisecond), seen.Escaped)
			if e := seen.Escaped[0]; seen.Memory[0].Used < e.Bytes {
				t.Errorf("%d bytes of the escaped process are seen, %d are charged to its job", e.Bytes, seen.Memory[0].Used)
			}
			if !strings.Contains(events(t, b), c.name) {
				t.Error("no event names it")
			}
		})
	}
}

// linked is weft-train in a folder that everybody may enter, linked with further flags.
func linked(t *testing.T, name string, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join("..", "..", "shim", "programs")
	sources, err := filepath.Glob(filepath.Join(programs, "train*.c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, common := range []string{"driver.c", "gpu.c", "options.c", "samples.c"} {
		sources = append(sources, filepath.Join(programs, common))
	}
	out := filepath.Join(dir, "weft-train-"+name)
	arguments := append([]string{"-std=c11", "-O1", "-D_GNU_SOURCE", "-w", "-I", filepath.Join("..", "..", "shim", "include")}, sources...)
	if err := suite.Run("cc", append(append(arguments, flags...), "-lpthread", "-ldl", "-o", out)...); err != nil {
		t.Fatal(err)
	}
	return out
}
