package pollux

import (
	"context"
	"math"
	"slices"

	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// roundS is the time between two decisions in seconds: a figure of the published simulator.
const roundS = 60

// loop is the published simulator's: every round all jobs run on for 60 s, then the policy decides anew. The first
// decision is at 60 s.
type loop struct {
	policy *tiresias
	coming []*job // not submitted yet, in file order
	active []*job // submitted and not ended, in file order
	now    float64
	usage  []sim.Usage
	rounds int
}

// run replays to the last end, or until ctx is done.
func (l *loop) run(ctx context.Context) error {
	for len(l.coming)+len(l.active) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.round(); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) round() error {
	if len(l.active) == 0 {
		l.skipIdle()
	}
	for _, j := range l.active {
		if err := j.advance(l.now, roundS); err != nil {
			return err
		}
	}
	l.now += roundS
	l.rounds++
	l.active = slices.DeleteFunc(l.active, func(j *job) bool { return j.done })
	l.admit()
	if len(l.active) > 0 {
		if err := l.policy.schedule(l.now, roundS); err != nil {
			return err
		}
	}
	l.recordUsage()
	return nil
}

// skipIdle moves the clock to one round before the first that sees a job, when nothing happens until then.
func (l *loop) skipIdle() {
	first := math.Inf(1)
	for _, j := range l.coming {
		first = min(first, j.row.SubmitS)
	}
	l.now = max(l.now, (math.Ceil(first/roundS)-1)*roundS)
}

// admit hands the submitted jobs to the policy, in file order.
func (l *loop) admit() {
	l.coming = slices.DeleteFunc(l.coming, func(j *job) bool {
		if j.row.SubmitS > l.now {
			return false
		}
		l.policy.arrive(j)
		l.active = append(l.active, j)
		return true
	})
}

func (l *loop) recordUsage() {
	inUse := 0
	for _, j := range l.active {
		if j.allocated() {
			inUse += j.row.Replicas
		}
	}
	if n := len(l.usage); n == 0 || l.usage[n-1].GPUs != inUse {
		l.usage = append(l.usage, sim.Usage{At: unit.Seconds(l.now), GPUs: inUse})
	}
}
