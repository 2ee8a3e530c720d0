package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/interference/train"
	"weft.dev/weft/internal/shared"
)

// trained is what weft train --json writes.
type trained struct{ Splits []trainedSplit }

type trainedSplit struct {
	Split, Source, Learner string
	GPU                    string `json:"gpu_model"`
	evaluated
	Admitted map[string]int
}

// evaluated is what weft predict --evaluate --json writes.
type evaluated struct {
	N          int
	MAE        float64
	R2         *float64
	Coverage   float64
	FalseAdmit map[string]float64 `json:"false_admit"`
}

// parsed runs the program with --json.
func parsed[T any](t *testing.T, args ...string) T {
	t.Helper()
	code, out, errs := weft(t.Context(), append(args, "--json")...)
	var v T
	if err := json.Unmarshal([]byte(out), &v); code != exitOK || err != nil {
		t.Fatalf("%v: exit %d, %v, %s", args, code, err, errs)
	}
	return v
}

// The figures that docs/predict.md gives, and on every split the promise of the bounds: no more misses and false admits
// than chance allows.
func TestTrainReachesItsFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("fits 250 models of the published pairs: 30 s")
	}
	got := parsed[trained](t, "train", shared.Data(t, "interference/pairs.csv"), "--learner", "gbdt")
	want := map[string]struct{ mae, r2 float64 }{
		train.RandomPairs: {0.031, 0.95}, train.LeaveModel: {0.080, 0.70}, train.OneProbe: {0.050, 0.86}, train.TwoProbes: {0.046, 0.89},
	}
	met := 0
	for _, s := range got.Splits {
		if limit, ok := want[s.Split]; ok && s.Source == "gavel_oracle" && s.GPU == train.AllGPUs {
			met++
			if s.MAE > limit.mae || *s.R2 < limit.r2 {
				t.Errorf("%s: MAE %.4f, R2 %.3f; want %.3f, %.2f", s.Split, s.MAE, *s.R2, limit.mae, limit.r2)
			}
		}
		misses := s.N - int(s.Coverage*float64(s.N)+0.5)
		if train.Exceeds(misses, s.N, 0.1) {
			t.Errorf("%s %s %s: %.3f of %d covered", s.Split, s.Source, s.GPU, s.Coverage, s.N)
		}
		for floor, n := range s.Admitted {
			if missed := int(s.FalseAdmit[floor]*float64(n) + 0.5); train.Exceeds(missed, n, 0.1) {
				t.Errorf("%s %s %s: %d of %d admitted at %s are below", s.Split, s.Source, s.GPU, missed, n, floor)
			}
		}
	}
	if met != len(want) {
		t.Errorf("%d splits of gavel_oracle, want %d", met, len(want))
	}
	for _, split := range []string{train.LeaveGPU, train.LeaveSource} {
		if !slices.ContainsFunc(got.Splits, func(s trainedSplit) bool {
			return s.Split == split
		}) {
			t.Errorf("no split %s", split)
		}
	}
}

// splitPairs writes the published pairs of gavel_oracle that hold and those that do not.
func splitPairs(t *testing.T, held func(row map[string]string) bool) (rest, out string) {
	t.Helper()
	text, err := os.ReadFile(shared.Data(t, "interference/pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	parts := [2][][]string{{rows[0]}, {rows[0]}}
	for _, cells := range rows[1:] {
		row := map[string]string{}
		for i, name := range rows[0] {
			row[name] = cells[i]
		}
		if row["source"] != "gavel_oracle" {
			continue
		}
		part := 0
		if held(row) {
			part = 1
		}
		parts[part] = append(parts[part], cells)
	}
	var paths [2]string
	for i, rows := range parts {
		var b bytes.Buffer
		if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
			t.Fatal(err)
		}
		paths[i] = filepath.Join(t.TempDir(), "pairs.csv")
		if err := os.WriteFile(paths[i], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths[0], paths[1]
}

// A model that never saw a language model keeps its promise on language models.
func TestTrainedModelKeepsItsPromiseOnWhatItNeverSaw(t *testing.T) {
	if testing.Short() {
		t.Skip("fits 40 models: 5 s")
	}
	rest, held := splitPairs(t, func(row map[string]string) bool { return row["job_a"] == "LM" || row["job_b"] == "LM" })
	file, page := filepath.Join(t.TempDir(), "model.json"), filepath.Join(t.TempDir(), "report.html")
	if code, _, errs := weft(t.Context(), "train", rest, "--learner", "gbdt", "--out", file, "--report", page, "-q"); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	got := parsed[evaluated](t, "predict", "--model", file, "--evaluate", held)
	if got.N != 690 || got.MAE > 0.09 || got.Coverage < 0.9 || got.FalseAdmit["0.8"] > 0.1 || got.FalseAdmit["0.9"] > 0.1 {
		t.Errorf("%+v", got)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Predicted against true", "Held out: random pairs", "<svg", "Bound held"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the report has no %q", part)
		}
	}
}

func TestTrainRefusesWhatItCannotUse(t *testing.T) {
	few := filepath.Join(t.TempDir(), "few.csv")
	if err := os.WriteFile(few, []byte("job_a,job_b,norm_a,norm_b\nm,n,0.5,0.6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	zero := filepath.Join(t.TempDir(), "zero.csv")
	if err := os.WriteFile(zero, []byte("job_a,job_b,norm_a,norm_b\nm,n,0,0.6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"train", few}, "1 pairs are too few"},
		{[]string{"train", few, "--coverage", "1"}, "coverage 1 is outside"},
		{[]string{"train", few, "--coverage", "0.5"}, "coverage 0.5 is outside"},
		{[]string{"train", few, "--learner", "oracle"}, `unknown learner "oracle"`},
		{[]string{"train", few, "--source", "s"}, `holds no pair of source "s"`},
		{[]string{"train", zero}, "norm_a 0: must be positive"},
		{[]string{"train", "absent.csv"}, "cannot read absent.csv"},
	} {
		code, _, errs := weft(t.Context(), x.args...)
		if code != exitBadInput || !strings.Contains(errs, x.want) {
			t.Errorf("%v: exit %d, %s", x.args, code, errs)
		}
	}
}
