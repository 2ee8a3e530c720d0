package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weft.dev/weft/internal/box"
)

// longestLine is the most bytes of one line of a stream: the state of a machine with thousands of jobs.
const longestLine = 64 << 20

// Events yields events after a number, and not older than since (0 for all), oldest first; with follow, also those to come.
// An error ends it.
func (c *Client) Events(ctx context.Context, after uint64, since time.Duration, follow bool) iter.Seq2[box.Event, error] {
	return func(yield func(box.Event, error) bool) {
		query := url.Values{}
		if since > 0 {
			query.Set("since", since.String())
		}
		if follow {
			query.Set("follow", "1")
		}
		c.lines(ctx, "/v1/events", func() url.Values {
			query.Set("after", strconv.FormatUint(after, 10))
			return query
		}, follow, func(line []byte, err error) bool {
			var e box.Event
			if err == nil && len(line) == 0 {
				return true // a heartbeat
			}
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				yield(e, err)
				return false
			}
			after = e.Seq
			query.Del("since")
			return yield(e, nil)
		})
	}
}

// Update is a message of the stream: one of both is there.
type Update struct {
	State *State
	Event *box.Event
}

// Stream yields the state of the machine at once, then each second in which something changed, and events as they happen.
// An error ends it.
func (c *Client) Stream(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		name, query := "", url.Values{}
		c.lines(ctx, "/v1/stream", func() url.Values { return query }, true, func(line []byte, err error) bool {
			if err != nil {
				yield(Update{}, err)
				return false
			}
			key, value, _ := bytes.Cut(line, []byte(": "))
			switch string(key) {
			case "id":
				query.Set("after", string(value))
			case "event":
				name = string(value)
			case "data":
				u, err := update(name, value)
				if err != nil {
					yield(u, err)
					return false
				}
				return u == (Update{}) || yield(u, nil)
			}
			return true
		})
	}
}

// update decodes a message. It is empty for one that a later version may send.
func update(name string, data []byte) (Update, error) {
	var u Update
	var err error
	switch name {
	case "state":
		u.State = new(State)
		err = json.Unmarshal(data, u.State)
	case "event":
		u.Event = new(box.Event)
		err = json.Unmarshal(data, u.Event)
	}
	if err != nil {
		return Update{}, fmt.Errorf("the daemon's stream: %w", err)
	}
	return u, nil
}

// lines reads the lines of an answer, over as many connections as it takes. each is called with an error at most once, and
// says whether to go on.
func (c *Client) lines(ctx context.Context, path string, query func() url.Values, follow bool, each func([]byte, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := absence{c: c}
	for {
		in, err := c.open(ctx, http.MethodGet, path, query(), nil)
		if err == nil {
			a.over()
			more, broken := scan(in, each)
			_ = in.Close() // it is read, or broken
			if !more || broken == nil && !follow {
				return
			}
			if broken == nil {
				broken = io.ErrUnexpectedEOF // what is followed has no end
			}
			err = c.unreachable(ctx, broken)
		}
		if err := a.endure(ctx, err); err != nil {
			each(nil, err)
			return
		}
	}
}

// scan calls each for every whole line.
func scan(in io.Reader, each func([]byte, error) bool) (more bool, err error) {
	lines := bufio.NewReaderSize(in, 1<<16)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			if !each(bytes.TrimRight(line, "\r\n"), nil) {
				return false, nil
			}
			line = line[:0]
		case errors.Is(err, io.EOF):
			return true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return true, err
		case len(line) > longestLine:
			return true, fmt.Errorf("a line of more than %d bytes", longestLine)
		}
	}
}
