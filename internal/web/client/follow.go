package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weft.dev/weft/internal/box"
)

// Of a daemon that is away.
const (
	firstPause  = 20 * time.Millisecond
	longestWait = time.Second
)

// pollTime is how long one question may wait for something to happen.
const pollTime = 30 * time.Second

// absence is a daemon that does not answer to one question.
type absence struct {
	c     *Client
	since time.Time // zero while it answers
	pause time.Duration
}

// over ends the absence: the daemon answered.
func (a *absence) over() {
	if !a.since.IsZero() {
		a.since = time.Time{}
		a.c.tell(false)
	}
}

// endure waits a little before the question is asked again. It returns the error that is to be returned instead: one that will
// not pass, or patience is over.
func (a *absence) endure(ctx context.Context, err error) error {
	if !isAway(err) {
		return err
	}
	if a.since.IsZero() {
		a.since, a.pause = time.Now(), firstPause
	}
	if time.Since(a.since) >= a.c.Patience {
		return err
	}
	a.c.tell(true)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(a.pause):
	}
	a.pause = min(2*a.pause, longestWait)
	return nil
}

// tell calls Away when the daemon comes or goes.
func (c *Client) tell(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != away && c.Away != nil {
		c.Away(away)
	}
	c.away = away
}

// Wait waits until a job is done.
func (c *Client) Wait(ctx context.Context, id box.ID) (box.Job, error) {
	query := url.Values{"timeout_s": {strconv.Itoa(int(pollTime.Seconds()))}}
	a := absence{c: c}
	for {
		var job box.Job
		err := c.askWithin(ctx, pollTime+answerTime, http.MethodGet, jobPath(id, "/wait"), query, nil, &job)
		if err == nil {
			a.over()
			if job.State == box.Done {
				return job, nil
			}
			continue
		}
		if err := a.endure(ctx, err); err != nil {
			return box.Job{}, err
		}
	}
}

// Watch yields a job as it is, then again whenever what a user is told of it changes (Tag), until it is done. An error ends it.
func (c *Client) Watch(ctx context.Context, id box.ID) iter.Seq2[box.Job, error] {
	return func(yield func(box.Job, error) bool) {
		query := url.Values{"timeout_s": {strconv.Itoa(int(pollTime.Seconds()))}, "seen": {"none"}}
		a := absence{c: c}
		for {
			var job box.Job
			err := c.askWithin(ctx, pollTime+answerTime, http.MethodGet, jobPath(id, "/wait"), query, nil, &job)
			if err != nil {
				if err := a.endure(ctx, err); err != nil {
					yield(box.Job{}, err)
					return
				}
				continue
			}
			a.over()
			tag := Tag(&job)
			if tag != query.Get("seen") && !yield(job, nil) || job.State == box.Done {
				return
			}
			query.Set("seen", tag)
		}
	}
}
