package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// verdict is a line of TAP.
var verdict = regexp.MustCompile(`(?m)^(not ok|ok) \d+ - (\S+)(.*)$`)

// checked runs the conformance checks and returns what each came to: "ok", "not ok" or "skip".
func checked(t *testing.T, b *bench.Bed, job *bench.Job, arguments ...string) map[string]string {
	t.Helper()
	p := b.Command(soon(t), job, "conformance", arguments...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // the lines say what failed
	results := map[string]string{}
	for _, m := range verdict.FindAllStringSubmatch(p.Out.String(), -1) {
		results[m[2]] = m[1]
		if strings.Contains(m[3], "# skip") || strings.Contains(m[3], "# SKIP") {
			results[m[2]] = "skip"
		}
	}
	if len(results) == 0 {
		t.Fatalf("conformance printed no check: %s %s", p.Out.String(), p.Errors.String())
	}
	return results
}

// TestConformance makes all checks of the driver under the shim: what it stands before behaves as without it.
func TestConformance(t *testing.T) {
	b := bed(t, 2)
	for _, job := range []*bench.Job{nil, {Name: "conformance", GPUs: "0,1"}} {
		results := checked(t, b, job)
		for name, result := range results {
			if result == "not ok" {
				t.Errorf("%s (job %v)", name, job)
			}
		}
		t.Logf("%d checks, job %v", len(results), job)
	}
}

// TestLimitOnEveryPath has each path of allocation ask for more than the limit: refused under weft, and given without.
func TestLimitOnEveryPath(t *testing.T) {
	b := bed(t, 1)
	under := checked(t, b, &bench.Job{Name: "limited", Reserved: "2GiB"}, "--expect-limit", "2GiB")
	without := checked(t, b, nil, "--expect-limit", "2GiB")
	compare(t, under, without)
}

// TestGatedOnEveryPath has each path of launching try while another job holds the GPU.
func TestGatedOnEveryPath(t *testing.T) {
	b := bed(t, 1)
	ctx := soon(t)
	holder := b.Command(ctx, &bench.Job{Name: "holder", Class: "guaranteed"}, "weft-probe", "stream", "--kernel-us", "500", "--batch", "256", "--seconds", "170")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Signal(9)
		_ = holder.Wait() // killed, as wanted
	}()
	eventually(t, patience, "the holder launches", func() bool { return counters(t, b).Launches > 1000 })
	var under map[string]string
	attempt(t, func() error {
		before := known(t, b).Grants
		under = checked(t, b, &bench.Job{Name: "gated", Class: "besteffort"}, "--expect-gated")
		if n := known(t, b).Grants - before; n > 0 && slices.Contains(slices.Collect(maps.Values(under)), "not ok") {
			return fmt.Errorf("the GPU was granted %d times: the holder had no processor, and so left it", n)
		}
		return nil
	})
	without := checked(t, b, nil, "--expect-gated", "--gated-ms", "10000") // what is not gated ends at once
	compare(t, under, without)
}

// compare wants each check to pass under weft and to fail without it.
func compare(t *testing.T, under, without map[string]string) {
	t.Helper()
	proven := 0
	for name, result := range under {
		path := strings.HasPrefix(name, "limit.path.") || strings.HasPrefix(name, "gate.path.")
		switch {
		case result == "not ok":
			t.Errorf("%s does not hold under weft", name)
		case !path: // what a driver has to do with and without weft
		case result == "ok" && without[name] == "ok":
			t.Errorf("%s holds without weft too: it proves nothing", name)
		case result == "ok":
			proven++
		}
	}
	t.Logf("%d checks hold under weft and fail without it", proven)
	if proven < 10 {
		t.Errorf("only %d checks were made", proven)
	}
}

