package demo

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"weft.dev/weft/internal/emugpu"
)

// restartDelay is how long after it ran out of memory a job is started again, by a script that watches over it.
const restartDelay = 2 * time.Second

// plain runs jobs without weft.
type plain struct {
	setup   Setup
	dir     string // of checkpoints
	broker  *emugpu.Broker
	start   time.Time
	tracker tracker

	mu   sync.Mutex
	jobs []Outcome
}

// runExclusive runs each job on a GPU of its own: as many at once as there are GPUs, in order of submission, each on the
// first GPU that falls free.
func runExclusive(ctx context.Context, s Setup) (Run, error) {
	free := make(chan int, len(s.GPUs))
	for gpu := range s.GPUs {
		free <- gpu
	}
	return runPlain(ctx, s, func(ctx context.Context, p *plain, number int) (func() error, error) {
		select {
		case gpu := <-free:
			return func() error { defer func() { free <- gpu }(); return p.toEnd(ctx, number, gpu) }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// runTimeslice runs all jobs at once, in turn over the GPUs. Nothing guards memory: a job that is out of it starts again from
// its checkpoint after restartDelay, until it ends.
func runTimeslice(ctx context.Context, s Setup) (Run, error) {
	return runPlain(ctx, s, func(ctx context.Context, p *plain, number int) (func() error, error) {
		return func() error { return p.toEnd(ctx, number, number%len(s.GPUs)) }, nil
	})
}

// runPlain opens emulated GPUs and runs each job of the group as soon as next lets it, in order. The first fault ends all.
func runPlain(ctx context.Context, s Setup, next func(context.Context, *plain, int) (func() error, error)) (Run, error) {
	dir, err := folder()
	if err != nil {
		return Run{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	broker, err := emugpu.Start(emugpu.Options{GPUs: s.GPUs, Switch: switchTime})
	if err != nil {
		return Run{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &plain{setup: s, dir: dir, broker: broker, start: time.Now(), jobs: make([]Outcome, len(s.Group)), tracker: tracker{setup: &s}}
	var running sync.WaitGroup
	for number := range s.Group {
		job, err := next(ctx, p, number)
		if err != nil {
			break // cancelled, with its cause
		}
		running.Go(func() {
			if err := job(); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	run := Run{Jobs: p.jobs, Busy: busy(broker.Stats())}
	return run, errors.Join(context.Cause(ctx), broker.Close())
}

// longestTemporary is how long the path of the system's temporary folder may be for the sockets below it, of which a path has
// room for 107 bytes.
const longestTemporary = 40

// folder makes a temporary folder for what runs in a mode.
func folder() (string, error) {
	base := os.TempDir()
	if len(base) > longestTemporary {
		base = "/tmp"
	}
	return os.MkdirTemp(base, "weft-demo-")
}

// switchTime is what a change of context costs on the emulated GPUs, the default of weft emugpu.
const switchTime = 50 * time.Microsecond

// busy is the kernel time of each GPU.
func busy(s emugpu.Stats) []time.Duration {
	list := make([]time.Duration, len(s.GPUs))
	for i, g := range s.GPUs {
		list[i] = g.Busy
	}
	return list
}

// since is the time since the run began.
func (p *plain) since() time.Duration { return time.Since(p.start) }

// toEnd runs a job until it has ended, however often it is out of memory.
func (p *plain) toEnd(ctx context.Context, number, gpu int) error {
	for {
		oom, err := p.attempt(ctx, number, gpu)
		if err != nil {
			return err
		}
		if !oom {
			p.tracker.ended(number)
			return nil
		}
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// note adds an attempt to what became of a job.
func (p *plain) note(number int, stay Stay, running time.Duration, oom bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &p.jobs[number]
	o.Stays = append(o.Stays, stay)
	o.Running += running
	if oom {
		o.OOM++
	}
}
