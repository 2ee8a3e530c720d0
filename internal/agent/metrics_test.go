package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMetricsText holds the text, which internal/web reads too: its tests scrape this file.
func TestMetricsText(t *testing.T) {
	stats := &Stats{Handover: .02, MessagesIn: 10, MessagesOut: 12, GPUs: []GPUState{
		{GPU: 0, Usable: 16 << 30, Reserved: 10 << 30, Pool: 6 << 30, PoolFree: 2 << 30, Residents: []uint64{1, 2}, Held: 12.5},
		{GPU: 1, Usable: 16 << 30, Pool: 16 << 30, PoolFree: 16 << 30, Foreign: []Escaped{{PID: 7}}},
	}, Jobs: []Job{
		{ID: 1, Name: "bert-ft", Class: 0, Held: 3, Used: 2.5, Launches: 100, Iterations: 5},
		{ID: 2, Name: "tab\t \"quoted\" \\ two\nlines \xff é", Class: 2, Lost: .5, Overruns: 1, Refused: 2, Escaped: []Escaped{{PID: 9}}},
	}}
	c := &counts{}
	for _, d := range []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute} {
		c.wait[0].add(d)
		c.drain[2].add(d)
	}
	c.on(1).overruns[2] = 3
	c.on(0).stall = 1500 * time.Millisecond
	c.on(0).refused = 2
	got := metrics(stats, c)
	const golden = "testdata/metrics.txt"
	if os.Getenv("WEFT_UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
