package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
)

// known is what the agent knows now.
func known(t *testing.T, b *bench.Bed) agent.Stats {
	t.Helper()
	var s agent.Stats
	if err := b.Agent(soon(t), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// jobs are the agent's.
func jobs(t *testing.T, b *bench.Bed) []agent.Job {
	t.Helper()
	return known(t, b).Jobs
}

// jobOf is the agent's job of a name.
func jobOf(t *testing.T, b *bench.Bed, name string) (agent.Job, bool) {
	t.Helper()
	for _, j := range jobs(t, b) {
		if j.Name == name {
			return j, true
		}
	}
	return agent.Job{}, false
}

// events is what the agent reports, as text.
func events(t *testing.T, b *bench.Bed) string {
	t.Helper()
	out, err := exec.Command(built.Weft, "agent", "events", "--socket", b.AgentDir()).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// patience is how long a test waits for what takes milliseconds, on a machine that does other things too.
const patience = 20 * time.Second

// eventually asks until it holds, and fails the test if it does not within the time.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !holds() {
		if time.Since(begin) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// attempt makes up to five tries, for what is asserted of times: whatever else the machine does can only make them worse.
// Every failed try is shown.
func attempt(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = try(); err == nil {
			return
		}
		t.Logf("this time: %v", err)
	}
	t.Error(err)
}

// sleep waits unless the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// descriptors is how many files a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// used is the memory in use on all emulated GPUs, bytes.
func used(t *testing.T, b *bench.Bed) int64 {
	t.Helper()
	var s struct {
		GPUs []struct {
			Used int64 `json:"used_bytes"`
		} `json:"gpus"`
	}
	if err := b.Emulated(soon(t), &s); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, g := range s.GPUs {
		sum += g.Used
	}
	return sum
}
