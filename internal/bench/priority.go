package bench

import (
	"context"
	"strconv"
	"time"
)

// Preemption is how long a high job waits beside a saturated low one whenever it comes back.
type Preemption struct {
	P50, P99, Max float64 // ms, from the wish to launch until the launch returned
	Window        float64 // ms, the widest that the agent allowed the low job meanwhile
	Count         int
}

// firstWindow is the window that a job starts with which a higher class may interrupt, in ms (docs/arbiter.md). The agent narrows
// it after each slice that made the higher job wait, and widens it again up to this.
const firstWindow = 0.5

// MeasurePreemption wakes a guaranteed job beside a besteffort one that always has kernels, after gaps that nobody can
// foresee: of any length up to 20 ms.
func MeasurePreemption(ctx context.Context, b *Bed, kernel, length time.Duration) (Preemption, error) {
	samples, err := b.Together(ctx,
		Run{&Job{Name: "high", Class: "guaranteed"}, []string{"ping", "--gap-ms", "10", "--jitter", "1", "--kernel-us", "100", "--seconds", seconds(length)}},
		Run{&Job{Name: "low", Class: "besteffort"}, saturated(kernel, length)})
	if err != nil {
		return Preemption{}, err
	}
	stats, err := b.Stats(ctx)
	if err != nil {
		return Preemption{}, err
	}
	s := samples[0]
	stats.WindowMS = max(stats.WindowMS, firstWindow)
	return Preemption{s.LaunchP50 / 1e3, s.LaunchP99 / 1e3, s.LaunchMax / 1e3, stats.WindowMS, s.Count}, nil
}

// Priority is what a high job with gaps loses beside a low one, and what the low one gets.
type Priority struct {
	Loss    float64 // share of the high job's rate alone
	LowRate float64 // of the low job's rate alone
}

// lowKernel is the length of the low job's kernels.
const lowKernel = 200 * time.Microsecond

// MeasurePriority runs a guaranteed job of an iteration length with gaps of a share of it beside a besteffort one that
// always has kernels, and both alone under the agent.
func MeasurePriority(ctx context.Context, b *Bed, iteration time.Duration, gaps float64, length time.Duration) (Priority, error) {
	busy := time.Duration(float64(iteration) * (1 - gaps))
	kernels := max(1, int(busy/(500*time.Microsecond)))
	high := Run{&Job{Name: "high", Class: "guaranteed"}, []string{"load", "--kernels", strconv.Itoa(kernels),
		"--kernel-us", strconv.FormatFloat(float64(busy.Nanoseconds())/1e3/float64(kernels), 'f', 3, 64),
		"--gap-ms", strconv.FormatFloat(milliseconds(iteration-busy), 'f', 6, 64), "--seconds", seconds(length)}}
	low := Run{&Job{Name: "low", Class: "besteffort"}, saturated(lowKernel, length)}
	var alone [2]Sample
	for i, run := range []Run{high, low} {
		samples, err := b.Together(ctx, run)
		if err != nil {
			return Priority{}, err
		}
		alone[i] = samples[0]
	}
	both, err := b.Together(ctx, high, low)
	if err != nil {
		return Priority{}, err
	}
	return Priority{1 - both[0].Rate/alone[0].Rate, both[1].KernelRate / alone[1].KernelRate}, nil
}

// saturated are the arguments of a job that always has kernels.
func saturated(kernel, length time.Duration) []string {
	return []string{"stream", "--kernel-us", strconv.FormatFloat(float64(kernel.Nanoseconds())/1e3, 'f', 3, 64), "--batch", "16",
		"--seconds", seconds(length)}
}
