package client

import (
	"context"
	"errors"
	"io"
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

// Log reads the log of a job: its frames, unchanged, from an offset in bytes on. With follow it ends when the job is done and
// all was read. What goes wrong at the start is returned at once.
func (c *Client) Log(ctx context.Context, id box.ID, from int64, follow bool) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{ctx: ctx, cancel: cancel, c: c, id: id, offset: from, follow: follow, absence: absence{c: c}}
	if err := l.open(); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

// logReader reads a log over as many connections as it takes.
type logReader struct {
	ctx     context.Context // a reader has no other place for what ends it
	cancel  context.CancelFunc
	c       *Client
	id      box.ID
	offset  int64
	follow  bool
	in      io.ReadCloser // nil while the daemon is away
	absence absence
}

func (l *logReader) open() error {
	query := url.Values{"from": {strconv.FormatInt(l.offset, 10)}}
	if l.follow {
		query.Set("follow", "1")
	}
	in, err := l.c.open(l.ctx, http.MethodGet, jobPath(l.id, "/log"), query, nil)
	l.in = in
	return err
}

// Read implements io.Reader.
func (l *logReader) Read(p []byte) (int, error) {
	for {
		var err error
		if l.in == nil {
			err = l.open()
		}
		if err == nil {
			l.absence.over()
			var n int
			n, err = l.in.Read(p)
			l.offset += int64(n)
			if n > 0 || err == nil || errors.Is(err, io.EOF) {
				return n, endOnly(err)
			}
			_ = l.in.Close() // it is broken
			l.in = nil
			err = l.c.unreachable(l.ctx, err)
		}
		if err := l.absence.endure(l.ctx, err); err != nil {
			return 0, err
		}
	}
}

// endOnly is the end of a body. Other errors come back at the next reading.
func endOnly(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return nil
}

// Close ends the reading.
func (l *logReader) Close() error {
	l.cancel()
	if l.in == nil {
		return nil
	}
	return l.in.Close()
}
