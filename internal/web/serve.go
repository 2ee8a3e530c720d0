package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"weft.dev/weft/internal/box"
)

const (
	headerTime = 10 * time.Second // to say what is asked
	idleTime   = 2 * time.Minute
	farewell   = 2 * time.Second // for answers that are being written when the server ends
)

type callerKey struct{}

// callerOf is who asks.
func callerOf(ctx context.Context) box.Caller {
	caller, _ := ctx.Value(callerKey{}).(box.Caller)
	return caller
}

// Serve serves until ctx ends, then sees streams off and returns. It opens the listeners' sockets if they are not yet, and closes
// all. A Server serves once.
func (s *Server) Serve(ctx context.Context, l *Listeners) error {
	defer l.Close()
	if err := l.Open(); err != nil {
		return err
	}
	var wait sync.WaitGroup
	failed := make(chan error, 2)
	local := s.http(s.local())
	local.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if g, ok := conn.(*guest); ok {
			return context.WithValue(ctx, callerKey{}, g.caller)
		}
		return ctx
	}
	servers := []*http.Server{local}
	wait.Go(func() { failed <- local.Serve(&door{l.Unix, s.uid, newQuota(mostConns)}) })
	wait.Go(func() { s.serveInputs(l.Stdin) })
	if l.TCP != nil {
		far := s.http(s.gate(l.TCP.Addr()))
		servers = append(servers, far)
		wait.Go(func() { failed <- far.Serve(&crowd{l.TCP, newQuota(mostTCP)}) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.end()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	for _, server := range servers {
		wait.Go(func() {
			if server.Shutdown(leave) != nil {
				_ = server.Close() // who still reads is cut off
			}
		})
	}
	l.Close()
	wait.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// http is a server with the limits that all have.
func (s *Server) http(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
}

// local lets in who asks over the socket: anybody if the daemon is root's, else its own user.
func (s *Server) local() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := r.Context().Value(callerKey{}).(box.Caller)
		if err := s.admit(caller, ok); err != nil {
			s.refuse(w, err)
			return
		}
		s.api.ServeHTTP(w, r)
	})
}

// admit says why a caller is not served.
func (s *Server) admit(c box.Caller, known bool) error {
	switch {
	case !known:
		return &box.Error{Kind: box.Forbidden, Code: "unknown_caller", Message: "the kernel does not say who asks"}
	case s.uid != 0 && !c.Admin:
		return &box.Error{Kind: box.Forbidden, Code: "not_your_daemon", Message: "this daemon serves its own user only",
			Why: "only root can run jobs as others", Fix: "weft up, for one of your own; or ask root to run weft up"}
	}
	return nil
}
