// Package bench measures what weft costs and what it holds on one GPU, real or emulated: the programs are real
// processes under a real agent, told apart only by whether libweft.so is in them. The command `weft bench` shows the
// figures, and the tests of the data path assert them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Result is what was measured. A figure that could not be taken is nil.
type Result struct {
	LaunchOverhead     *float64 `json:"launch_overhead_ns"`                // added to a launch while the token is held
	StreamOverhead     *float64 `json:"stream_overhead_fraction"`          // rate lost by a saturated stream of 10 us kernels
	Preemption         *float64 `json:"preemption_p99_ms"`                 // from the wish of a high job to its launch beside a saturated low one
	Window             *float64 `json:"window_ms"`                         // most GPU time that the low job may have outstanding
	LongestKernel      *float64 `json:"longest_kernel_ms"`                 // of the low job
	ShareError         *float64 `json:"share_error_fraction"`              // greatest distance from the due share, weights 1:1 and 3:1
	HighLoss           *float64 `json:"high_loss_fraction"`                // rate that a high job with gaps loses beside a low one
	LowRate            *float64 `json:"low_rate_fraction"`                 // rate of that low job, of its rate alone
	HolderKillRecovery *float64 `json:"holder_kill_recovery_ms"`           // from the kill of a holder to the next launch
	Messages           *float64 `json:"socket_messages_per_1000_launches"` // of one job that holds the token
}

// Scale is how thorough a measurement is: the length of one run. The zero value is 2 s.
type Scale time.Duration

func (s Scale) run() time.Duration {
	if s <= 0 {
		return 2 * time.Second
	}
	return time.Duration(s)
}

// Stage is one measurement with the name that progress shows.
type Stage struct {
	Name string
	Take func(context.Context, *Bed, Scale, *Result) error
}

// Stages is every measurement, in order.
func Stages() []Stage {
	return []Stage{
		{"launch cost", launchStage},
		{"stream cost", streamStage},
		{"preemption", preemptionStage},
		{"shares", shareStage},
		{"high and low", priorityStage},
		{"holder killed", killStage},
	}
}

// All takes every measurement on a bed. It goes on after one that fails; the errors are joined. told is called before
// each stage with its number.
func All(ctx context.Context, b *Bed, s Scale, told func(stage, of int, name string)) (Result, error) {
	var r Result
	var faults []error
	stages := Stages()
	for i, stage := range stages {
		told(i, len(stages), stage.Name)
		if err := stage.Take(ctx, b, s, &r); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", stage.Name, err))
		}
		if ctx.Err() != nil {
			return r, errors.Join(append(faults, ctx.Err())...)
		}
	}
	return r, errors.Join(faults...)
}

func launchStage(ctx context.Context, b *Bed, _ Scale, r *Result) error {
	ns, err := LaunchOverhead(ctx, b, 1, 5)
	if err == nil {
		r.LaunchOverhead = &ns
	}
	return err
}

func streamStage(ctx context.Context, b *Bed, s Scale, r *Result) error {
	fraction, messages, err := StreamOverhead(ctx, b, s.run()/2, 3)
	if err == nil {
		r.StreamOverhead, r.Messages = &fraction, &messages
	}
	return err
}

func preemptionStage(ctx context.Context, b *Bed, s Scale, r *Result) error {
	const kernel = time.Millisecond
	p, err := MeasurePreemption(ctx, b, kernel, 2*s.run())
	if err == nil {
		longest := milliseconds(kernel)
		r.Preemption, r.Window, r.LongestKernel = &p.P99, &p.Window, &longest
	}
	return err
}

func shareStage(ctx context.Context, b *Bed, s Scale, r *Result) error {
	worst := 0.0
	for _, weights := range [][]int{{1, 1}, {3, 1}} {
		shares, err := MeasureShares(ctx, b, weights, 2*s.run())
		if err != nil {
			return err
		}
		worst = max(worst, ShareError(weights, shares))
	}
	r.ShareError = &worst
	return nil
}

func priorityStage(ctx context.Context, b *Bed, s Scale, r *Result) error {
	p, err := MeasurePriority(ctx, b, 20*time.Millisecond, 0.3, 2*s.run())
	if err == nil {
		r.HighLoss, r.LowRate = &p.Loss, &p.LowRate
	}
	return err
}

func killStage(ctx context.Context, b *Bed, _ Scale, r *Result) error {
	ms, err := HolderKill(ctx, b, 3)
	if err == nil {
		r.HolderKillRecovery = &ms
	}
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
