package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// TestComplaintDeadlock has processes whose threads wait at a closed gate: they exit, fork, get signals, are cancelled, and end
// at SIGTERM, at once, and leave nothing behind that holds up others.
func TestComplaintDeadlock(t *testing.T) {
	suite.Long(t)
	b := bed(t, 1)
	closed := program(t, "closed")
	const foreseen = 7
	for _, c := range []struct {
		how    string
		signal bool // SIGTERM ends it
		opens  bool // it goes on when the gate opens
	}{{how: "pause", signal: true}, {how: "exit"}, {how: "exit of a thread"}, {how: "fork"}, {how: "signals", opens: true}, {how: "cancel", opens: true}, {how: "unload", opens: true}} {
		t.Run(c.how, func(t *testing.T) {
			waiting := filepath.Join(t.TempDir(), "waiting")
			holder := started(t, b, &bench.Job{Name: "holder", Class: "guaranteed", Reserved: "1GiB"}, "weft-probe", saturated...)
			eventually(t, patience, "the holder launches", func() bool { j, ok := jobOf(t, b, "holder"); return ok && j.Held > 0.1 })
			p := started(t, b, &bench.Job{Name: "closed", Class: "besteffort", Reserved: "1GiB"}, closed, c.how, waiting)
			eventually(t, patience, "its threads wait", func() bool { _, err := os.Stat(waiting); return err == nil || p.Ended() })
			want := foreseen
			if c.signal {
				want = 128 + 15
				_ = p.Signal(15) // its exit code tells
			}
			if c.opens {
				time.Sleep(100 * time.Millisecond) // a while of signals, or of being cancelled
				_ = holder.Signal(15)              // it runs on otherwise
			}
			took := eventually(t, patience, "it ends", p.Ended)
			if code := ends(t, p); code != want {
				t.Errorf("it ended with %d, not %d: %s", code, want, p.Errors.String())
			}
			_ = holder.Signal(15) // it may have ended
			eventually(t, patience, "no session is left", func() bool { return known(t, b).Sessions == 0 })
			for _, e := range asked(t, b, agent.Request{Op: agent.OpEvents}).Events {
				if e.Type == agent.EventOverrun && e.Job == "closed" { // the holder has one where it had no processor
					t.Errorf("overrun: %+v", e)
				}
			}
			t.Logf("ended within %v", took.Round(time.Millisecond))
		})
	}
	held(t, b)
}

// TestComplaintMonitor looks at what is shown while jobs come, go and are killed: no share above 100 %, no memory above what
// there is.
func TestComplaintMonitor(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds")
	}
	b := bed(t, 1)
	look := func() {
		before := time.Now()
		s := known(t, b)
		slack := time.Since(before).Seconds()
		for _, g := range s.GPUs {
			if g.Utilisation < 0 || g.Utilisation > 1 || g.Held > s.Uptime+slack || g.Reserved < 0 || g.Reserved > g.Usable || g.PoolFree < 0 || g.PoolFree > g.Pool {
				t.Fatalf("%+v after %.2f s", g, s.Uptime)
			}
		}
		sum := 0.0
		for _, j := range s.Jobs {
			sum += j.Held
			if j.Held < 0 || j.Held > j.Age+slack || j.Used < 0 || j.Rate < 0 || j.Stall < 0 {
				t.Fatalf("%+v", j)
			}
			for _, m := range j.Memory {
				if m.Used < 0 || m.Used > m.Limit || m.Limit > s.GPUs[0].Usable || m.Held < 0 {
					t.Fatalf("%s: %+v", j.Name, m)
				}
			}
		}
		if sum > s.Uptime+slack {
			t.Fatalf("jobs held the GPU for %.2f s of %.2f", sum, s.Uptime)
		}
	}
	busiest, share := 0.0, 0.0
	for i := range 8 {
		name := "short"
		if i == 0 {
			name = "alone"
		}
		p := started(t, b, &bench.Job{Name: name, Reserved: "1GiB", Peak: "1GiB", Cooperates: i%2 == 0}, "weft-train", "--kernels", "40", "--kernel-us", "200", "--gap-ms", "0", "--persistent", "256MiB", "--ephemeral", "256MiB")
		for range 10 {
			time.Sleep(40 * time.Millisecond)
			look()
			busiest = max(busiest, known(t, b).GPUs[0].Utilisation)
			if j, ok := jobOf(t, b, "alone"); ok {
				share = max(share, j.Held/j.Age)
			}
		}
		if i%3 > 0 {
			_ = p.Signal(9) // it runs for ever
			look()
		}
	}
	if busiest < 0.2 || share < 0.2 {
		t.Errorf("at most %.0f %% were shown of the GPU, and %.0f %% of a job alone", 100*busiest, 100*share)
	}
	t.Logf("at most %.1f %% were shown of the GPU, and %.1f %% of a job alone", 100*busiest, 100*share)
}

// TestComplaintUnhealthyGPU breaks a GPU and mends it: it is said, its job fails by the driver's own error, jobs on others go on,
// and afterwards it is shown as well and runs new jobs.
func TestComplaintUnhealthyGPU(t *testing.T) {
	suite.Long(t)
	b := bed(t, 2)
	other := started(t, b, &bench.Job{Name: "other", GPUs: "1"}, "weft-train", "--seconds", "120")
	for _, c := range []struct {
		fault []string
		says  string
		stays bool // it counts as unhealthy until it is mended
	}{
		{[]string{"xid", "31"}, "XID 31", false}, // which programs cause
		{[]string{"xid", "48"}, "XID 48", true},
		{[]string{"lost"}, "XID 79", true},
	} {
		t.Run(c.says, func(t *testing.T) {
			p := started(t, b, &bench.Job{Name: "victim"}, "weft-train", "--seconds", "120")
			eventually(t, patience, "it computes", func() bool { j, ok := jobOf(t, b, "victim"); return ok && j.Held > 0 })
			emulate(t, b, c.fault...)
			eventually(t, patience, "it is said", func() bool { return strings.Contains(events(t, b), c.says) })
			eventually(t, patience, "its job fails", p.Ended)
			if code := ends(t, p); code != 1 {
				t.Errorf("its job ended with %d: %s", code, p.Errors.String())
			}
			if g := known(t, b).GPUs[0]; (g.XID != nil) != c.stays {
				t.Errorf("shown is %v", g.XID)
			}
			time.Sleep(1500 * time.Millisecond) // the driver's lists are looked at once a second
			emulate(t, b, "reset")
			if got := final(t, started(t, b, &bench.Job{Name: "next"}, "weft-train", "--kernels", "20", "--seconds", "1")); got.Iterations == 0 {
				t.Error("a new job makes no iteration")
			}
			eventually(t, patience, "it is shown as well", func() bool { return known(t, b).GPUs[0].XID == nil })
			if c.stays && !strings.Contains(events(t, b), "recovered") {
				t.Errorf("its recovery is not said: %s", events(t, b))
			}
			if other.Ended() {
				t.Errorf("the job on the other GPU ended: %s", other.Errors.String())
			}
		})
	}
	held(t, b)
}
