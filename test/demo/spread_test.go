package demo

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSpread runs the demo several times and prints what docs/demo.md shows: of each figure the median, least and greatest.
//
//	WEFT_DEMO_REPEAT=5 go test -count=1 -v -timeout 1h -run TestSpread ./test/demo
//
// WEFT_DEMO_FLAGS adds flags, such as --mix light.
func TestSpread(t *testing.T) {
	repeat, err := strconv.Atoi(os.Getenv("WEFT_DEMO_REPEAT"))
	if err != nil {
		t.Skip("SKIPPED without WEFT_DEMO_REPEAT: runs the demo that many times, some two minutes each")
	}
	var runs []map[string]figures
	for range repeat {
		before := load()
		runs = append(runs, run(t, strings.Fields(os.Getenv("WEFT_DEMO_FLAGS"))...))
		t.Logf("load %s before, %s after", before, load())
	}
	var table strings.Builder
	for _, mode := range []string{"exclusive", "timeslice", "weft"} {
		fmt.Fprintf(&table, "| %s |", mode)
		for _, c := range []struct {
			form string
			of   func(f, alone figures) float64
		}{
			{"%.0f s", func(f, _ figures) float64 { return f.Completion }},
			{"%+.0f %%", func(f, alone figures) float64 { return 100 * (f.Completion/alone.Completion - 1) }},
			{"%.0f %%", func(f, _ figures) float64 { return 100 * f.Utilisation }},
			{"%.1f %%", func(f, _ figures) float64 { return 100 * f.HighLoss }},
			{"%.0f %%", func(f, _ figures) float64 { return 100 * f.LowRate }},
			{"%.0f", func(f, _ figures) float64 { return float64(f.Broken) }},
			{"%.0f", func(f, _ figures) float64 { return float64(f.OOM) }},
			{"%.0f", func(f, _ figures) float64 { return float64(f.GPUs) }},
		} {
			var values []float64
			for _, r := range runs {
				values = append(values, c.of(r[mode], r["exclusive"]))
			}
			slices.Sort(values)
			fmt.Fprintf(&table, " "+c.form+" ("+c.form+" to "+c.form+") |", values[len(values)/2], values[0], values[len(values)-1])
		}
		table.WriteString("\n")
	}
	t.Logf("\n%s", table.String())
}

// load is the machine's load average over a minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg") // it is shown, no more
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