// TestCases runs the programs of public reports that lie beside the checkout.
func TestCases(t *testing.T) {
	cases, err := filepath.Abs("../../../shared/cases")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cases); err != nil {
		t.Skipf("SKIPPED: no %s", cases)
	}
	compiled := func(source, name string) string {
		out := filepath.Join(t.TempDir(), name)
		if err := suite.Run("cc", "-O1", filepath.Join(cases, source), "-o", out, "-ldl", "-lpthread"); err != nil {
			t.Fatal(err)
		}
		return out
	}
	mix, lazy := compiled("B02/free_mix.c", "free_mix"), compiled("B04/fork_lazy.c", "fork_lazy")
	b := bed(t, 4)
	run := func(t *testing.T, job *bench.Job, line ...string) string {
		t.Helper()
		p := b.Command(soon(t), job, line[0], line[1:]...)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, p.Out.String())
		}
		return p.Out.String()
	}
	t.Run("B02", func(t *testing.T) {
		iterations := "20000"
		if testing.Short() || suite.Raced {
			iterations = "500"
		}
		ctx := soon(t)
		var four []*bench.Program
		for range 4 {
			p := b.Command(ctx, &bench.Job{Name: "free_mix", Reserved: "1GiB"}, mix, iterations)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			four = append(four, p)
		}
		for _, p := range four {
			if err := p.Wait(); err != nil {
				t.Errorf("%v\n%s", err, p.Out.String())
			}
			if !strings.Contains(p.Out.String(), "drift 0 bytes") {
				t.Errorf("memory drifts: %s", p.Out.String())
			}
		}
	})
	t.Run("B04 lazy", func(t *testing.T) {
		start := func(out string) string { first, _, _ := strings.Cut(out, "\n"); return first }
		without, out := run(t, nil, lazy, "lazy"), run(t, &bench.Job{Name: "lazy"}, lazy, "lazy")
		if start(out) != start(without) || !strings.Contains(start(out), "threads=1 ") || !strings.Contains(out, "children ok; parent gpu()=0") {
			t.Errorf("without weft:\n%s\nunder weft:\n%s", without, out)
		}
	})
	t.Run("B07", func(t *testing.T) {
		want := uuid(t, b, 2)
		for _, how := range []string{"nothing", "zero", "three", "all", "order", "empty", "nvall"} {
			out := run(t, &bench.Job{Name: "which", GPUs: "2"}, "/usr/bin/env", "python3", filepath.Join(cases, "B07", "which_gpu.py"), how)
			if strings.Count(out, "uuid ") > 1 || strings.Contains(out, "uuid ") && !strings.Contains(out, want) {
				t.Errorf("placed on %s: %s", want, out)
			}
		}
	})
	t.Run("B08", func(t *testing.T) {
		ctx := soon(t)
		neighbour := b.Command(ctx, &bench.Job{Name: "neighbour", GPUs: "3", Reserved: "4GiB"}, "weft-train", "--persistent", "1GiB", "--seconds", "60")
		if err := neighbour.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = neighbour.Signal(15); _ = neighbour.Wait() }() // ended, as wanted
		eventually(t, patience, "the neighbour holds memory", func() bool { return used(t, b) > 1<<30 })
		out := run(t, &bench.Job{Name: "view", GPUs: "3", Reserved: "3GiB"}, "/usr/bin/env", "python3", filepath.Join(cases, "B08", "nvml_view.py"))
		for _, want := range []string{"devices 1\n", "v1 total=3072 ", "| v2 rc=0 total=3072 ", " total=3072 MiB"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in:\n%s", want, out)
			}
		}
		for _, pids := range regexp.MustCompile(`pids \[(.*?)\] known here \[(.*?)\]`).FindAllStringSubmatch(out, -1) {
			if pids[1] != pids[2] || strings.Contains(pids[1], ",") {
				t.Errorf("processes of others are shown: %v", pids)
			}
		}
	})
	t.Run("B12", func(t *testing.T) {
		library := filepath.Join(t.TempDir(), "libneighbour.so")
		if err := suite.Run("cc", "-shared", "-fPIC", filepath.Join(cases, "B12", "neighbour.c"), "-o", library, "-ldl"); err != nil {
			t.Fatal(err)
		}
		for _, line := range [][]string{
			{"/usr/bin/env", "LD_PRELOAD=" + library, b.Path("weft-probe"), "memory"}, // replaces ours: noticed by the driver's list, not held
			{b.Path("weft-probe"), "memory"},
		} {
			p := b.Command(soon(t), &bench.Job{Name: "neighbour", Reserved: "1GiB"}, line[0], line[1:]...)
			p.Setenv("LD_PRELOAD=" + library)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if err := p.Wait(); err != nil {
				t.Errorf("%v: %v", line, err)
			}
			if !strings.Contains(p.Errors.String(), "neighbour loaded") {
				t.Errorf("%v: the other preloaded library is lost: %s", line, p.Errors.String())
			}
		}
	})
}

// uuid is a GPU's in hexadecimal without dashes.
func uuid(t *testing.T, b *bench.Bed, gpu int) string {
	t.Helper()
	return strings.ReplaceAll(strings.TrimPrefix(known(t, b).GPUs[gpu].UUID, "GPU-"), "-", "")
}
