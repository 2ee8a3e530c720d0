package shepherd

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/unit"
)

// Bounds of a log.
const (
	defaultLimit = 256 * unit.MiB
	leastLimit   = 64 * unit.KiB
	mostSegment  = 16 * unit.MiB
	perLog       = 16                     // segments that a log has room for
	retry        = 100 * time.Millisecond // before a disk that took nothing is tried again
)

// writer appends to the log of a job. It never fails: what cannot be written is counted, and said once there is room.
type writer struct {
	path    string
	limit   int64
	segment int64 // most bytes of one
	clock   func() time.Time

	file    *os.File  // of the last of kept; nil when it is to be opened
	kept    []segment // in order
	buffer  []byte
	lost    int64 // bytes of output not written since the last frame
	why     error
	next    time.Time // not before then is the disk tried again
	dropped int64     // bytes of output that are gone, rotated away or never written
}

// appendLog continues a log, or begins one. An attempt has segments of its own, so that nothing is written behind a frame
// that an earlier one could not finish.
func appendLog(path string, limit unit.Bytes) *writer {
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = max(limit, leastLimit)
	return &writer{path: path, limit: int64(limit), segment: int64(min(limit/perLog, mostSegment)), clock: time.Now}
}

// write appends what was read from a stream.
func (w *writer) write(s Stream, b []byte) {
	for most := int(min(mostBytes, w.segment-headerSize)); len(b) > 0; {
		n := min(len(b), most)
		w.add(s, b[:n])
		b = b[n:]
	}
}

func (w *writer) add(s Stream, b []byte) {
	now := w.clock()
	if w.lost > 0 && now.Before(w.next) {
		w.lose(b)
		return
	}
	if w.lost > 0 {
		note := fmt.Appendf(nil, "%s of output were lost: %v\n", unit.Bytes(w.lost), w.why)
		if err := w.append(Weft, now, note); err != nil {
			w.fail(now, err, b)
			return
		}
		w.lost = 0
	}
	if err := w.append(s, now, b); err != nil {
		w.fail(now, err, b)
	}
}

func (w *writer) fail(now time.Time, err error, b []byte) {
	w.why, w.next = cause(err), now.Add(retry)
	w.lose(b)
}

func (w *writer) lose(b []byte) {
	w.lost += int64(len(b))
	w.dropped += int64(len(b))
}

// append writes one frame whole, or not at all.
func (w *writer) append(s Stream, now time.Time, b []byte) error {
	if err := w.room(headerSize + int64(len(b))); err != nil {
		return err
	}
	last := &w.kept[len(w.kept)-1]
	f := Frame{Stream: s, Time: now, Offset: last.end(), Bytes: b}
	w.buffer = f.Append(w.buffer[:0])
	n, err := w.file.WriteAt(w.buffer, last.size)
	if err == nil {
		last.size += int64(n)
		return nil
	}
	if w.file.Truncate(last.size) != nil {
		last.size += int64(n) // a torn frame: readers pass over it
		w.shut()
	}
	return err
}

// room makes the last segment one that takes so many bytes more.
func (w *writer) room(size int64) error {
	if w.file != nil && w.kept[len(w.kept)-1].size+size <= w.segment {
		return nil
	}
	if w.kept == nil {
		if err := os.Mkdir(w.path, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
		list, err := segments(w.path)
		if err != nil {
			return err
		}
		w.kept = list
	}
	w.rotate(w.segment)
	next := segment{}
	if len(w.kept) > 0 {
		next.start = w.kept[len(w.kept)-1].end()
		if w.kept[len(w.kept)-1].size == 0 {
			w.kept = w.kept[:len(w.kept)-1] // nothing was ever written to it
		}
	}
	f, err := os.OpenFile(filepath.Join(w.path, next.name()), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	w.shut()
	w.file, w.kept = f, append(w.kept, next)
	return nil
}

// rotate drops the oldest segments but the first until there is room for so many bytes.
func (w *writer) rotate(size int64) {
	total := size
	for _, s := range w.kept {
		total += s.size
	}
	for total > w.limit && len(w.kept) > 1 {
		gone := w.kept[1]
		if err := os.Remove(filepath.Join(w.path, gone.name())); err != nil && !os.IsNotExist(err) {
			return // it is tried again with the next segment
		}
		w.dropped += gone.size
		total -= gone.size
		w.kept = append(w.kept[:1], w.kept[2:]...)
	}
}

func (w *writer) shut() {
	if w.file != nil {
		_ = w.file.Close() // written through: nothing is pending
		w.file = nil
	}
}

// close says what was lost, if it can be said now.
func (w *writer) close() {
	if w.lost > 0 {
		w.next = time.Time{}
		w.add(Weft, nil)
	}
	w.shut()
}
