package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// await runs work apart, so that an interruption is answered at once: some steps of the methods look at no context for
// seconds. Abandoned work shares nothing that its caller goes on to use, and ends with the process.
func await[T any](ctx context.Context, work func() T) (result T, ok bool) {
	if ctx.Err() != nil {
		return result, false
	}
	done := make(chan T, 1)
	go func() { done <- work() }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
		return result, false
	}
}

// pulse shows that a stage goes on, with how far it is where the stage says so: some say nothing for a minute.
type pulse struct {
	done, total atomic.Int64 // jobs; total is 0 while the stage has said nothing
	end         chan struct{}
	ended       sync.WaitGroup
}

// pulseEvery is how often progress is offered; the line shows less.
const pulseEvery = 100 * time.Millisecond

// pulse starts one. Its owner stops it.
func (s *session) pulse(stage string) *pulse {
	p := &pulse{end: make(chan struct{})}
	p.ended.Go(func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			if total := p.total.Load(); total > 0 {
				s.progress.Report(stage, int(p.done.Load()), int(total), "jobs")
			} else {
				s.progress.Report(stage, 0, 0, "")
			}
		}
	})
	return p
}

// report is for the work of the stage to call, even after the pulse was stopped.
func (p *pulse) report(done, total int) {
	p.done.Store(int64(done))
	p.total.Store(int64(total))
}

func (p *pulse) stop() {
	close(p.end)
	p.ended.Wait()
}
