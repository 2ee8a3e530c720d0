package agent

import (
	"fmt"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// TestAgentRestart kills the agent with SIGKILL under load, several times, and starts it again: no program fails or
// stalls, and no two jobs hold a GPU at once.
func TestAgentRestart(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	ctx := soon(t)
	var programs []*bench.Program
	for _, job := range []bench.Job{
		{Name: "high", Class: "guaranteed"}, {Name: "peer-1", Reserved: "1GiB", Peak: "1GiB", Cooperates: true}, {Name: "peer-2", Reserved: "1GiB", Peak: "1GiB", Cooperates: true},
		{Name: "low", Class: "besteffort", Reserved: "1GiB"},
	} {
		p := b.Command(ctx, &job, "weft-train", "--kernels", "20", "--kernel-us", "200", "--gap-ms", "4", "--ephemeral", "256MiB")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	for range 3 {
		if err := sleep(ctx, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := b.KillAgent(); err != nil {
			t.Fatal(err)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := b.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "all sessions are back", func() bool { return known(t, b).Sessions == len(programs) })
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		got := halted(t, p)
		t.Logf("%d iterations, stalled for %.2f s", got.Iterations, got.Stall)
		if got.Iterations == 0 {
			t.Error("a job made no progress")
		}
	}
	if e := counters(t, b); e.Violations > 0 { // without an agent programs launch as they like, and nobody judges
		t.Errorf("%d launches outside a token: %v", e.Violations, e.Examples)
	}
	eventually(t, patience, "nothing is left", func() bool { return known(t, b).Sessions == 0 && used(t, b) == 0 })
}

// TestAgentGone kills the agent for good: the programs go on.
func TestAgentGone(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	attempt(t, func() error { return withoutAgent(t, b) })
}

// withoutAgent kills the agent, says what was wrong with the programs that went on, and starts another one.
func withoutAgent(t *testing.T, b *bench.Bed) error {
	t.Helper()
	ctx := soon(t)
	var programs []*bench.Program
	var wrong error
	for _, class := range []string{"guaranteed", "burstable", "besteffort"} {
		p := b.Command(ctx, &bench.Job{Name: class, Class: class}, "weft-train", "--kernels", "10", "--kernel-us", "200", "--gap-ms", "4", "--seconds", "5")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := b.KillAgent(); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		got := final(t, p)
		t.Logf("job %d: %d iterations in %.1f s, stalled for %.2f s", i, got.Iterations, got.Seconds, got.Stall)
		if got.Iterations < 50 || i == 0 && got.Stall > 0.5 { // a besteffort job paces itself
			wrong = fmt.Errorf("job %d made %d iterations and stalled for %.2f s", i, got.Iterations, got.Stall)
		}
	}
	if err := b.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	return wrong
}
