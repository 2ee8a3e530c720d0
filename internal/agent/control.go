package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ControlName is the socket in the agent's folder over which it is asked: a line of JSON each way. Only root and the agent's
// own user may.
const ControlName = "control.sock"

// Request is a question to the agent.
type Request struct {
	Op    string `json:"op"`
	Spec  *Spec  `json:"spec,omitempty"`  // of allocate
	ID    uint64 `json:"id,omitempty"`    // of release
	After int    `json:"after,omitempty"` // of events: those after so many
}

// Operations of requests.
const (
	OpAllocate = "allocate"
	OpRelease  = "release"
	OpList     = "list" // jobs alone
	OpStats    = "stats"
	OpEvents   = "events"
	OpGPUs     = "gpus"
	OpMetrics  = "metrics"
)

// Response is the answer.
type Response struct {
	Error   *RefusalError `json:"error,omitempty"`
	ID      uint64        `json:"id,omitempty"`     // of the allocation
	Dir     string        `json:"dir,omitempty"`    // its folder
	Socket  string        `json:"socket,omitempty"` // its socket
	Stats   *Stats        `json:"stats,omitempty"`
	Jobs    []Job         `json:"jobs,omitempty"`
	GPUs    []GPUState    `json:"gpus,omitempty"`
	Events  []Event       `json:"events,omitempty"`
	Count   int           `json:"count,omitempty"` // of events ever
	Metrics string        `json:"metrics,omitempty"`
}

// control serves the control socket: a goroutine for each connection.
type control struct {
	a        *Agent
	listener *net.UnixListener

	mu    sync.Mutex
	conns map[*net.UnixConn]struct{} // nil once closed
	wait  sync.WaitGroup
}

const (
	mostControls = 64 // connections at once
	longestLine  = 1 << 16
)

func listenControl(a *Agent) (*control, error) {
	path := filepath.Join(a.o.Dir, ControlName)
	_ = os.Remove(path) // if it is there, nobody listens on it: the folder is locked
	mask := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &control{a: a, listener: l, conns: map[*net.UnixConn]struct{}{}}, nil
}

// serve accepts connections until close.
func (c *control) serve(ctx context.Context) {
	for {
		conn, err := c.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			c.wait.Wait()
			return
		case err != nil: // no descriptors are left, perhaps
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		case !c.enter(conn):
			_ = conn.Close() // it is refused
			continue
		}
		go func() {
			defer c.leave(conn)
			if user, ok := allowed(conn); ok {
				c.talk(ctx, conn)
			} else {
				turnAway(conn, user)
			}
		}()
	}
}

func (c *control) enter(conn *net.UnixConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil || len(c.conns) >= mostControls {
		return false
	}
	c.conns[conn] = struct{}{}
	c.wait.Add(1)
	return true
}

func (c *control) leave(conn *net.UnixConn) {
	c.mu.Lock()
	delete(c.conns, conn)
	c.mu.Unlock()
	_ = conn.Close() // all that was to be said is said
	c.wait.Done()
}

// close ends all connections. It may be called twice.
func (c *control) close() {
	_ = c.listener.Close() // it may be closed
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close() // its goroutine sees that
	}
	c.conns = nil
}

// allowed says which user is behind a connection, and whether that is root or the agent's own, whatever the file's mode.
func allowed(conn *net.UnixConn) (user int, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nobody.uid, false
	}
	user = nobody.uid
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			user, ok = int(cred.Uid), cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
		}
	})
	return user, ok && err == nil
}

// turnAway answers the question of a user who may not ask, if it comes at once.
func turnAway(conn *net.UnixConn, user int) {
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return
	}
	var line [longestLine]byte
	if _, err := conn.Read(line[:]); err != nil { // a connection that closes on what was not read is reset
		return
	}
	_ = json.NewEncoder(conn).Encode(Response{Error: &RefusalError{Code: "user", Message: fmt.Sprintf("user %d may not ask this agent", user),
		Why: "it answers root and its own user", Fix: "sudo, or an agent of one's own with --dir"}}) // it may be gone
}

// talk answers the lines of one connection.
func (c *control) talk(ctx context.Context, conn *net.UnixConn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longestLine)
	out := json.NewEncoder(conn)
	for lines.Scan() {
		var r Request
		answer := Response{}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			answer.Error = &RefusalError{Code: "request", Message: fmt.Sprintf("no request: %v", err)}
		} else {
			answer, _ = c.a.Ask(ctx, r) // the refusal is in it
		}
		if out.Encode(answer) != nil {
			if r.Op == OpAllocate && answer.ID != 0 { // who asked for it did not wait until its memory was free
				_, _ = c.a.Ask(ctx, Request{Op: OpRelease, ID: answer.ID}) // it may be gone
			}
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		_ = out.Encode(Response{Error: &RefusalError{Code: "request", Message: fmt.Sprintf("a line longer than %d bytes", longestLine)}}) // it ends here
	}
}

