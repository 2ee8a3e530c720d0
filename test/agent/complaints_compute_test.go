package agent

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/test/suite"
)

// saturated are the arguments of a probe that always has work.
var saturated = []string{"stream", "--kernel-us", "200", "--batch", "16", "--seconds", "60"}

// busyBy is the computed time of processes on the first GPU.
func busyBy(t *testing.T, o *emugpu.Observer, list []*bench.Program) []time.Duration {
	t.Helper()
	stats, err := o.Stats()
	if err != nil {
		t.Fatal(err)
	}
	busy := make([]time.Duration, len(list))
	for _, p := range stats.Processes {
		for i, program := range list {
			if int(p.PID) == program.PID() && len(p.GPUs) > 0 {
				busy[i] = p.GPUs[0].Busy
			}
		}
	}
	return busy
}

// observe looks at the emulated GPUs of a bed.
func observe(t *testing.T, b *bench.Bed) *emugpu.Observer {
	t.Helper()
	o, err := emugpu.Dial(b.EmulatedSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// TestComplaintOscillation has two equal jobs that always have work: within tenths of a second both have about half of it, but for
// a few in which the machine did not let one of them run.
func TestComplaintOscillation(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	o := observe(t, b)
	list := []*bench.Program{started(t, b, &bench.Job{Name: "one"}, "weft-probe", saturated...), started(t, b, &bench.Job{Name: "two"}, "weft-probe", saturated...)}
	eventually(t, patience, "both compute", func() bool { busy := busyBy(t, o, list); return busy[0] > 0 && busy[1] > 0 })
	time.Sleep(time.Second)
	attempt(t, func() error { return steady(t, o, list) })
	held(t, b)
}

// steady says what was wrong with the shares of two equal jobs over four seconds.
func steady(t *testing.T, o *emugpu.Observer, list []*bench.Program) error {
	t.Helper()
	const windows = 40
	idle, uneven, sum, squares := 0, 0, 0.0, 0.0
	for range windows {
		before := busyBy(t, o, list)
		time.Sleep(100 * time.Millisecond)
		after := busyBy(t, o, list)
		one, two := (after[0] - before[0]).Seconds(), (after[1] - before[1]).Seconds()
		share := one / max(one+two, 1e-9)
		switch {
		case one+two < 0.08:
			idle++
		case math.Abs(share-0.5) > 0.15:
			uneven++
		}
		sum += share
		squares += share * share
	}
	mean := sum / windows
	t.Logf("of %d times 100 ms: mean share %.3f, deviation %.3f, %d uneven, %d idle", windows, mean, math.Sqrt(max(0, squares/windows-mean*mean)), uneven, idle)
	if uneven > windows/10 || math.Abs(mean-0.5) > 0.05 {
		return fmt.Errorf("in %d of %d times 100 ms a job had less than 35 %%; %.1f %% in all", uneven, windows, 100*mean)
	}
	if idle > windows/2 {
		return fmt.Errorf("in %d of %d times 100 ms the GPU idled", idle, windows)
	}
	return nil
}

// TestComplaintDisproportion has weights of 9 and 1.
func TestComplaintDisproportion(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	weights := []int{9, 1}
	attempt(t, func() error {
		shares, err := bench.MeasureShares(soon(t), b, weights, 5*time.Second)
		if err != nil {
			return err
		}
		worst := bench.ShareError(weights, shares)
		t.Logf("shares %.4f, 1:%.2f", shares, shares[0]/shares[1])
		if worst > 0.03 {
			return fmt.Errorf("shares %.4f are off by %.1f %%", shares, 100*worst)
		}
		return nil
	})
	held(t, b)
}

// TestComplaintGraphs has a job that launches graphs beside one that launches kernels: they are gated, and charged alike.
func TestComplaintGraphs(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	o := observe(t, b)
	load := []string{"load", "--kernels", "20", "--kernel-us", "200", "--gap-ms", "0", "--seconds", "60"}
	list := []*bench.Program{started(t, b, &bench.Job{Name: "graphs"}, "weft-probe", append(load, "--graph")...), started(t, b, &bench.Job{Name: "kernels"}, "weft-probe", load...)}
	eventually(t, patience, "both compute", func() bool { busy := busyBy(t, o, list); return busy[0] > 0 && busy[1] > 0 })
	time.Sleep(time.Second)
	graphs := 0.0
	attempt(t, func() error {
		before := busyBy(t, o, list)
		time.Sleep(4 * time.Second)
		after := busyBy(t, o, list)
		kernels := (after[1] - before[1]).Seconds()
		graphs = (after[0] - before[0]).Seconds()
		share := graphs / max(graphs+kernels, 1e-9)
		t.Logf("graphs have %.1f %% beside kernels", 100*share)
		if math.Abs(share-0.5) > 0.05 {
			return fmt.Errorf("graphs have %.1f %% beside kernels of the same weight", 100*share)
		}
		return nil
	})
	j, _ := jobOf(t, b, "graphs")
	if j.Launches == 0 || j.Used < 0.5*graphs {
		t.Errorf("%d launches and %.2f s are charged to the job, of %.2f s", j.Launches, j.Used, graphs)
	}
	held(t, b)
}
