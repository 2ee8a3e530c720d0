package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/web/client"
)

const (
	quietWait   = 500 * time.Millisecond // a job that waits no longer is not said to wait
	runPatience = 2 * time.Minute        // with a daemon that is away while a job is followed
)

// follower is a job that runs in the foreground of this terminal.
type follower struct {
	at    boxAt
	s     *session
	d     *client.Client
	id    box.ID
	input *os.File // its standard input; nil for none

	said     string    // why it waits, as last told
	on       []int     // where it is, as last told
	operated time.Time // of the last operation that was told
	signal   syscall.Signal
}

// follow shows what the job prints and what becomes of it until it is done. Its error is the status to end with.
func (f *follower) follow(ctx context.Context, signals chan os.Signal) error {
	if ctx.Err() != nil && len(signals) == 0 { // it came before anybody listened there
		signals <- os.Interrupt
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the first signal ends the job, not this
	defer cancel()
	f.d.Patience = runPatience
	f.d.Away = func(away bool) {
		if away {
			f.s.say("the daemon does not answer; job %d goes on", f.id)
		} else {
			f.s.say("the daemon is back")
		}
	}
	printed := make(chan error, 1)
	go func() { printed <- f.print(ctx) }()
	given := make(chan error, 1)
	go func() { given <- f.give(ctx) }()
	job, err := f.attend(ctx, signals)
	if err != nil {
		cancel()
	}
	if lost := <-printed; err == nil {
		err = lost
	}
	cancel() // nobody reads the input any more
	if refused := <-given; err == nil && refused != nil && !errors.Is(refused, context.Canceled) {
		f.s.say("its standard input was not passed on: %v", refused)
	}
	var left statusError
	switch {
	case errors.As(err, &left):
		return left
	case err != nil:
		return f.lost(err)
	}
	f.s.say("job %d %s", f.id, boxtable.Ended(&job))
	return f.status(&job)
}

// status is what to end with.
func (f *follower) status(job *box.Job) error {
	if f.signal != 0 && (job.Outcome == box.Stopped || job.Outcome == box.Cancelled) {
		return statusError(128 + int(f.signal))
	}
	return statusOf(job)
}

// statusOf is the exit status that stands for a job's end.
func statusOf(job *box.Job) error {
	switch {
	case job.Outcome == box.TimedOut:
		return statusError(exitTimedOut)
	case job.Outcome == box.Lost, job.Exit == nil:
		return statusError(exitTrouble)
	case *job.Exit == 0:
		return nil
	}
	return statusError(*job.Exit)
}

// lost is the end of a daemon that did not come back. The job is where it was.
func (f *follower) lost(err error) error {
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) {
		return troubledJob(f.at.fault(err))
	}
	return &failure{inputError{trace.Errors{{Code: "unreachable", File: unreachable.Socket, Message: fmt.Sprintf("the daemon did not come back; job %d goes on", f.id),
		Fix: fmt.Sprintf("weft up, then weft logs -f %d", f.id)}}, false}, exitTrouble}
}

// troubledJob gives a fault the exit code of weft's own.
func troubledJob(err error) error {
	if input := inputIn(err); input != nil {
		return &failure{*input, exitTrouble}
	}
	return troubled(err)
}

// seen is one look at the job.
type seen struct {
	job box.Job
	err error
}

// attend tells what becomes of the job until it is done, and passes signals on.
func (f *follower) attend(ctx context.Context, signals <-chan os.Signal) (box.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	looks := make(chan seen)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for job, err := range f.d.Watch(ctx, f.id) {
			select {
			case looks <- seen{job, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	soon := time.NewTimer(quietWait)
	defer soon.Stop()
	var last box.Job
	for patient := true; ; {
		select {
		case look := <-looks:
			last = look.job
			if look.err != nil || last.State == box.Done {
				return last, look.err
			}
			f.tell(&last, patient)
		case <-soon.C:
			patient = false
			f.tell(&last, patient)
		case got := <-signals:
			if f.signal != 0 {
				f.s.say("job %d is left to stop by itself", f.id)
				return last, statusError(128 + int(f.signal))
			}
			f.stop(ctx, got)
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// tell says what is new of a job that is not done.
func (f *follower) tell(job *box.Job, patient bool) {
	if o := job.Operation; o != nil && o.Verb != box.Placed && o.Verb != box.Resumed && o.Time.After(f.operated) {
		f.operated, f.on, f.said = o.Time, nil, ""
		f.s.say("job %d %s", f.id, boxtable.Operated(o))
	}
	switch {
	case job.ID == 0: // it was not seen yet
	case job.State == box.Waiting && !patient:
		if why := boxtable.Waits(job.Reason); why != f.said {
			f.said = why
			f.s.say("job %d waits: %s", f.id, report.Clean(why))
		}
	case job.State.Live() && job.State != box.Stopping && !slices.Equal(job.On, f.on):
		f.on, f.said = slices.Clone(job.On), ""
		f.s.say("job %d %s", f.id, boxtable.Placed(job))
	}
}

// stop ends the job as the first signal asks for.
func (f *follower) stop(ctx context.Context, got os.Signal) {
	f.signal = syscall.SIGINT
	if got == syscall.SIGTERM {
		f.signal = syscall.SIGTERM
	}
	f.s.say("stopping job %d; again to leave it", f.id)
	if _, err := f.d.Stop(ctx, f.id); err != nil {
		f.s.say("job %d was not stopped: %v", f.id, err)
	}
}

// give hands the standard input over.
func (f *follower) give(ctx context.Context) error {
	if f.input == nil {
		return nil
	}
	return f.d.Stdin(ctx, f.id, f.input)
}

// print copies what the job prints, byte by byte, each stream to its own.
func (f *follower) print(ctx context.Context) error {
	in, err := f.d.Log(ctx, f.id, 0, true)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	return copyLog(in, f.s.stdout, f.s.stderr)
}

// copyLog copies the frames of a log to where they belong. What weft says of the log goes to stderr.
func copyLog(in io.Reader, stdout, stderr io.Writer) error {
	return eachFrame(in, func(frame shepherd.Frame) error {
		to := stderr
		switch frame.Stream {
		case shepherd.Stdout:
			to = stdout
		case shepherd.Weft:
			frame.Bytes = append([]byte("weft: "), frame.Bytes...)
		}
		_, err := to.Write(frame.Bytes)
		return err
	})
}

// eachFrame does something with each frame of a log.
func eachFrame(in io.Reader, do func(shepherd.Frame) error) error {
	frames := shepherd.NewDecoder(in)
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(frame); err != nil {
			return err
		}
	}
}

// followAll waits for all jobs of an array; what they print stays in their logs.
func (c *runCommand) followAll(ctx context.Context, s *session, d *client.Client, list []box.ID) error {
	s.say("jobs %s; weft logs ID shows what each prints", idsInOneWord(list))
	d.Patience = runPatience
	jobs, err := waitFor(ctx, s, d, list)
	if ctx.Err() != nil {
		s.say("stopping jobs %s", idsInOneWord(list))
		for _, id := range list {
			if _, err := d.Stop(context.WithoutCancel(ctx), id); err != nil {
				return troubledJob(c.fault(err))
			}
		}
		return statusError(exitInterrupted)
	}
	if err != nil {
		return troubledJob(c.fault(err))
	}
	return firstStatus(jobs)
}
