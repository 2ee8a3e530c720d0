package web

import (
	"net/http"
	"time"
)

// readTime is how long a reader of a stream may take for a piece before it is let go.
const readTime = 10 * time.Second

// flow writes a stream. The first error ends it.
type flow struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pending bool
	err     error
}

// newFlow begins a stream: the header goes out at once.
func newFlow(w http.ResponseWriter, kind string) *flow {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	f := &flow{w: w, control: http.NewResponseController(w), pending: true}
	f.flush()
	return f
}

// Write implements io.Writer.
func (f *flow) Write(data []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	_ = f.control.SetWriteDeadline(time.Now().Add(readTime)) // a writer of tests has none
	n, err := f.w.Write(data)
	f.err, f.pending = err, true
	return n, err
}

// flush sends what is written.
func (f *flow) flush() {
	if f.err == nil && f.pending {
		_ = f.control.SetWriteDeadline(time.Now().Add(readTime)) // likewise
		f.err = f.control.Flush()
		f.pending = false
	}
}
