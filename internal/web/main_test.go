package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/web/client"
)

// TestMain also plays another user's program (asNobody).
func TestMain(m *testing.M) {
	if socket := os.Getenv("WEFT_TEST_ASK"); socket != "" {
		askAll(socket)
		return
	}
	goleak.VerifyTestMain(m)
}

// memory is a machine in memory, whose jobs run when a test says so.
type memory struct {
	dir string

	mu      sync.Mutex
	jobs    []*box.Job
	done    map[box.ID]chan struct{}
	inputs  map[box.ID]string
	list    []box.Event
	drained map[int]bool
	changed chan struct{}
	figures box.Figures
	agent   string
	lost    error // what the agent answers
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	return &memory{dir: t.TempDir(), done: map[box.ID]chan struct{}{}, inputs: map[box.ID]string{}, drained: map[int]bool{}, changed: make(chan struct{}),
		figures: box.Figures{Plan: box.NewHistogram(box.PlanBounds()...), QueueWait: map[box.Class]box.Histogram{}, Outcomes: map[box.Outcome]uint64{},
			Operations: map[box.OperationKey]uint64{}}}
}

// change changes something and tells of it.
func (m *memory) change(what func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) find(c box.Caller, id box.ID, own bool) (*box.Job, error) {
	if id == 0 || id > box.ID(len(m.jobs)) {
		return nil, box.NoJob(id)
	}
	j := m.jobs[id-1]
	if own && !c.May(j.UID) {
		return nil, &box.Error{Kind: box.Forbidden, Code: "not_yours", Message: fmt.Sprintf("job %d is %s's", id, j.User)}
	}
	return j, nil
}

func (m *memory) Submit(c box.Caller, s box.Spec) ([]box.ID, error) {
	if s.Floor > 1 {
		return nil, &box.Error{Kind: box.BadInput, Code: "bad_floor", Message: "floor is outside (0, 1]", Field: "floor", Value: fmt.Sprint(s.Floor)}
	}
	id := box.ID(0)
	m.change(func() {
		id = box.ID(len(m.jobs) + 1)
		m.jobs = append(m.jobs, &box.Job{ID: id, Name: s.Name, UID: c.UID, User: fmt.Sprint("u", c.UID), State: box.Waiting, Command: s.Command, Class: s.Class,
			Floor: s.Floor, Submitted: time.Now(), On: []int{}, Beside: []box.ID{}})
		m.done[id] = make(chan struct{})
		m.note(box.Event{Type: box.EventSubmitted, Job: id, Name: s.Name})
	})
	return []box.ID{id}, nil
}

// note files an event. The mutex is held.
func (m *memory) note(e box.Event) {
	e.Seq, e.Time = uint64(len(m.list)+1), time.Now()
	m.list = append(m.list, e)
}

// run puts a job on a GPU.
func (m *memory) run(id box.ID, gpu int) {
	m.change(func() {
		now := time.Now()
		j := m.jobs[id-1]
		j.State, j.On, j.Started, j.Attempt = box.Running, []int{gpu}, &now, 1
		m.note(box.Event{Type: box.EventStarted, Job: id, GPU: &gpu})
	})
}

// finish ends a job.
func (m *memory) finish(id box.ID) {
	m.change(func() {
		j := m.jobs[id-1]
		if j.State != box.Done {
			zero, now := 0, time.Now()
			j.State, j.Outcome, j.Exit, j.Ended = box.Done, box.Succeeded, &zero, &now
			close(m.done[id])
			m.note(box.Event{Type: box.EventEnded, Job: id})
		}
	})
}

func (m *memory) Jobs(c box.Caller, all bool, user string) []box.Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []box.Job
	for _, j := range m.jobs {
		if (all || j.State != box.Done) && (user == "" || j.User == user) {
			list = append(list, m.seen(c, j))
		}
	}
	return list
}

func (m *memory) seen(c box.Caller, j *box.Job) box.Job {
	seen := *j
	if !c.May(j.UID) && len(j.Command) > 1 {
		seen.Command = j.Command[:1]
	}
	return seen
}

func (m *memory) Job(c box.Caller, id box.ID) (box.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(c, id, false)
	if err != nil {
		return box.Job{}, err
	}
	return m.seen(c, j), nil
}

func (m *memory) Explain(c box.Caller, id box.ID) (box.Explanation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(c, id, true)
	if err != nil {
		return box.Explanation{}, err
	}
	return box.Explanation{Job: *j}, nil
}

func (m *memory) Stop(c box.Caller, id box.ID) (box.Job, error) {
	m.mu.Lock()
	_, err := m.find(c, id, true)
	m.mu.Unlock()
	if err != nil {
		return box.Job{}, err
	}
	m.finish(id)
	return m.Job(c, id)
}

