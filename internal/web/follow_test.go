package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/web/client"
)

// texts reads frames until the end and joins what they say.
func texts(in io.Reader) (string, error) {
	var all strings.Builder
	for d := shepherd.NewDecoder(in); ; {
		f, err := d.Next()
		if errors.Is(err, io.EOF) {
			return all.String(), nil
		}
		if err != nil {
			return all.String(), err
		}
		all.Write(f.Bytes)
	}
}

// TestFollowersSurviveRestarts takes the server down and up under everything that follows a job.
func TestFollowersSurviveRestarts(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	var away, back atomic.Int32
	c.Away = func(gone bool) {
		if gone {
			away.Add(1)
		} else {
			back.Add(1)
		}
	}
	id := submit(t, c, "a")
	m.run(id, 0)
	var wait sync.WaitGroup
	wait.Go(func() {
		if job, err := c.Wait(t.Context(), id); err != nil || job.State != box.Done {
			t.Errorf("wait: %+v, %v", job, err)
		}
	})
	wait.Go(func() {
		var states []box.State
		for job, err := range c.Watch(t.Context(), id) {
			if err != nil {
				t.Errorf("watch: %v", err)
			}
			states = append(states, job.State)
		}
		if fmt.Sprint(states) != "[running done]" {
			t.Errorf("watch: %v", states)
		}
	})
	log, err := c.Log(t.Context(), id, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var printed string
	wait.Go(func() {
		var err error
		if printed, err = texts(log); err != nil {
			t.Errorf("log: %v", err)
		}
		_ = log.Close()
	})
	var seqs []uint64
	wait.Go(func() {
		for e, err := range c.Events(t.Context(), 0, time.Hour, true) {
			if err != nil {
				t.Errorf("events: %v", err)
			}
			if seqs = append(seqs, e.Seq); e.Type == box.EventEnded {
				return
			}
		}
	})
	streamed := 0
	wait.Go(func() {
		for u, err := range c.Stream(t.Context()) {
			if err != nil {
				t.Errorf("stream: %v", err)
			}
			if streamed++; u.Event != nil && u.Event.Type == box.EventEnded {
				return
			}
		}
	})
	want, end := "", int64(0)
	for i := range 4 {
		line := fmt.Sprintf("line %d\n", i)
		want += line
		end = m.print(t, id, end, line)
		time.Sleep(60 * time.Millisecond)
		s.down()
		line = fmt.Sprintf("away %d\n", i)
		want += line
		end = m.print(t, id, end, line)
		time.Sleep(60 * time.Millisecond)
		s.up()
		time.Sleep(100 * time.Millisecond)
	}
	s.down()
	m.print(t, id, end, "last\n")
	m.finish(id)
	s.up()
	wait.Wait()
	if printed != want+"last\n" {
		t.Errorf("log:\n%swant:\n%slast\n", printed, want)
	}
	if fmt.Sprint(seqs) != "[1 2 3]" {
		t.Errorf("events: %v", seqs)
	}
	if streamed < 2 {
		t.Errorf("%d messages of the stream", streamed)
	}
	if away.Load() == 0 || away.Load() != back.Load() {
		t.Errorf("away %d times, back %d times", away.Load(), back.Load())
	}
}

// TestBeginsWhileAway begins to follow a job while the server is away, as one does whose job was just accepted.
func TestBeginsWhileAway(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	gone := make(chan struct{})
	c.Away = func(away bool) {
		if away {
			close(gone)
		}
	}
	id := submit(t, c, "a")
	m.print(t, id, 0, "all of it\n")
	m.finish(id)
	s.down()
	var wait sync.WaitGroup
	wait.Go(func() {
		log, err := c.Log(t.Context(), id, 0, true)
		if err != nil {
			t.Errorf("log: %v", err)
			return
		}
		defer func() { _ = log.Close() }()
		if printed, err := texts(log); err != nil || printed != "all of it\n" {
			t.Errorf("log: %q, %v", printed, err)
		}
	})
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("it does not wait")
	}
	s.up()
	wait.Wait()
}

