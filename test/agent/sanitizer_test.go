package agent

import (
	"os"
	"path/filepath"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// TestSanitized has eight jobs launch from four threads each, with library, programs and emulated driver built with a
// sanitizer, which makes a program exit with an error for a data race, a bad access or a leak.
func TestSanitized(t *testing.T) {
	if suite.Raced || testing.Short() {
		t.Skip("builds the C parts twice; skipped with -short and -race")
	}
	for _, sanitizer := range []string{"thread", "address"} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Setenv("TSAN_OPTIONS", "exitcode=66")
			t.Setenv("ASAN_OPTIONS", "verify_asan_link_order=0") // libweft.so is preloaded, before the sanitizer that it needs
			b := bedOf(t, bench.Options{Emulated: 2, Programs: sanitized(t, sanitizer)})
			ctx := soon(t)
			classes := []string{"guaranteed", "burstable", "besteffort"}
			var runs []bench.Run
			for i := range 8 {
				job := &bench.Job{Name: "sanitized", Class: classes[i%3], Reserved: "512MiB"}
				runs = append(runs, bench.Run{Job: job, Arguments: []string{"launch-cost", "--threads", "4", "--launches", "2000", "--rounds", "3"}})
			}
			samples, err := b.Together(ctx, runs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range samples {
				if s.Managed != 1 {
					t.Error("a program ran without libweft.so")
				}
			}
			e := counters(t, b)
			t.Logf("%d launches", e.Launches)
			if e.Violations > 0 {
				t.Errorf("%d launches outside a token: %v", e.Violations, e.Examples)
			}
		})
	}
}

// sanitized is a variant that an agent can use: the agent itself is not built with the sanitizer, so that it loads the
// plain management library.
func sanitized(t *testing.T, sanitizer string) string {
	t.Helper()
	dir := variant(t, sanitizer)
	const library = "emu/libnvidia-ml.so.1"
	plain, err := os.ReadFile(filepath.Join(built.Lib, library))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, library), plain, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
