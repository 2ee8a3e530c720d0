package demo

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
)

// pair is a group of a guaranteed and a besteffort job that run on their own, and together with one restart.
func pair() (group []Job, alone, shared Run) {
	group = []Job{{Name: "high", Class: box.Guaranteed, Floor: 0.9}, {Name: "low", Class: box.BestEffort, Floor: 0.5}}
	alone = Run{Mode: Exclusive, Jobs: []Outcome{
		{Running: 10 * time.Second, Stays: []Stay{{0, 0, 11 * time.Second}}},
		{Running: 8 * time.Second, Stays: []Stay{{1, 0, 9 * time.Second}}}},
		Busy: []time.Duration{5 * time.Second, 6 * time.Second, 0, 0}}
	shared = Run{Mode: Timeslice, Jobs: []Outcome{
		{Running: 12500 * time.Millisecond, Stays: []Stay{{0, 0, 13 * time.Second}}},
		{Running: 16 * time.Second, OOM: 1, Stays: []Stay{{0, 0, 4 * time.Second}, {0, 6 * time.Second, 20 * time.Second}}}},
		Busy: []time.Duration{18 * time.Second, 0, 0, 0}}
	return group, alone, shared
}

func TestMeasure(t *testing.T) {
	group, alone, shared := pair()
	for _, c := range []struct {
		run  Run
		want Figures
	}{
		{alone, Figures{Exclusive, 11, 0.5, 0, 1, 0, 0, 2}},
		{shared, Figures{Timeslice, 20, 0.9, 0.2, 0.5, 1, 1, 1}},
	} {
		got := Measure(group, &c.run, &alone)
		if math.Abs(got.HighLoss-c.want.HighLoss) < 1e-9 {
			got.HighLoss = c.want.HighLoss
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.run.Mode, got, c.want)
		}
	}
}

// TestFiguresAsJSON holds the names that programs read.
func TestFiguresAsJSON(t *testing.T) {
	group, alone, shared := pair()
	text, err := json.Marshal(Measure(group, &shared, &alone))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mode", "completion_s", "utilisation", "high_loss", "low_rate", "broken_floors", "oom", "gpus"} {
		if _, ok := keys[name]; !ok {
			t.Errorf("no %q in %s", name, text)
		}
		delete(keys, name)
	}
	if len(keys) > 0 {
		t.Errorf("more keys: %v", keys)
	}
}

func TestUsage(t *testing.T) {
	_, _, shared := pair()
	shared.Jobs[0].Stays = append(shared.Jobs[0].Stays, Stay{3, 13 * time.Second, 14 * time.Second}, Stay{1, 15 * time.Second, 15 * time.Second})
	want := []Step{{0, 1}, {4 * time.Second, 1}, {6 * time.Second, 1}, {13 * time.Second, 2}, {14 * time.Second, 1}, {15 * time.Second, 1}, {20 * time.Second, 0}}
	if got := shared.Usage(); !slices.Equal(got, want) {
		t.Errorf("usage %v, want %v", got, want)
	}
}

func TestBegin(t *testing.T) {
	_, _, shared := pair()
	for _, o := range shared.Jobs {
		for i := range o.Stays {
			o.Stays[i].From += time.Minute
			o.Stays[i].To += time.Minute
		}
	}
	shared.begin()
	if got := shared.Completion(); got != 20*time.Second {
		t.Errorf("completion %v", got)
	}
}

func TestSpell(t *testing.T) {
	var s spell
	for _, line := range []string{`{"type": "start", "resumed": 7}`, "noise", `{"type": "rate", "iterations": 9, "seconds": 1.5}`, `{"type": 3}`, ""} {
		if !s.hear([]byte(line)) {
			t.Fatalf("%q begins another attempt", line)
		}
	}
	if want := (spell{began: true, iterations: 9, running: 1500 * time.Millisecond}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if s.hear([]byte(`{"type": "start", "resumed": 9}`)) {
		t.Error("a second start is of the same attempt")
	}
	s.hear([]byte(`{"type": "final", "iterations": 12, "seconds": 2}`))
	if !s.final || s.running != 2*time.Second {
		t.Errorf("%+v at the end", s)
	}
}
