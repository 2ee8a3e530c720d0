package local

import (
	"fmt"
	"syscall"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
)

// ending is how a job comes to be done.
type ending struct {
	outcome box.Outcome
	exit    int
	fault   string
	at      time.Time
}

// settleExit books the end of a program: the job is done, or was moved and waits to be resumed.
func (b *Box) settleExit(j *job, exit shepherd.Exit) {
	b.mu.Lock()
	alloc := j.Alloc
	b.mu.Unlock()
	if err := b.free(alloc); err != nil { // before anybody can be placed where it was
		b.o.Log.Warn("an allocation was not given back", "job", j.ID, "allocation", alloc, "fault", err)
	}
	b.mu.Lock()
	on, live := j.On, j.live
	j.live, j.Alloc = nil, 0
	if live == nil {
		live = &attempt{began: time.Now()}
	}
	j.Ran += ranFor(live, exit)
	b.fresh = append(b.fresh, j.ID)
	if exit.Cause == shepherd.Moved && !j.StopAsked && resumable(exit) {
		b.requeue(j, live, exit)
	} else {
		b.finish(j, ended(exit, j.StopAsked))
	}
	b.leftAt = time.Now()
	b.predictOn(on)
	b.mu.Unlock()
	b.keep(j)
	b.plan()
}

// ranFor is how long an attempt ran. The time that passed here is taken where the daemon saw the begin: a clock that was set
// meanwhile does not count.
func ranFor(a *attempt, exit shepherd.Exit) time.Duration {
	if exit.Started.IsZero() || exit.Ended.IsZero() {
		return max(0, time.Since(a.began))
	}
	by := exit.Ended.Sub(exit.Started)
	if seen := time.Since(a.began); by < 0 || (by-seen).Abs() > time.Minute {
		return max(0, seen)
	}
	return by
}

// resumable says whether a program that was asked to write a checkpoint is to be started again. One that ended well before it
// was asked, or all the same, begins anew from what it wrote, and ends at once if it had finished.
func resumable(exit shepherd.Exit) bool { return exit.Fault == "" }

// lostCheckpoint says whether a program that was asked to write a checkpoint was killed instead.
func lostCheckpoint(exit shepherd.Exit) bool {
	return exit.Forced || exit.Signal != 0 || exit.Status != 0 && exit.Status != 128+int(syscall.SIGTERM)
}

// requeue lets a job wait that was moved. The mutex is held.
func (b *Box) requeue(j *job, a *attempt, exit shepherd.Exit) {
	if lostCheckpoint(exit) {
		j.NoMove = true
		text := fmt.Sprintf("it was asked for a checkpoint and ended with %d instead%s: what it had done since its last one is lost, and it is not moved again",
			exit.Status, forced(exit))
		b.note(box.Event{Type: box.EventCheckpoint, Job: j.ID, Text: text})
		told := *j.Operation // others may be reading the old one
		told.Text += "\n" + text
		j.Operation = &told
		b.figures.Operations[box.OperationKey{Verb: j.Operation.Verb, Outcome: "checkpoint_lost"}]++
	}
	j.State, j.On, j.Queued = box.Waiting, nil, j.Submitted
	if len(a.target) > 0 && b.takes(a.target) { // its place there was kept
		b.start(j, a.target)
	}
	b.touch()
}

func forced(exit shepherd.Exit) string {
	if exit.Forced {
		return ", killed after the grace"
	}
	return ""
}

// ended is what the end of a program means for its job.
func ended(exit shepherd.Exit, asked bool) ending {
	e := ending{outcome: box.Failed, exit: exit.Status, fault: exit.Fault, at: exit.Ended}
	if e.at.IsZero() {
		e.at = time.Now()
	}
	switch {
	case exit.Cause == shepherd.Lost:
		e.outcome, e.exit = box.Lost, 128+int(syscall.SIGKILL)
	case exit.Cause == shepherd.TimedOut:
		e.outcome, e.exit = box.TimedOut, exitTimedOut
	case exit.Cause == shepherd.Stopped || asked:
		e.outcome = box.Stopped
	case exit.Status == 0:
		e.outcome = box.Succeeded
	}
	return e
}

// exitTimedOut is the exit status of a job whose time was over.
const exitTimedOut = 124

// finish ends a job for good. The mutex is held.
func (b *Box) finish(j *job, e ending) {
	if j.State == box.Done {
		return
	}
	at := e.at.UTC().Round(0)
	j.State, j.Outcome, j.Ended, j.Fault = box.Done, e.outcome, &at, e.fault
	if j.Attempt > 0 || e.exit != 0 {
		j.Exit = &e.exit
	}
	if j.stdin != nil {
		_ = j.stdin.Close() // nobody reads from it
		j.stdin = nil
	}
	b.figures.Outcomes[e.outcome]++
	text := string(e.outcome)
	if j.Exit != nil {
		text = fmt.Sprintf("%s, exit %d", text, e.exit)
	}
	if e.fault != "" {
		text += ": " + e.fault
	}
	b.note(box.Event{Type: box.EventEnded, Job: j.ID, Text: text})
	close(j.ended)
	b.unsaved[j.ID] = true // until it is kept
}