// Ask answers a question from within the agent's own process, without the way through its control socket. A refusal is returned as
// an error, too. OpAllocate alone waits, for memory; where ctx ends first, nothing is left of it.
func (a *Agent) Ask(ctx context.Context, r Request) (Response, error) {
	answer := a.answer(ctx, r)
	if answer.Error != nil {
		return answer, answer.Error
	}
	return answer, nil
}

func (a *Agent) answer(ctx context.Context, r Request) Response {
	switch r.Op {
	case OpAllocate:
		if r.Spec == nil {
			return refusal(&RefusalError{Code: "request", Message: "allocate: no spec"})
		}
		return a.answerAllocate(ctx, *r.Spec)
	case OpRelease:
		var answer Response
		a.ask(&answer, func() {
			if al := a.allocs[r.ID]; al != nil {
				al.release("on request")
			} else {
				answer = refusal(&RefusalError{Code: "not_found", Message: fmt.Sprintf("no allocation %d", r.ID)})
			}
		})
		return answer
	case OpEvents:
		var answer Response
		a.ask(&answer, func() { answer.Events, answer.Count = a.events.list(max(0, r.After)) })
		return answer
	case OpList, OpStats, OpGPUs, OpMetrics:
		return a.answerStats(r.Op)
	}
	return refusal(&RefusalError{Code: "request", Message: fmt.Sprintf("no operation %q", r.Op)})
}

// ask runs f on the reactor; an agent that ends meanwhile says so.
func (a *Agent) ask(answer *Response, f func()) {
	if !a.do(f) {
		*answer = refusal(errEnded)
	}
}

var errEnded = &RefusalError{Code: "ended", Message: "the agent ends"}

// answerAllocate allocates, and waits until the memory is there that is always to be the job's.
func (a *Agent) answerAllocate(ctx context.Context, spec Spec) Response {
	result := make(chan Response, 1)
	var asked *allocation
	if !a.do(func() {
		asked = a.allocate(spec, func(al *allocation, err error) {
			if err != nil {
				result <- refusal(err)
				return
			}
			result <- Response{ID: al.id, Dir: al.dir, Socket: al.socket()}
		})
	}) {
		return refusal(errEnded)
	}
	select {
	case answer := <-result:
		return answer
	case <-a.gone:
		return refusal(errEnded)
	case <-ctx.Done():
		a.do(func() {
			if asked != nil {
				asked.release("who asked for it gave up")
			}
		})
		return refusal(context.Cause(ctx))
	}
}

func (a *Agent) answerStats(op string) Response {
	var answer Response
	var stats Stats
	var counted counts
	a.ask(&answer, func() {
		stats = a.stats()
		if op == OpMetrics {
			counted = a.figures()
		}
	})
	switch {
	case answer.Error != nil:
	case op == OpStats:
		answer.Stats = &stats
	case op == OpList:
		answer.Jobs = stats.Jobs
	case op == OpGPUs:
		answer.GPUs = stats.GPUs
	default:
		answer.Metrics = metrics(&stats, &counted)
	}
	return answer
}

// stats collects all that is known.
func (a *Agent) stats() Stats {
	now := a.clock.now()
	s := Stats{Schema: 1, Uptime: time.Since(a.started).Seconds(), PID: os.Getpid(), Handover: milliseconds(a.handover.cost), Events: a.events.next,
		Sessions: len(a.sessions), Grants: a.granted.grants, Overruns: a.granted.overruns, Launches: a.granted.launches,
		Window: milliseconds(a.granted.window), MessagesIn: a.messages.in, MessagesOut: a.messages.out, TokenMessages: a.messages.token,
		MemoryMessages: a.messages.memory, Registration: quantiles(&a.registration), Jobs: []Job{}}
	for _, id := range slices.Sorted(maps.Keys(a.allocs)) {
		j := a.allocs[id].describe(now)
		s.Jobs = append(s.Jobs, j)
	}
	if s.Launches > 0 {
		share := 1000 * float64(s.TokenMessages) / float64(s.Launches)
		s.PerThousand = &share
	}
	for _, g := range a.gpus {
		s.GPUs = append(s.GPUs, g.state(a, now))
	}
	return s
}

func refusal(err error) Response {
	var r *RefusalError
	if !errors.As(err, &r) {
		r = &RefusalError{Code: "failed", Message: err.Error()}
	}
	return Response{Error: r}
}
