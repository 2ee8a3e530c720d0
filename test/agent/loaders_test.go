package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// TestLoadersOutliveTheirParent has a holder of the token, and of memory that another job waits for, die by abort() while four
// children that it forked live on with all that it had open: token and bytes come back within 100 ms.
func TestLoadersOutliveTheirParent(t *testing.T) {
	suite.Timed(t)
	attempt(t, func() error {
		worst := loadersOutlive(t)
		t.Logf("the waiter had memory and token %.1f ms after the abort, at worst of 3", worst)
		if worst > most {
			return fmt.Errorf("the waiter had memory and token %.1f ms after the abort, above %d", worst, most)
		}
		return nil
	})
}

// loadersOutlive is how long the waiter waits after the abort, in ms: the longest of three tries.
func loadersOutlive(t *testing.T) float64 {
	t.Helper()
	worst := 0.0
	for range 3 {
		b := bedOf(t, bench.Options{Emulated: 1, GPUs: []string{"--memory", "16GiB", "--usable", "12GiB"}})
		ctx := soon(t)
		job := func(name string) *bench.Job {
			return &bench.Job{Name: name, Reserved: "1GiB", Peak: "8GiB", Cooperates: true} // 10 GiB to share: 8 fit once
		}
		parent := b.Command(ctx, job("parent"), "weft-probe", "stream", "--kernel-us", "200", "--batch", "16", "--persistent", "8GiB", "--loaders", "4",
			"--seconds", "60")
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the parent launches", func() bool { return counters(t, b).Launches > 1000 })
		waiter := b.Command(ctx, job("waiter"), "weft-probe", "ping", "--gap-ms", "0", "--kernel-us", "10", "--seconds", "1", "--persistent", "8GiB", "--stamps")
		if err := waiter.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the waiter waits for memory", func() bool { return known(t, b).GPUs[0].Waiting > 0 })
		children := childrenOf(t, parent.PID())
		at := bench.Monotonic()
		if err := parent.Signal(syscall.SIGABRT); err != nil { // what abort() sends
			t.Fatal(err)
		}
		s, err := waiter.Sample()
		if err != nil || len(s.Stamps) == 0 {
			t.Fatalf("the waiter launched %d times: %v", len(s.Stamps), err)
		}
		alive := 0
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil {
				alive++
			}
		}
		if alive != 4 {
			t.Errorf("%d of 4 loaders live on", alive)
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		_ = parent.Wait() // aborted, as wanted
		if s.Stamps[0][0] < at {
			t.Error("the waiter had its memory before the parent died")
		}
		worst = max(worst, float64(s.Stamps[0][1]-at)/1e6)
	}
	return worst
}

// childrenOf are the processes that a process forked.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, child)
	}
	return list
}
