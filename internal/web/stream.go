package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

const (
	heartbeat   = 2 * time.Second // of a stream: who hears nothing for 5 s takes it for dead
	lineBeat    = 5 * time.Second // of events as lines
	freshTime   = 500 * time.Millisecond
	keepTime    = time.Minute
	mostSeconds = 60 // between two states
)

// snapshot is the machine as one caller may see it, encoded. It is never changed.
type snapshot struct {
	data    []byte // a message of the stream
	at      time.Time
	changed <-chan struct{} // closed when it is out of date
}

// states keeps the latest snapshot of each user, so that many streams cost the work of one.
type states struct {
	mu sync.Mutex
	of map[int]*snapshot // by user; administrators are one, everybody
}

const everybody = -1

// get is a snapshot that is up to date, or less than freshTime old.
func (s *states) get(b Box, c box.Caller) (*snapshot, error) {
	key := c.UID
	if c.Admin {
		key = everybody
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last := s.of[key]; last != nil && (now.Sub(last.at) < freshTime || !isClosed(last.changed)) {
		return last, nil
	}
	changed := b.Changed() // first: what changes while the rest is read is told next time
	data, err := json.Marshal(client.State{Status: b.Status(), Jobs: some(b.Jobs(c, false, "")), GPUs: some(b.GPUs())})
	if err != nil {
		return nil, err
	}
	if s.of == nil {
		s.of = map[int]*snapshot{}
	}
	for k, old := range s.of {
		if now.Sub(old.at) > keepTime {
			delete(s.of, k)
		}
	}
	last := &snapshot{fmt.Appendf(nil, "event: state\ndata: %s\n\n", data), now, changed}
	s.of[key] = last
	return last, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stream sends the state at once, then when something changed, and events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	q := queryOf(r, "after", "interval_s")
	after, interval := q.number("after"), time.Duration(q.whole("interval_s", 1, mostSeconds, 1))*time.Second
	if q.err != nil {
		return q.err
	}
	if q.text("after") == "" {
		after = s.last(r)
	}
	if !s.limits.streams.enter(c.UID, c.Admin) {
		return errBusy
	}
	defer s.limits.streams.leave(c.UID)
	f := newFlow(w, "text/event-stream")
	_, _ = fmt.Fprintf(f, "id: %d\n\n", after) // kept; who is cut off before the first event knows where to go on
	var shown *snapshot
	for f.err == nil {
		for _, e := range s.box.Events(after, time.Time{}) {
			after = e.Seq
			if data, err := json.Marshal(e); err == nil {
				_, _ = fmt.Fprintf(f, "id: %d\nevent: event\ndata: %s\n\n", e.Seq, data) // kept
			}
		}
		now, err := s.states.get(s.box, c)
		if err != nil {
			s.o.Log.Error("web", "error", err)
			return nil
		}
		if now != shown {
			_, _ = f.Write(now.data) // kept
			shown = now
		}
		f.flush()
		if !s.rest(r, f, interval, nil) || !s.rest(r, f, 0, shown.changed) {
			return nil
		}
	}
	return nil
}

// rest waits for a time, then until something changes, with heartbeats. It says whether to go on.
func (s *Server) rest(r *http.Request, f *flow, least time.Duration, changed <-chan struct{}) bool {
	over := changed
	if changed == nil {
		ctx := make(chan struct{})
		defer time.AfterFunc(least, func() { close(ctx) }).Stop()
		over = ctx
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for f.err == nil {
		select {
		case <-over:
			return true
		case <-beat.C:
			_, _ = f.Write([]byte(":\n\n")) // kept
			f.flush()
		case <-r.Context().Done():
			return false
		case <-s.life.Done():
			return false
		}
	}
	return false
}

// last is the number of the latest event that a new reader of the stream has no need of.
func (s *Server) last(r *http.Request) uint64 {
	if n, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		return n
	}
	events := s.box.Events(0, time.Time{})
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Seq
}

// events sends events as lines, oldest first.
func (s *Server) events(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	q := queryOf(r, "after", "since", "follow")
	after, since, follow := q.number("after"), q.ago("since", time.Now()), q.flag("follow")
	if q.err != nil {
		return q.err
	}
	if !s.limits.streams.enter(c.UID, c.Admin) {
		return errBusy
	}
	defer s.limits.streams.leave(c.UID)
	f := newFlow(w, "application/x-ndjson")
	out := json.NewEncoder(f)
	beat := time.NewTicker(lineBeat)
	defer beat.Stop()
	for f.err == nil {
		changed := s.box.Changed()
		for _, e := range s.box.Events(after, since) {
			after = e.Seq
			_ = out.Encode(e) // kept
		}
		f.flush()
		if !follow {
			return nil
		}
		select {
		case <-changed:
		case <-beat.C:
			_, _ = f.Write([]byte("\n")) // kept
		case <-r.Context().Done():
			return nil
		case <-s.life.Done():
			return nil
		}
	}
	return nil
}
