package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/web/client"
)

// busyMachine has something of everything that is measured.
func busyMachine(t testing.TB) *memory {
	t.Helper()
	m := newMemory(t)
	text, err := os.ReadFile("../agent/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	m.agent = string(text)
	caller := box.Caller{UID: 1000}
	for _, name := range []string{"bert-ft", `odd "name" \ with
lines`, "sweep"} {
		if _, err := m.Submit(caller, box.Spec{Name: name, Floor: .85, Class: box.Burstable}); err != nil {
			t.Fatal(err)
		}
	}
	m.run(1, 0)
	m.run(2, 1)
	m.change(func() {
		rate := .93
		m.jobs[0].Rate, m.jobs[0].Predicted, m.jobs[0].Below = &rate, &box.Prediction{Rate: .91}, 60
		m.jobs[2].Reason = &box.Reason{Code: plan.MemoryOverflow}
		m.jobs[2].Submitted = time.Now().Add(-time.Hour)
		m.figures.Plan.Observe(.002)
		wait := box.NewHistogram(box.WaitBounds()...)
		wait.Observe(3)
		m.figures.QueueWait[box.Burstable] = wait
		m.figures.Outcomes[box.Succeeded] = 7
		m.figures.Operations[box.OperationKey{Verb: box.Placed, Outcome: "ok"}] = 9
		m.figures.Operations[box.OperationKey{Verb: box.Moved, Outcome: "checkpoint lost"}] = 1
	})
	return m
}

func scrape(t testing.TB, c *client.Client) string {
	t.Helper()
	in, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMetrics(t *testing.T) {
	m := busyMachine(t)
	c := newSite(t, m).client()
	text := scrape(t, c)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`weft_build_info{go_version="go`, `weft_gpus{state="ok"} 2`, `weft_gpus{state="unhealthy"} 0`, `weft_job_rate_ratio{job_id="1",kind="observed",name="bert-ft"} 0.93`,
		`weft_job_rate_ratio{job_id="1",kind="predicted",name="bert-ft"} 0.91`, `weft_job_floor_ratio{job_id="2",name="odd \"name\" \\ with\nlines"} 0.85`,
		`weft_job_below_floor_seconds_total{job_id="1",name="bert-ft"} 60`, `weft_queue_jobs{reason="MemoryOverflow"} 1`, `weft_jobs_total{outcome="succeeded"} 7`,
		`weft_jobs_total{outcome="lost"} 0`, `weft_operations_total{operation="Placed",outcome="ok"} 9`, `weft_queue_wait_seconds_bucket{class="burstable",le="5"} 1`,
		`weft_plan_duration_seconds_bucket{le="0.001"} 0`, `weft_plan_duration_seconds_bucket{le="0.0025"} 1`, `weft_plan_duration_seconds_count 1`,
		`weft_jobs{state="running"} 2`, `weft_agent_up 1`, `process_resident_memory_bytes`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	oldest := regexp.MustCompile(`weft_queue_oldest_wait_seconds 36\d\d`)
	if !oldest.MatchString(text) {
		t.Error("the oldest wait is not an hour")
	}
	m.finish(1)
	m.change(func() { m.lost = errors.New("gone") })
	text = scrape(t, c)
	if strings.Contains(text, `job_id="1"`) {
		t.Error("the series of job 1 outlive it")
	}
	if !strings.Contains(text, "weft_agent_up 0") || strings.Contains(text, "weft_token_") {
		t.Error("the agent is away, and that is not told")
	}
	m.change(func() { m.lost, m.agent = nil, "no {metrics\n" })
	if text = scrape(t, c); !strings.Contains(text, "weft_agent_up 0") {
		t.Error("what the agent says is no text for Prometheus, and that is not told")
	}
}

// TestMetricsOnce sees to it that no family is told by both sides.
func TestMetricsOnce(t *testing.T) {
	m := busyMachine(t)
	m.agent += "# HELP weft_gpus_in_use Twice.\n# TYPE weft_gpus_in_use counter\nweft_gpus_in_use 99\n"
	text := scrape(t, newSite(t, m).client())
	var families []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			families = append(families, fields[2])
		}
	}
	slices.Sort(families)
	if once := slices.Compact(slices.Clone(families)); len(once) != len(families) {
		t.Errorf("some families are there twice: %v", families)
	}
	if strings.Contains(text, "weft_gpus_in_use 99") {
		t.Error("the agent overrides the daemon")
	}
}

// TestScrapeOverTCP scrapes as Prometheus does.
func TestScrapeOverTCP(t *testing.T) {
	s := newSite(t, busyMachine(t))
	a := s.ask("GET", "/metrics", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	if a.status != http.StatusOK || a.header.Get("Content-Encoding") != "gzip" || a.text == "" {
		t.Errorf("%d, %v", a.status, a.header)
	}
}