func TestPatience(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	c.Patience = 200 * time.Millisecond
	id := submit(t, c, "a")
	log, err := c.Log(t.Context(), id, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.down()
	var gone *client.UnreachableError
	if _, err := c.Wait(t.Context(), id); !errors.As(err, &gone) {
		t.Errorf("wait: %v", err)
	}
	if _, err := texts(log); !errors.As(err, &gone) {
		t.Errorf("log: %v", err)
	}
	for _, err := range c.Events(t.Context(), 0, 0, true) {
		if !errors.As(err, &gone) {
			t.Errorf("events: %v", err)
		}
	}
	if _, err := c.Submit(t.Context(), box.Spec{}); !errors.As(err, &gone) || gone.Sent {
		t.Errorf("submit: %v", err)
	}
	if err := c.Stdin(t.Context(), id, os.Stdin); !errors.As(err, &gone) {
		t.Errorf("stdin: %v", err)
	}
	c.Patience = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that is given up: %v", err)
	}
}

func TestLogs(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	id := submit(t, c, "a")
	read := func(from int64) string {
		in, err := c.Log(t.Context(), id, from, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close() }()
		text, err := texts(in)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	if got := read(0) + read(-5); got != "" {
		t.Errorf("a log that is not there yet: %q", got)
	}
	var ends []int64
	end := int64(0)
	for i := range 9 {
		end = m.print(t, id, end, fmt.Sprint(i))
		ends = append(ends, end)
	}
	for from, want := range map[int64]string{
		0: "012345678", ends[0]: "12345678", ends[0] + 1: "2345678", ends[7]: "8", ends[8]: "", ends[8] + 1000: "",
		-1: "", -(ends[8] - ends[7]): "8", -(ends[8] - ends[5]) - 1: "678", -1 << 30: "012345678",
	} {
		if got := read(from); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
	followed, err := c.Log(t.Context(), id, ends[7], true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = followed.Close() }()
	go func() {
		time.Sleep(50 * time.Millisecond)
		m.print(t, id, ends[8], "!")
		m.finish(id)
	}()
	if text, err := texts(followed); err != nil || text != "8!" {
		t.Errorf("followed: %q, %v", text, err)
	}
}

func TestStdin(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	id := submit(t, c, "a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := c.Stdin(t.Context(), id, r); err != nil {
		t.Error(err)
	}
	if _, err := r.Stat(); err != nil {
		t.Errorf("the caller's own descriptor: %v", err)
	}
	_ = r.Close()
	if m.inputs[id] != "hello" {
		t.Errorf("the job reads %q", m.inputs[id])
	}
	var refusal *box.Error
	if err := c.Stdin(t.Context(), 99, os.Stdin); !errors.As(err, &refusal) || refusal.Code != "no_job" {
		t.Errorf("no such job: %v", err)
	}
}

// TestHostileInputs sends what no client does. No descriptor may stay open.
func TestHostileInputs(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	submit(t, s.client(), "a")
	before := countFiles(t)
	send := func(line string, files ...int) string {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.state + "/" + client.StdinName, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var rights []byte
		if len(files) > 0 {
			rights = syscall.UnixRights(files...)
		}
		if _, _, err := conn.WriteMsgUnix([]byte(line), rights, nil); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		answer, _ := bufio.NewReader(conn).ReadString('\n')
		return answer
	}
	for _, c := range []struct {
		line  string
		files []int
		want  string
	}{
		{"{\"job\":1}\n", nil, "0 descriptors"},
		{"{\"job\":1}\n", []int{0, 1}, "more than one"},
		{"{\"job\":1}\n", []int{0, 1, 2, 0, 1, 2, 0, 1, 2}, "more than one"},
		{"{\"job\":1}", []int{0}, "no whole request"},
		{"{\"job\":-1}\n", []int{0}, "no request"},
		{"no\n", []int{0}, "no request"},
		{strings.Repeat("x", 1000) + "\n", []int{0}, "no whole request"},
		{"\n", []int{0}, "no request"},
	} {
		if got := send(c.line, c.files...); !strings.Contains(got, c.want) {
			t.Errorf("%q with %d files: %q, want %q", c.line, len(c.files), got, c.want)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for countFiles(t) > before+2 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := countFiles(t); after > before+2 { // connections of the client may have come
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func countFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// raw opens a connection and asks without ever reading.
func (s *site) raw(path string) *net.UnixConn {
	s.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.state + "/" + client.SocketName, Net: "unix"})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: weft\r\n\r\n", path); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// TestManyStreams has 200 readers of the stream beside some that never read, on a machine that changes all the time.
func TestManyStreams(t *testing.T) {
	const readers, deaf, jobs = 200, 8, 30
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	for i := range jobs {
		submit(t, c, fmt.Sprint("job", i))
	}
	for range deaf {
		conn := s.raw("/v1/stream")
		t.Cleanup(func() { _ = conn.Close() })
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wait sync.WaitGroup
	var heard, states atomic.Int32
	began := time.Now()
	for range readers {
		wait.Go(func() {
			own := s.client()
			seen := 0
			for u, err := range own.Stream(ctx) {
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Errorf("stream: %v", err)
					return
				}
				if u.State != nil {
					if states.Add(1); len(u.State.Jobs) != jobs {
						t.Errorf("%d jobs", len(u.State.Jobs))
					}
					if seen++; seen == 2 {
						heard.Add(1)
					}
				}
			}
		})
	}
	for time.Since(began) < time.Minute && heard.Load() < readers {
		m.change(func() {})
		time.Sleep(10 * time.Millisecond)
	}
	if heard.Load() < readers {
		t.Errorf("%d of %d readers heard of a change", heard.Load(), readers)
	}
	if most := int32(readers) * int32(2+time.Since(began)/time.Second); states.Load() > most {
		t.Errorf("%d states, at most %d", states.Load(), most)
	}
	asked := time.Now()
	if _, err := c.Status(t.Context()); err != nil || time.Since(asked) > 20*time.Second { // a race detector's 200 readers are slow
		t.Errorf("a question beside them: %v, %v", err, time.Since(asked))
	}
	cancel()
	wait.Wait()
}

// TestTooManyStreams holds the limit, and that those who leave make room.
func TestTooManyStreams(t *testing.T) {
	s := newSite(t, newMemory(t))
	var open []net.Conn
	for range mostStreams {
		open = append(open, s.raw("/v1/stream"))
	}
	status := func() int {
		conn := s.raw("/v1/events")
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	until := func(want int) {
		t.Helper()
		got := 0
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && got != want; time.Sleep(10 * time.Millisecond) {
			got = status()
		}
		if got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	until(http.StatusServiceUnavailable)
	for _, conn := range open {
		_ = conn.Close()
	}
	until(http.StatusOK)
}

func TestQuota(t *testing.T) {
	q := newQuota(4)
	for i, c := range []struct {
		uid   int
		admin bool
		want  bool
	}{{1, false, true}, {1, false, true}, {1, false, false}, {2, false, true}, {0, true, true}, {0, true, false}, {2, false, false}} {
		if got := q.enter(c.uid, c.admin); got != c.want {
			t.Errorf("%d: user %d enters: %v", i, c.uid, got)
		}
	}
	q.leave(1)
	if !q.enter(3, false) || q.enter(3, false) {
		t.Error("one left, one may enter")
	}
	for _, uid := range []int{1, 2, 0, 3} {
		q.leave(uid)
	}
	if q.all != 0 || len(q.of) != 0 {
		t.Errorf("what is left: %d, %v", q.all, q.of)
	}
}

// TestStreamMessages reads the stream as it is written.
func TestStreamMessages(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	c := s.client()
	submit(t, c, "a")
	read := func(path string, lines int) string {
		conn := s.raw(path)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = conn.Close(), answer.Body.Close() }() // in this order: a body reads to its end
		if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("type %q", kind)
		}
		var all strings.Builder
		in := bufio.NewScanner(answer.Body)
		for ; lines > 0 && in.Scan(); lines-- {
			all.WriteString(in.Text() + "\n")
		}
		return all.String()
	}
	if got := read("/v1/stream", 5); !strings.HasPrefix(got, "id: 1\n\nevent: state\ndata: {\"status\":{") || !strings.HasSuffix(got, "}\n\n") {
		t.Errorf("the first message: %q", got)
	}
	if got := read("/v1/stream?after=0", 6); !strings.HasPrefix(got, "id: 0\n\nid: 1\nevent: event\ndata: {\"seq\":1,") {
		t.Errorf("events from the start: %q", got)
	}
	if got := read("/v1/stream", 7); !strings.Contains(got, "\n\n:\n") {
		t.Errorf("no heartbeat in a quiet stream: %q", got)
	}
}
