package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/test/suite"
)

// benchKeys are what others script against.
var benchKeys = []string{
	"launch_overhead_ns", "stream_overhead_fraction", "preemption_p99_ms", "window_ms", "longest_kernel_ms", "share_error_fraction",
	"high_loss_fraction", "low_rate_fraction", "holder_kill_recovery_ms", "socket_messages_per_1000_launches",
}

// TestBench runs the command as an operator does, and holds its figures to what it promises.
func TestBench(t *testing.T) {
	suite.Timed(t)
	attempt(t, func() error { return benched(t) })
}

// benched says which promise the command did not keep.
func benched(t *testing.T) error {
	t.Helper()
	cmd := exec.Command(built.Weft, "bench", "--emulate", "--json", "--duration", "1s")
	cmd.Env = append(cmd.Environ(), "WEFT_LIB="+built.Lib)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, errs.String())
	}
	if !strings.Contains(errs.String(), "bench ") {
		t.Errorf("no progress on stderr: %q", errs.String())
	}
	t.Logf("%s", out)
	var figures map[string]*float64
	if err := json.Unmarshal(out, &figures); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if keys := slices.Sorted(maps.Keys(figures)); !slices.Equal(keys, slices.Sorted(slices.Values(benchKeys))) {
		t.Fatalf("keys %v, want %v", keys, benchKeys)
	}
	for key, value := range figures {
		if value == nil {
			return fmt.Errorf("%s was not measured", key)
		}
	}
	for key, most := range map[string]float64{
		"launch_overhead_ns": 60, "stream_overhead_fraction": 0.01, "share_error_fraction": 0.03, "high_loss_fraction": 0.05,
		"holder_kill_recovery_ms": 100, "socket_messages_per_1000_launches": 1,
		"preemption_p99_ms": *figures["window_ms"] + *figures["longest_kernel_ms"] + 1,
	} {
		if *figures[key] > most {
			return fmt.Errorf("%s is %.4f, above %.4f", key, *figures[key], most)
		}
	}
	return nil
}
