package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
)

// Log reads the log of a job: its frames, as shepherd.NewDecoder takes them, from an offset on; a negative one counts from the
// end. With follow it ends when the job is done and all was read. A refusal is returned at once. Only whole frames are told, each
// once, whatever happens to the connection.
func (c *Client) Log(ctx context.Context, id box.ID, from int64, follow bool) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{ctx: ctx, cancel: cancel, c: c, id: id, offset: from, follow: follow, absence: absence{c: c}}
	for err := l.open(); err != nil; err = l.open() {
		if err := l.absence.endure(ctx, err); err != nil {
			cancel()
			return nil, err
		}
	}
	l.absence.over()
	return l, nil
}

// logReader reads a log over as many connections as it takes.
type logReader struct {
	ctx    context.Context // a reader has no other place for what ends it
	cancel context.CancelFunc
	c      *Client
	id     box.ID
	offset int64
	follow bool

	in      io.ReadCloser // nil while the daemon is away
	frames  *shepherd.Decoder
	buffer  []byte // of a frame
	rest    []byte // of it, that was not read yet
	absence absence
}

func (l *logReader) open() error {
	query := url.Values{"from": {strconv.FormatInt(l.offset, 10)}}
	if l.follow {
		query.Set("follow", "1")
	}
	in, err := l.c.open(l.ctx, http.MethodGet, jobPath(l.id, "/log"), query, nil)
	if err != nil {
		l.in = nil
		return err
	}
	l.in, l.frames = in, shepherd.NewDecoder(in)
	return nil
}

// Read implements io.Reader.
func (l *logReader) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next reads a frame, over a new connection if it has to.
func (l *logReader) next() error {
	for {
		var err error
		if l.in == nil {
			err = l.open()
		}
		if err == nil {
			l.absence.over()
			var f shepherd.Frame
			f, err = l.frames.Next()
			if err == nil {
				l.buffer = f.Append(l.buffer[:0])
				l.rest, l.offset = l.buffer, f.Offset+f.Size()
				return nil
			}
			if errors.Is(err, io.EOF) { // after a whole frame
				return io.EOF
			}
			_ = l.in.Close() // it is broken
			l.in = nil
			if l.ctx.Err() == nil && !isCut(err) {
				return &box.Error{Kind: box.Trouble, Code: "protocol", Message: "the log that the daemon sends: " + err.Error(),
					Fix: "weft and its daemon should be of one version"}
			}
			err = l.c.unreachable(l.ctx, err)
		}
		if err := l.absence.endure(l.ctx, err); err != nil {
			return err
		}
	}
}

// isCut says whether an error is that of a connection, not of what came over it.
func isCut(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// Close ends the reading.
func (l *logReader) Close() error {
	l.cancel()
	if l.in == nil {
		return nil
	}
	err := l.in.Close()
	if errors.Is(err, context.Canceled) {
		return nil // that is how it ends
	}
	return err
}