func (m *memory) Wait(ctx context.Context, c box.Caller, id box.ID) (box.Job, error) {
	m.mu.Lock()
	_, err := m.find(c, id, true)
	done := m.done[id]
	m.mu.Unlock()
	if err != nil {
		return box.Job{}, err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	return m.Job(c, id)
}

func (m *memory) Log(c box.Caller, id box.ID) (path string, done func() bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(c, id, true); err != nil {
		return "", nil, err
	}
	over := m.done[id]
	return m.logPath(id), func() bool { return isClosed(over) }, nil
}

func (m *memory) logPath(id box.ID) string { return filepath.Join(m.dir, id.String(), "log") }

// print appends a frame to the log of a job, from an offset that it returns the end of.
func (m *memory) print(t testing.TB, id box.ID, at int64, text string) int64 {
	t.Helper()
	if err := os.MkdirAll(m.logPath(id), 0o700); err != nil {
		t.Fatal(err)
	}
	f := shepherd.Frame{Stream: shepherd.Stdout, Time: time.Now(), Offset: at, Bytes: []byte(text)}
	file, err := os.OpenFile(filepath.Join(m.logPath(id), "0000000000000000"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(f.Append(nil), at); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return at + f.Size()
}

func (m *memory) Stdin(c box.Caller, id box.ID, f *os.File) error {
	defer func() { _ = f.Close() }()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(c, id, true); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	m.inputs[id] = string(data)
	return err
}

func (m *memory) GPUs() []box.GPU {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, busy, heat := make([]box.GPU, 2), .97, 61.0
	for i := range list {
		list[i] = box.GPU{Index: i, Health: "ok", Usable: 16 << 30, Busy: &busy, Temperature: &heat}
		if m.drained[i] {
			list[i].Health = "drained"
		}
	}
	return list
}

func (m *memory) Drain(c box.Caller, gpu int, on bool) (box.GPU, error) {
	if !c.Admin {
		return box.GPU{}, &box.Error{Kind: box.Forbidden, Code: "not_administrator", Message: "only an administrator drains a GPU"}
	}
	if gpu > 1 {
		return box.GPU{}, &box.Error{Kind: box.NotFound, Code: "no_gpu", Message: "there is no such GPU"}
	}
	m.change(func() { m.drained[gpu] = on })
	return m.GPUs()[gpu], nil
}

func (m *memory) Status() box.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := box.Status{Schema: 1, Host: "box1", Version: "test", GPUs: 2, Since: time.Now()}
	for _, j := range m.jobs {
		if j.State == box.Waiting {
			s.Waiting++
		}
		if j.State.Live() {
			s.Running++
		}
	}
	return s
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *memory) Events(after uint64, since time.Time) []box.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []box.Event
	for _, e := range m.list[min(after, uint64(len(m.list))):] {
		if !e.Time.Before(since) {
			list = append(list, e)
		}
	}
	return list
}

func (m *memory) History(span time.Duration) box.History {
	return box.History{Schema: 1, Until: time.Now(), Step: span.Seconds()}
}

func (m *memory) Figures() box.Figures { return m.figures }

func (m *memory) AgentMetrics() (string, error) { return m.agent, m.lost }

// site is a server that a test can take down and up again at the same place.
type site struct {
	t     testing.TB
	state string
	box   Box
	o     Options
	tcp   bool

	url  string // over TCP
	port string
	end  func()
}

const testToken = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func newSite(t testing.TB, b Box) *site {
	t.Helper()
	s := &site{t: t, state: shortDir(t), box: b, tcp: true, o: Options{Token: testToken, Log: slog.New(slog.DiscardHandler)}}
	s.up()
	t.Cleanup(func() { s.down() })
	return s
}

// shortDir is a folder that other users can reach, with a short name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "weft-web")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *site) up() {
	s.t.Helper()
	address := ""
	if s.tcp {
		address = "127.0.0.1:" + s.port
		if s.port == "" {
			address += "0"
		}
	}
	l, err := Listen(context.Background(), s.state, address)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := l.Open(); err != nil {
		s.t.Fatal(err)
	}
	if s.tcp {
		s.url = "http://" + l.TCP.Addr().String()
		s.port = s.url[strings.LastIndex(s.url, ":")+1:]
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	server := New(s.box, s.o)
	go func() { served <- server.Serve(ctx, l) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				s.t.Errorf("serve: %v", err)
			}
		case <-time.After(30 * time.Second):
			s.t.Error("the server does not end")
		}
	})
}

func (s *site) down() { s.end() }

func (s *site) client() *client.Client {
	c := client.New(filepath.Join(s.state, client.SocketName))
	s.t.Cleanup(c.Close)
	return c
}

// answer is what was answered, once all of it is there.
type answer struct {
	status int
	header http.Header
	text   string
}

// ask asks over TCP.
func (s *site) ask(method, path string, change func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	if change != nil {
		change(r)
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	given, err := transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = given.Body.Close() }()
	text, err := io.ReadAll(given.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{given.StatusCode, given.Header, string(text)}
}

// code is the code of a refusal.
func code(body string) string {
	var told client.Refusal
	if json.Unmarshal([]byte(body), &told) != nil || told.Error == nil {
		return ""
	}
	return told.Error.Code
}

func submit(t testing.TB, c *client.Client, name string) box.ID {
	t.Helper()
	ids, err := c.Submit(t.Context(), box.Spec{Name: name, Command: []string{"/bin/true", "secret"}, Path: "/bin/true", Dir: "/", Class: box.Burstable, Floor: .9, GPUs: 1})
	if err != nil || len(ids) != 1 {
		t.Fatalf("submit: %v, %v", ids, err)
	}
	return ids[0]
}
