package web

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
)

// Of a log that is followed: how often its end is looked at.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// mostTail is the most bytes before the end that a reader may ask for.
const mostTail = 1 << 40

// log sends the frames of a job's log from an offset on, from the next frame if it is within one; a negative offset counts from
// the end. A stream that ends in good order has told all.
func (s *Server) log(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	id, err := idOf(r)
	if err != nil {
		return err
	}
	q := queryOf(r, "from", "follow")
	from, follow := q.whole("from", -mostTail, math.MaxInt64, 0), q.flag("follow")
	if q.err != nil {
		return q.err
	}
	path, done, err := s.box.Log(c, id)
	if err != nil {
		return err
	}
	if !s.limits.logs.enter(c.UID, c.Admin) {
		return errBusy
	}
	defer s.limits.logs.leave(c.UID)
	in, err := openLog(path, from)
	if err != nil {
		return fmt.Errorf("the log of job %s: %w", id, err)
	}
	defer func() { _ = in.Close() }() // it was read from
	if !follow {
		done = func() bool { return true }
	}
	f := newFlow(w, "application/octet-stream")
	if err := s.follow(r, f, in, done); err != nil {
		s.o.Log.Debug("web", "log", id, "error", err)
		panic(http.ErrAbortHandler) // the reader must not take this for the end
	}
	return nil
}

// openLog opens a log at an offset.
func openLog(path string, from int64) (*shepherd.Log, error) {
	if from < 0 {
		end, err := shepherd.End(path)
		if err != nil {
			return nil, err
		}
		from = max(0, end+from)
	}
	in, err := shepherd.Open(path)
	if err == nil {
		in.SeekTo(from)
	}
	return in, err
}

var errCut = errors.New("cut off")

// follow copies a log until it is done. An error says that it is not told whole.
func (s *Server) follow(r *http.Request, f *flow, in *shepherd.Log, done func() bool) error {
	var buffer []byte
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		last := done() // before what there is is read
		for {
			frame, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			buffer = frame.Append(buffer[:0])
			if _, err := f.Write(buffer); err != nil {
				return err
			}
			pause = firstLook / 2
		}
		f.flush()
		if last || f.err != nil {
			return f.err
		}
		select {
		case <-time.After(max(pause, firstLook)):
		case <-r.Context().Done():
			return errCut
		case <-s.life.Done():
			return errCut
		}
	}
}
