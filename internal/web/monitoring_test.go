package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
)

const grafanaDir = "../../docs/grafana/"

// need finds a program of Debian's package prometheus.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: scripts/deps.sh installs it", program)
	}
	t.Skipf("%s is missing: scripts/deps.sh installs it", program)
	return ""
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// panels are the queries of the dashboard by the title of their panel, with its variables filled in.
func panels(t testing.TB) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(readFile(t, grafanaDir+"weft.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "10s").Replace(target.Expr)
			queries[p.Title] = append(queries[p.Title], expr)
		}
	}
	return queries
}

var (
	metricName  = regexp.MustCompile(`weft_[a-z0-9_]+`)
	metricLabel = regexp.MustCompile(`\b([a-z_]+)(?:=~?|!=)"`)
)

// TestDashboardNames holds the names in the dashboard, the alerts and the documentation against what is scraped.
func TestDashboardNames(t *testing.T) {
	text := scrape(t, newSite(t, busyMachine(t)).client())
	known := map[string]bool{}
	for _, name := range metricName.FindAllString(text, -1) {
		known[name] = true
	}
	labels := map[string]bool{"instance": true, "job": true, "pod": true} // series of a Pod are of a cluster's controller
	for _, found := range metricLabel.FindAllStringSubmatch(text, -1) {
		labels[found[1]] = true
	}
	queries := panels(t)
	if len(queries) < 15 {
		t.Errorf("%d panels", len(queries))
	}
	queries["alerts"] = regexp.MustCompile(`(?m)expr: .*$`).FindAllString(readFile(t, grafanaDir+"alerts.yml"), -1)
	for title, list := range queries {
		for _, expr := range list {
			for _, name := range metricName.FindAllString(expr, -1) {
				if !known[name] {
					t.Errorf("%s: there is no %s", title, name)
				}
			}
			for _, found := range metricLabel.FindAllStringSubmatch(expr, -1) {
				if !labels[found[1]] {
					t.Errorf("%s: there is no label %s", title, found[1])
				}
			}
		}
	}
	documented := readFile(t, "../../docs/web.md")
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "# TYPE weft_") && !strings.Contains(documented, "`"+strings.TrimPrefix(fields[2], "weft_")) {
			t.Errorf("docs/web.md does not say what %s is", fields[2])
		}
	}
}

// TestRules has promtool read the alerts, play them, and parse every query of the dashboard.
func TestRules(t *testing.T) {
	promtool := need(t, "promtool")
	dir := t.TempDir()
	alerts, err := filepath.Abs(grafanaDir + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/play.yml", strings.ReplaceAll(readFile(t, "testdata/alerts_test.yml"), "ALERTS", alerts))
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for _, list := range panels(t) {
		for _, expr := range list {
			rules += fmt.Sprintf("  - record: x%d\n    expr: %q\n", len(rules), expr)
		}
	}
	writeFile(t, dir+"/dashboard.yml", rules)
	for _, arguments := range [][]string{{"check", "rules", alerts}, {"test", "rules", dir + "/play.yml"}, {"check", "rules", dir + "/dashboard.yml"}} {
		if out, err := exec.Command(promtool, arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	for alert := range strings.SplitSeq(readFile(t, alerts), "- alert: ") {
		if name, body, ok := strings.Cut(alert, "\n"); ok && strings.HasPrefix(name, "Weft") && strings.Count(body, "command: weft ") != 1 {
			t.Errorf("%s does not name one command", name)
		}
	}
}

// runPrometheus runs a real one that scrapes a site with the configuration that is documented.
func runPrometheus(t *testing.T, s *site) (address string) {
	t.Helper()
	program, dir := need(t, "prometheus"), t.TempDir()
	writeFile(t, dir+"/token", testToken)
	config := readFile(t, grafanaDir+"prometheus.yml")
	for old, with := range map[string]string{"/etc/prometheus/weft.token": dir + "/token", "127.0.0.1:7070": "127.0.0.1:" + s.port, "5s": "500ms"} {
		if !strings.Contains(config, old) {
			t.Fatalf("prometheus.yml has no %s", old)
		}
		config = strings.ReplaceAll(config, old, with)
	}
	writeFile(t, dir+"/prometheus.yml", config+"global:\n  evaluation_interval: 1s\n")
	writeFile(t, dir+"/alerts.yml", readFile(t, grafanaDir+"alerts.yml"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log.String())
		}
	})
	return address
}

// evaluate asks Prometheus, and returns how many series answer.
func evaluate(t *testing.T, address, expr string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return 0, err
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	var told struct {
		Error string `json:"error"`
		Data  struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &told); err != nil {
		return 0, fmt.Errorf("%w: %.200s", err, data)
	}
	if told.Error != "" {
		t.Fatalf("%s: %s", expr, told.Error)
	}
	return len(told.Data.Result), nil
}

// TestPrometheus has a real Prometheus scrape a machine, and every query of the dashboard find something.
func TestPrometheus(t *testing.T) {
	m := busyMachine(t)
	s := newSite(t, m)
	address := runPrometheus(t, s)
	until := func(what, expr string, want func(int) bool) {
		t.Helper()
		var n int
		var err error
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			if n, err = evaluate(t, address, expr); err == nil && want(n) {
				return
			}
		}
		t.Errorf("%s: %s: %d series, %v", what, expr, n, err)
	}
	some := func(n int) bool { return n > 0 }
	until("scraped", `up{job="weft"} == 1`, some)
	until("a job's own label stays", `weft_job_rate_ratio{job="weft", job_id="1", name="bert-ft", kind="observed"} == 0.93`, some)
	for title, list := range panels(t) {
		for _, expr := range list {
			until(title, expr, some)
		}
	}
	m.change(func() {
		rate := .5
		m.jobs[0].Rate = &rate
	})
	until("an alert is on its way", `ALERTS{alertname="WeftJobBelowFloor", alertstate="pending", job_id="1"}`, some)
	m.finish(box.ID(1))
	until("a job that ended", `weft_job_floor_ratio{job_id="1"}`, func(n int) bool { return n == 0 })
}
