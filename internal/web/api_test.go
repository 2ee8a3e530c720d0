package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

func TestQuestions(t *testing.T) {
	m := newMemory(t)
	c := newSite(t, m).client()
	ctx := t.Context()
	id := submit(t, c, "a")
	if id != 1 {
		t.Fatalf("the first ID is %d", id)
	}
	m.run(id, 1)
	if job, err := c.Job(ctx, id); err != nil || job.State != box.Running || job.UID != os.Geteuid() {
		t.Errorf("job: %+v, %v", job, err)
	}
	submit(t, c, "b")
	m.finish(2)
	if jobs, err := c.Jobs(ctx, false, ""); err != nil || len(jobs) != 1 {
		t.Errorf("jobs that live: %+v, %v", jobs, err)
	}
	if jobs, err := c.Jobs(ctx, true, ""); err != nil || len(jobs) != 2 {
		t.Errorf("all jobs: %+v, %v", jobs, err)
	}
	if jobs, err := c.Jobs(ctx, true, "nobody&all=0"); err != nil || len(jobs) != 0 || jobs == nil {
		t.Errorf("jobs of nobody: %+v, %v", jobs, err)
	}
	if e, err := c.Explain(ctx, id); err != nil || e.Job.ID != id {
		t.Errorf("explain: %+v, %v", e, err)
	}
	if gpus, err := c.GPUs(ctx); err != nil || len(gpus) != 2 {
		t.Errorf("gpus: %+v, %v", gpus, err)
	}
	for _, on := range []bool{true, false} {
		if g, err := c.Drain(ctx, 1, on); err != nil || (g.Health == "drained") != on {
			t.Errorf("drain %v: %+v, %v", on, g, err)
		}
	}
	if s, err := c.Status(ctx); err != nil || s.Running != 1 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if h, err := c.History(ctx, 45*time.Minute); err != nil || h.Step != 45*60 {
		t.Errorf("history: %+v, %v", h, err)
	}
	for range 2 {
		if job, err := c.Stop(ctx, id); err != nil || job.State != box.Done {
			t.Errorf("stop: %+v, %v", job, err)
		}
	}
	if job, err := c.Wait(ctx, id); err != nil || job.Exit == nil || *job.Exit != 0 {
		t.Errorf("wait: %+v, %v", job, err)
	}
}

