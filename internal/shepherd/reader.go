package shepherd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/unit"
)

// How a log is read.
const (
	chunk = 4 * (headerSize + mostBytes) // bytes in memory: room for a whole frame
	pause = 50 * time.Millisecond        // between looks for more
)

// Log reads the log of a job, also while it is written. Where a part was dropped it says so in a frame of the stream weft.
// Frames that a crash tore are passed over. It is for one goroutine.
type Log struct {
	path string
	at   int64 // offset of the next frame

	file   *os.File // of the segment that at is in
	start  int64    // of that segment
	buffer []byte   // what was read from at on
	space  []byte
}

// Open opens a log. One that nothing was written to yet is empty.
func Open(path string) (*Log, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is no log", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &Log{path: path}, nil
}

// Close lets the files go.
func (l *Log) Close() error {
	l.buffer = nil
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Offset is where the next frame begins: what SeekTo takes to go on from there.
func (l *Log) Offset() int64 { return l.at }

// SeekTo goes to an offset. Within a frame, it is the next one that is read; beyond the end, what will be written there.
func (l *Log) SeekTo(offset int64) {
	_ = l.Close() // only read from
	l.at = max(0, offset)
}

// Next is the next frame; its bytes are valid until the next call. io.EOF says that there is none yet: it may be asked again.
func (l *Log) Next() (Frame, error) {
	for {
		f, err := l.here()
		if err == nil || !errors.Is(err, io.EOF) {
			return f, err
		}
		list, err := segments(l.path)
		if errors.Is(err, fs.ErrNotExist) {
			return Frame{}, io.EOF
		}
		if err != nil {
			return Frame{}, err
		}
		// A segment that has a successor is finished, but it may have grown since it was read.
		if f, err := l.here(); err == nil || !errors.Is(err, io.EOF) {
			return f, err
		}
		note, moved, err := l.advance(list)
		if err != nil || note.Bytes != nil {
			return note, err
		}
		if !moved {
			return Frame{}, io.EOF
		}
	}
}

// advance goes to the segment after the one that was read to its end. What is missing between the two is told.
func (l *Log) advance(list []segment) (note Frame, moved bool, err error) {
	for i, s := range list {
		inside := l.file == nil && s.start <= l.at && (i+1 == len(list) || l.at < list[i+1].start)
		later := s.start > l.at || l.file != nil && s.start > l.start
		if !inside && !later {
			continue
		}
		f, err := os.Open(filepath.Join(l.path, s.name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // dropped meanwhile
		}
		if err != nil {
			return Frame{}, false, err
		}
		return l.enter(f, s.start), true, nil
	}
	return Frame{}, false, nil
}

func (l *Log) enter(f *os.File, start int64) Frame {
	from, end := l.at, l.at
	if l.file != nil {
		if info, err := l.file.Stat(); err == nil {
			end = max(end, l.start+info.Size()) // behind the last frame there may be a torn one
		}
	}
	_ = l.Close() // only read from
	l.file, l.start, l.at = f, start, max(l.at, start)
	if start <= end {
		return Frame{}
	}
	return Frame{Stream: Weft, Time: time.Now(), Offset: from,
		Bytes: fmt.Appendf(nil, "%s of output are no longer kept\n", unit.Bytes(start-end))}
}

// here is the next frame of the segment that is open.
func (l *Log) here() (Frame, error) {
	if l.file == nil {
		return Frame{}, io.EOF
	}
	for scanned := false; ; scanned = true {
		f, err := parse(l.buffer)
		if err == nil && f.Offset == l.at {
			l.at += f.Size()
			l.buffer = l.buffer[f.Size():]
			return f, nil
		}
		if !scanned {
			if err := l.fill(l.at); err != nil {
				return Frame{}, err
			}
			continue
		}
		if !l.find() {
			l.buffer = nil // what is there may yet be completed
			return Frame{}, io.EOF
		}
	}
}

// fill reads from an offset on.
func (l *Log) fill(at int64) error {
	if l.space == nil {
		l.space = make([]byte, chunk)
	}
	n, err := l.file.ReadAt(l.space, at-l.start)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l.buffer = l.space[:n]
	return nil
}

// find looks for the next frame behind something that is none, in the rest of the segment. A frame tells its own offset, so
// that nothing else is taken for one. It leaves the reader where it was when there is none.
func (l *Log) find() bool {
	for at := l.at + 1; ; {
		if l.fill(at) != nil || len(l.buffer) < headerSize {
			return false
		}
		for i := range len(l.buffer) - headerSize + 1 {
			f, err := parse(l.buffer[i:])
			if err == nil && f.Offset == at+int64(i) {
				l.at, l.buffer = f.Offset, l.buffer[i:]
				return true
			}
		}
		if len(l.buffer) < chunk {
			return false
		}
		at += chunk - headerSize - mostBytes + 1
	}
}

// Follow is the next frame, waited for. It ends with io.EOF when done says that nothing more is written and all was read.
func (l *Log) Follow(ctx context.Context, done func() bool) (Frame, error) {
	for {
		last := done()
		f, err := l.Next()
		if err == nil || !errors.Is(err, io.EOF) || last {
			return f, err
		}
		select {
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}
