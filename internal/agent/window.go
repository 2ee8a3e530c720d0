package agent

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// Window is what became of a job between two looks at it. Times are of one of its sessions on one of its GPUs.
type Window struct {
	Length     time.Duration
	Wait       time.Duration // for the token
	Stall      time.Duration // for memory
	Held       time.Duration // the token
	Used       time.Duration // computing, by its own account
	Iterations uint64
}

// Since is the difference to an earlier look at the same job, of which so much time has passed. Figures that went down count as 0.
func (j *Job) Since(first *Job, length time.Duration) Window {
	sessions, gpus := float64(max(1, len(j.PIDs))), float64(max(1, len(j.GPUs)))
	per := func(after, before, parts float64) time.Duration {
		return time.Duration(max(0, after-before) / parts * float64(time.Second))
	}
	return Window{
		Length: length, Wait: per(j.Waited, first.Waited, sessions), Stall: per(j.Stall, first.Stall, gpus), Held: per(j.Held, first.Held, gpus),
		Used: per(j.Used, first.Used, gpus), Iterations: j.Iterations - min(j.Iterations, first.Iterations),
	}
}

// Continues says whether no counter is below that of an earlier look, as it is of the same job unless the agent or a process that
// waited ended in between. Held is no counter: of a token that came before it was needed, the gap is taken off again.
func (j *Job) Continues(first *Job) bool {
	return j.ID == first.ID && j.Waited >= first.Waited && j.Stall >= first.Stall && j.Used >= first.Used && j.Iterations >= first.Iterations
}

// age is that of the session's process, also from before the agent began; 0 while it has no context on a GPU.
func (s *session) age(now unit.Time) time.Duration {
	if s.observer || s.mask == 0 {
		return 0
	}
	if at := ticks(); s.started > 0 && at >= s.started && at != never {
		return time.Duration(at-s.started) * tick
	}
	return now.Sub(s.born)
}