// TestBadQuestions holds the status and the code of everything that is asked wrongly.
func TestBadQuestions(t *testing.T) {
	m := newMemory(t)
	s := newSite(t, m)
	submit(t, s.client(), "a")
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/v1/", 404, "no_path"},
		{"GET", "/v1/nothing", 404, "no_path"},
		{"GET", "/v1/jobs/1/nothing", 404, "no_path"},
		{"GET", "/v1", 404, "no_path"},
		{"DELETE", "/v1/jobs/1", 405, "method"},
		{"POST", "/v1/status", 405, "method"},
		{"PUT", "/v1/jobs", 405, "method"},
		{"GET", "/v1/jobs/1/stop", 405, "method"},
		{"OPTIONS", "/v1/jobs", 405, "method"},
		{"TRACE", "/v1/jobs", 405, "method"},
		{"POST", "/", 405, "method"},
		{"POST", "/metrics", 405, "method"},
		{"GET", "/v1/jobs/9", 404, "no_job"},
		{"GET", "/v1/jobs/0", 404, "no_job"},
		{"GET", "/v1/jobs/01", 400, "bad_request"},
		{"GET", "/v1/jobs/+1", 400, "bad_request"},
		{"GET", "/v1/jobs/-1", 400, "bad_request"},
		{"GET", "/v1/jobs/x", 400, "bad_request"},
		{"GET", "/v1/jobs/18446744073709551616", 400, "bad_request"},
		{"GET", "/v1/jobs/1%2Fexplain", 400, "bad_request"},
		{"GET", "/v1/jobs/%00", 400, "bad_request"},
		{"POST", "/v1/jobs/9/stop", 404, "no_job"},
		{"GET", "/v1/jobs/9/wait", 404, "no_job"},
		{"GET", "/v1/jobs/9/wait?seen=x", 404, "no_job"},
		{"GET", "/v1/jobs/9/log", 404, "no_job"},
		{"GET", "/v1/jobs?al=1", 400, "bad_request"},
		{"GET", "/v1/jobs?all=yes", 400, "bad_request"},
		{"GET", "/v1/jobs?all=1&all=0", 400, "bad_request"},
		{"GET", "/v1/jobs?all=%zz", 400, "bad_request"},
		{"GET", "/v1/jobs/1/wait?timeout_s=-1", 400, "bad_request"},
		{"GET", "/v1/jobs/1/wait?timeout_s=1e3", 400, "bad_request"},
		{"GET", "/v1/jobs/1/wait?timeout_s=301", 400, "bad_request"},
		{"GET", "/v1/jobs/1/log?from=x", 400, "bad_request"},
		{"GET", "/v1/jobs/1/log?from=9223372036854775808", 400, "bad_request"},
		{"POST", "/v1/gpus/7/drain", 404, "no_gpu"},
		{"POST", "/v1/gpus/x/drain", 400, "bad_request"},
		{"POST", "/v1/gpus/-1/drain", 400, "bad_request"},
		{"POST", "/v1/gpus/gpu1/drain?off=maybe", 400, "bad_request"},
		{"GET", "/v1/events?since=yesterday", 400, "bad_request"},
		{"GET", "/v1/events?since=-1h", 400, "bad_request"},
		{"GET", "/v1/events?after=-1", 400, "bad_request"},
		{"GET", "/v1/history?minutes=0", 400, "bad_request"},
		{"GET", "/v1/history?minutes=99999999999999999999", 400, "bad_request"},
		{"GET", "/v1/stream?interval_s=0", 400, "bad_request"},
		{"GET", "/v1/stream?after=x", 400, "bad_request"},
		{"POST", "/v1/jobs", 415, "content_type"},
		{"GET", "/v1/jobs/1/log", 200, ""},
		{"HEAD", "/v1/status", 200, ""},
	} {
		a := s.ask(c.method, c.path, nil)
		if a.status != c.status || code(a.text) != c.code {
			t.Errorf("%s %s: %d %q, want %d %q\n%s", c.method, c.path, a.status, code(a.text), c.status, c.code, a.text)
		}
		if c.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
}

func TestBadJobs(t *testing.T) {
	s := newSite(t, newMemory(t))
	for name, c := range map[string]struct {
		body, kind string
		status     int
		code       string
	}{
		"empty":     {"", "application/json", 400, "bad_request"},
		"no JSON":   {"name: a", "application/json", 400, "bad_request"},
		"list":      {"[]", "application/json", 400, "bad_request"},
		"two":       {"{} {}", "application/json", 400, "bad_request"},
		"key":       {`{"flor":0.9}`, "application/json", 400, "bad_request"},
		"class":     {`{"class":"gold"}`, "application/json", 400, "bad_request"},
		"type":      {`{"gpus":"one"}`, "application/json", 400, "bad_request"},
		"deep":      {strings.Repeat("[", 1<<20), "application/json", 400, "bad_request"},
		"kind":      {`{}`, "text/plain", 415, "content_type"},
		"form":      {`{}`, "application/x-www-form-urlencoded", 415, "content_type"},
		"the box's": {`{"floor":1.2}`, "application/json; charset=utf-8", 400, "bad_floor"},
		"5 MiB":     {`{"name":"` + strings.Repeat("a", 5<<20) + `"}`, "application/json", 413, "too_large"},
		"3 MiB":     {`{"floor":2,"name":"` + strings.Repeat("a", 3<<20) + `"}`, "application/json", 400, "bad_floor"},
	} {
		a := s.ask("POST", "/v1/jobs", func(r *http.Request) {
			r.Header.Set("Content-Type", c.kind)
			r.Body = io.NopCloser(strings.NewReader(c.body))
			r.ContentLength = int64(len(c.body))
		})
		if a.status != c.status || code(a.text) != c.code {
			t.Errorf("%s: %d %q, want %d %q: %.300s", name, a.status, code(a.text), c.status, c.code, a.text)
		}
	}
	if jobs := s.box.Jobs(box.Caller{Admin: true}, true, ""); len(jobs) > 0 {
		t.Errorf("jobs were accepted: %+v", jobs)
	}
}

