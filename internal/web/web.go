// Package web serves one shared machine over HTTP: the API and the page, on a socket of the machine for its users and, with a
// token, over TCP for a browser; figures for Prometheus; and a socket over which jobs get their input. It decides nothing: it
// asks a Box, and sees to it that nobody asks in another's name and nobody waits for a slow reader.
package web

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"time"

	"weft.dev/weft/internal/box"
)

// Jobs is what is asked about jobs. Errors are *box.Error.
type Jobs interface {
	Submit(c box.Caller, s box.Spec) ([]box.ID, error)
	Jobs(c box.Caller, all bool, user string) []box.Job
	Job(c box.Caller, id box.ID) (box.Job, error)
	Explain(c box.Caller, id box.ID) (box.Explanation, error)
	Stop(c box.Caller, id box.ID) (box.Job, error)
}

// Runs is what is asked while a job runs, by its user alone.
type Runs interface {
	// Wait returns the job once it is done, or as it is when ctx ends.
	Wait(ctx context.Context, c box.Caller, id box.ID) (box.Job, error)
	// Log says where the log is, which may not exist yet, and whether nothing more will be written.
	Log(c box.Caller, id box.ID) (path string, done func() bool, err error)
	// Stdin takes f over.
	Stdin(c box.Caller, id box.ID, f *os.File) error
}

// Machine is what is asked about the machine.
type Machine interface {
	GPUs() []box.GPU
	Drain(c box.Caller, gpu int, on bool) (box.GPU, error)
	Status() box.Status
	// Changed is closed at the next change of anything that a Box tells.
	Changed() <-chan struct{}
}

// Past is what is asked about what was.
type Past interface {
	Events(after uint64, since time.Time) []box.Event
	History(span time.Duration) box.History
	Figures() box.Figures
	// AgentMetrics is the agent's own series, as text for Prometheus.
	AgentMetrics() (string, error)
}

// Box is a machine.
type Box interface {
	Jobs
	Runs
	Machine
	Past
}

// Options are what a Server is told. The zero value serves the socket alone.
type Options struct {
	Token       string // for TCP; "" refuses all of it
	OpenMetrics bool   // /metrics needs no token
	Page        fs.FS  // files of the page; nil serves those that are built in
	Log         *slog.Logger
}

// Server serves a Box.
type Server struct {
	box     Box
	o       Options
	uid     int // of the daemon
	api     http.Handler
	metrics http.Handler
	page    *page
	states  states
	limits  limits
	life    context.Context // ends when the server is about to
	end     context.CancelFunc
}

// New is a server of a machine. It reads and listens to nothing yet.
func New(b Box, o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Page == nil {
		o.Page = built()
	}
	s := &Server{box: b, o: o, uid: os.Geteuid(), page: newPage(o.Page), limits: newLimits(), metrics: newMetrics(b, o.Log)}
	s.life, s.end = context.WithCancel(context.Background())
	s.api = s.routes()
	return s
}
