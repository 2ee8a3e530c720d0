package web

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"time"

	"weft.dev/weft/internal/box"
)

// Of a log that is followed: how often its end is looked at.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// log sends the log of a job from an offset on, as it is on the disk. A stream that ends in good order has told all.
func (s *Server) log(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	id, err := idOf(r)
	if err != nil {
		return err
	}
	q := queryOf(r, "from", "follow")
	from, follow := q.whole("from", 0, math.MaxInt64, 0), q.flag("follow")
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
	t := &tail{path: path, offset: from}
	defer t.close()
	if !follow {
		done = func() bool { return true }
	}
	f := newFlow(w, "application/octet-stream")
	if err := s.follow(r, f, t, done); err != nil {
		s.o.Log.Debug("web", "log", id, "error", err)
		panic(http.ErrAbortHandler) // the reader must not take this for the end
	}
	return nil
}

var errCut = errors.New("cut off")

// follow copies a log until it is done. An error says that it is not told whole.
func (s *Server) follow(r *http.Request, f *flow, t *tail, done func() bool) error {
	pause := firstLook
	for {
		last := done() // before what there is is read
		n, err := t.copy(f)
		f.flush()
		switch {
		case err != nil:
			return err
		case f.err != nil:
			return f.err
		case n > 0:
			pause = firstLook
			if !last {
				break
			}
			continue
		case last:
			return nil
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastLook)
		case <-r.Context().Done():
			return errCut
		case <-s.life.Done():
			return errCut
		}
	}
}

// tail reads a file that grows, and may not be there yet.
type tail struct {
	path   string
	file   *os.File
	offset int64
}

// copy copies what there is.
func (t *tail) copy(out io.Writer) (int64, error) {
	if t.file == nil {
		file, err := os.Open(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		t.file = file
	}
	n, err := io.Copy(out, io.NewSectionReader(t.file, t.offset, math.MaxInt64-t.offset))
	t.offset += n
	return n, err
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close() // it was read
	}
}