// TestOtherUser asks as another user of the machine, whom the kernel names.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	m := newMemory(t)
	s := newSite(t, m)
	id := submit(t, s.client(), "mine")
	m.run(id, 0)
	m.print(t, id, 0, "secret")
	told := asNobody(t, s.client().Socket())
	want := map[string]string{
		"status": "ok", "jobs": "ok", "job": "ok", "gpus": "ok", "events": "ok", "history": "ok", "stream": "ok",
		"explain": "not_yours", "stop": "not_yours", "wait": "not_yours", "watch": "not_yours", "log": "not_yours", "stdin": "not_yours",
		"drain": "not_administrator", "submit": "ok 2", "own log": "ok", "own stop": "ok", "command": "/bin/true",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("another user (-want +got):\n%s", diff)
	}
	if jobs := m.Jobs(box.Caller{Admin: true}, true, ""); len(jobs) != 2 || jobs[1].UID != nobodyUID {
		t.Errorf("the other user's job: %+v", jobs)
	}
}

const nobodyUID = 65534

// asNobody runs this test's program as another user.
func asNobody(t *testing.T, socket string) map[string]string {
	t.Helper()
	program := shortDir(t) + "/ask"
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"WEFT_TEST_ASK=" + socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("as nobody: %v\n%s", err, stderr.String())
	}
	told := map[string]string{}
	if err := json.Unmarshal(out, &told); err != nil {
		t.Fatalf("as nobody: %v in %q", err, out)
	}
	return told
}

// askAll asks everything about job 1 and prints what came of it.
func askAll(socket string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := client.New(socket)
	told := map[string]string{}
	tell := func(what string, err error) {
		var refusal *box.Error
		switch {
		case err == nil:
			told[what] = "ok"
		case errors.As(err, &refusal):
			told[what] = refusal.Code
		default:
			told[what] = err.Error()
		}
	}
	_, err := c.Status(ctx)
	tell("status", err)
	_, err = c.Jobs(ctx, true, "")
	tell("jobs", err)
	job, err := c.Job(ctx, 1)
	tell("job", err)
	told["command"] = strings.Join(job.Command, " ")
	_, err = c.GPUs(ctx)
	tell("gpus", err)
	_, err = c.History(ctx, time.Hour)
	tell("history", err)
	for _, err := range c.Events(ctx, 0, 0, false) {
		tell("events", err)
	}
	for _, err := range c.Stream(ctx) {
		tell("stream", err)
		break
	}
	_, err = c.Explain(ctx, 1)
	tell("explain", err)
	_, err = c.Stop(ctx, 1)
	tell("stop", err)
	_, err = c.Wait(ctx, 1)
	tell("wait", err)
	for _, err := range c.Watch(ctx, 1) {
		tell("watch", err)
		break
	}
	_, err = c.Log(ctx, 1, 0, true)
	tell("log", err)
	tell("stdin", c.Stdin(ctx, 1, os.Stdin))
	_, err = c.Drain(ctx, 0, true)
	tell("drain", err)
	ids, err := c.Submit(ctx, box.Spec{Name: "theirs", Command: []string{"x"}, Floor: .5})
	tell("submit", err)
	if len(ids) == 1 {
		told["submit"] += " " + ids[0].String()
		in, err := c.Log(ctx, ids[0], 0, false)
		tell("own log", err)
		if err == nil {
			_ = in.Close()
		}
		_, err = c.Stop(ctx, ids[0])
		tell("own stop", err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}
