package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// TestMemoryFigures holds figures of the documented table: where memory binds, and where residents do.
func TestMemoryFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out the configuration programs of 240 jobs")
	}
	text, err := os.ReadFile("../../docs/memory.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ gpu, epsilon, row string }{
		{"11GiB", "0.1", "11.0 GiB 240 0.10 117 115 102 101.3 12.8 % memory"},
		{"80GiB", "0.01", "80.0 GiB 264 0.01 66 66 66 66.0 0.0 % residents"},
	} {
		code, out, errs := weft(t.Context(), "-q", "catalogue", "memory", "--gpu-memory", c.gpu, "--epsilon", c.epsilon)
		if code != exitOK || !strings.Contains(squeeze(out), "\n"+c.row+"\n") {
			t.Errorf("exit %d, no row %q in\n%s%s", code, c.row, out, errs)
		}
		if !strings.Contains(squeeze(string(text)), "\n"+c.row+"\n") {
			t.Errorf("docs/memory.md has no row %q", c.row)
		}
	}
}

// squeeze joins blanks.
func squeeze(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

// TestMemoryBounds: more levels and a larger epsilon allow every set that fewer and a smaller one allow, so that no
// bound rises; an answer lies between its bound and one GPU per job.
func TestMemoryBounds(t *testing.T) {
	configs := memoryConfigs()
	if len(configs) != 33 {
		t.Fatalf("%d configurations", len(configs))
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &catalogueMemoryCommand{
			Persistent: rapid.Float64Range(0, 1).Draw(t, "persistent"), MaxResidents: rapid.IntRange(1, 4).Draw(t, "residents"),
			Context: unit.Bytes(rapid.Int64Range(0, int64(unit.GiB)).Draw(t, "context")),
		}
		at := memoryAt{c: c, gpu: unit.Bytes(rapid.Int64Range(int64(4*unit.GiB), int64(24*unit.GiB)).Draw(t, "gpu"))}
		at.configs = rapid.SliceOfNDistinct(rapid.SampledFrom(configs), 1, 4,
			func(e catalogue.Entry) string { return e.Model + ":" + e.Batch }).Draw(t, "configs")
		shape, _ := profile.NamedShape(rapid.SampledFrom(profile.ShapeNames()).Draw(t, "shape"))
		small := rapid.Float64Range(0, .5).Draw(t, "epsilon")
		large := rapid.Float64Range(small, .9).Draw(t, "larger epsilon")
		peak := memoryAnswerOf(t, at, nil, 0)
		two := memoryAnswerOf(t, at, twoLevels(shape), small)
		full := memoryAnswerOf(t, at, shape, small)
		loose := memoryAnswerOf(t, at, shape, large)
		for _, pair := range [][2]memoryAnswer{{peak, two}, {two, full}, {full, loose}} {
			if pair[1].Bound > pair[0].Bound+1e-6 {
				t.Fatalf("bounds rise: peak %v, two %v, full %v, larger epsilon %v", peak.Bound, two.Bound, full.Bound, loose.Bound)
			}
		}
		for _, a := range []memoryAnswer{peak, two, full, loose} {
			if float64(a.GPUs) < a.Bound-1e-6 || a.GPUs > at.fitting() || a.GPUs > a.Heuristic || a.Heuristic > a.Greedy {
				t.Fatalf("%d jobs: %+v", at.fitting(), a)
			}
		}
	})
}

func memoryAnswerOf(t *rapid.T, at memoryAt, shape profile.Shape, epsilon float64) memoryAnswer {
	a, err := at.answer(context.Background(), shape, epsilon)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTwoLevels: the shares of neighbours add up, and flat stays flat.
func TestTwoLevels(t *testing.T) {
	got := twoLevels(profile.Shape{.1, .2, .3, .4})
	if len(got) != 2 || got[0] < .3-1e-12 || got[0] > .3+1e-12 || got[1] < .7-1e-12 || got[1] > .7+1e-12 {
		t.Errorf("two levels are %v", got)
	}
	if twoLevels(nil) != nil {
		t.Error("flat is no longer flat")
	}
}

func TestMemoryRefusesFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--gpu-memory", "0"}, {"--gpu-memory", "lots"}, {"--epsilon", "1"}, {"--epsilon", "-0.1"}, {"--epsilon", "NaN"},
		{"--shape", "square"}, {"--persistent", "1.1"}, {"--persistent", "NaN"}, {"--max-residents", "0"}, {"--max-residents", "9"},
	} {
		code, out, errs := weft(t.Context(), append([]string{"catalogue", "memory"}, args...)...)
		if code != exitBadInput || out != "" || errs == "" {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, errs)
		}
	}
}

func TestMemoryInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, out, _ := weft(ctx, "-q", "catalogue", "memory", "--json")
	var study struct {
		Schema, Configurations int
		Partial                bool
		Rows                   []any
	}
	if err := json.Unmarshal([]byte(out), &study); err != nil || code != exitInterrupted || !study.Partial ||
		study.Schema != 1 || study.Configurations != 33 || study.Rows == nil || len(study.Rows) > 0 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

// TestMemoryHoldsNothing: GPUs too small for any job are no error.
func TestMemoryHoldsNothing(t *testing.T) {
	code, out, errs := weft(t.Context(), "-q", "catalogue", "memory", "--gpu-memory", "1MiB", "--epsilon", "0.1")
	if code != exitOK || !strings.Contains(out, "1 MiB") || errs != "" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
