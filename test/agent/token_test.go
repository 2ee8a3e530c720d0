package agent

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// emulated are counters of the emulated GPUs.
type emulated struct {
	Launches   uint64 `json:"launches"`
	Unmanaged  uint64 `json:"unmanaged"`
	Violations uint64 `json:"violations"`
	Examples   []any  `json:"examples"`
}

func counters(t *testing.T, b *bench.Bed) emulated {
	t.Helper()
	var e emulated
	if err := b.Emulated(soon(t), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// held fails the test if a kernel was launched outside a token.
func held(t *testing.T, b *bench.Bed) emulated {
	t.Helper()
	e := counters(t, b)
	if e.Violations > 0 || e.Unmanaged > 0 {
		t.Errorf("%d launches outside a token, %d of processes without the shim, of %d: %v", e.Violations, e.Unmanaged, e.Launches, e.Examples)
	}
	return e
}

// crowd runs 8 processes of all classes with 4 threads each that launch without rest.
func crowd(t *testing.T, b *bench.Bed, launches int) {
	t.Helper()
	classes := []string{"guaranteed", "burstable", "besteffort"}
	ctx := soon(t)
	programs := make([]*bench.Program, 8)
	for i := range programs {
		job := &bench.Job{Name: fmt.Sprintf("crowd-%d", i), Class: classes[i%3], Weight: 1 + i, Reserved: "1GiB"}
		programs[i] = b.Command(ctx, job, "weft-probe", "launch-cost", "--threads", "4", "--rounds", "2", "--launches", strconv.Itoa(launches))
		if err := programs[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range programs {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoLaunchOutsideToken(t *testing.T) {
	b := bed(t, 1)
	launches := 50_000
	if suite.Raced || testing.Short() {
		launches = 5_000
	}
	crowd(t, b, launches)
	e := held(t, b)
	if want := uint64(8 * 4 * 2 * launches); e.Launches < want {
		t.Errorf("the emulated GPU saw %d launches, at least %d were made", e.Launches, want)
	}
	t.Logf("%d launches", e.Launches)
}

func TestShares(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	for _, weights := range [][]int{{1, 1}, {3, 1}} {
		attempt(t, func() error {
			shares, err := bench.MeasureShares(soon(t), b, weights, 5*time.Second)
			if err != nil {
				return err
			}
			worst := bench.ShareError(weights, shares)
			t.Logf("weights %v: shares %.4f, error %.2f %%", weights, shares, 100*worst)
			if worst > 0.03 {
				return fmt.Errorf("weights %v: shares %.4f are off by %.1f %%, above 3 %%", weights, shares, 100*worst)
			}
			return nil
		})
	}
	held(t, b)
}

func TestPreemption(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	for _, kernel := range []time.Duration{200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		attempt(t, func() error {
			p, err := bench.MeasurePreemption(soon(t), b, kernel, 5*time.Second)
			if err != nil {
				return err
			}
			const promise = 1 // ms beyond the window and the kernel that runs
			least := p.Window + kernel.Seconds()*1e3
			t.Logf("kernels of %v: p50 %.2f, p99 %.2f, max %.2f ms of %d; window %.2f ms, promised %.2f ms", kernel, p.P50, p.P99, p.Max, p.Count, p.Window, least+promise)
			if limit := suite.Slack() * promise; p.P99 > least+limit {
				return fmt.Errorf("kernels of %v: p99 is %.2f ms, above window %.2f + kernel + %v ms", kernel, p.P99, p.Window, limit)
			}
			return nil
		})
	}
	held(t, b)
}

func TestPriority(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	for _, c := range []struct {
		iteration, length time.Duration
		low               float64 // least rate of the low job, of its own alone
	}{
		{4 * time.Millisecond, 4 * time.Second, 0}, // hand-overs cost too much: the high job's loss comes first
		{20 * time.Millisecond, 5 * time.Second, 0.20},
		{100 * time.Millisecond, 8 * time.Second, 0.20},
		{500 * time.Millisecond, 10 * time.Second, 0.20},
	} {
		attempt(t, func() error {
			p, err := bench.MeasurePriority(soon(t), b, c.iteration, 0.3, c.length)
			if err != nil {
				return err
			}
			t.Logf("iterations of %v with gaps of 30 %%: high loses %.2f %%, low has %.1f %%", c.iteration, 100*p.Loss, 100*p.LowRate)
			if p.Loss >= 0.05 || p.LowRate < c.low {
				return fmt.Errorf("iterations of %v: the high job loses %.2f %%, want under 5 %%; the low one has %.1f %% of its rate alone, want at least %.0f %%",
					c.iteration, 100*p.Loss, 100*p.LowRate, 100*c.low)
			}
			return nil
		})
	}
	held(t, b)
}

// TestSaturatedHigh reports what a high job without gaps leaves: nothing, unless a minimum is set.
func TestSaturatedHigh(t *testing.T) {
	suite.Timed(t)
	for _, minimum := range []string{"0", "0.1"} {
		b := bed(t, 1, "--minimum", minimum)
		attempt(t, func() error {
			p, err := bench.MeasurePriority(soon(t), b, 20*time.Millisecond, 0, 4*time.Second)
			if err != nil {
				return err
			}
			t.Logf("minimum %s: a saturated high job loses %.2f %%, the low one has %.1f %%", minimum, 100*p.Loss, 100*p.LowRate)
			switch {
			case minimum == "0" && p.Loss > 0.02:
				return fmt.Errorf("without a minimum the saturated job loses %.2f %%", 100*p.Loss)
			case minimum != "0" && (p.LowRate < 0.05 || p.LowRate > 0.12): // hand-overs and drains are part of its slices
				return fmt.Errorf("with a minimum of %s the low job has %.1f %%", minimum, 100*p.LowRate)
			}
			return nil
		})
	}
}
