package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/test/kube/site"
)

// nextImage is the image of another release. It holds the same weft.
const nextImage = "weft.local/weft:next"

// pauseOfUpgrade bounds the longest iteration of a program whose agent is replaced. It waits 100 ms for its turn and runs without turns
// from then on; the next agent grants nothing for up to 500 ms, until all who may hold a token are back. The rest is for a busy machine. One
// that stands still for longer shows in programs that have no agent as well, and what their longest iteration took is allowed besides.
const pauseOfUpgrade = 2 * time.Second

// TestUpgradeUnderLoad replaces the agent's Pod and the controller's by other revisions several times, as an upgrade does, while two programs
// compute on one GPU. They go on in the same processes, under turns again afterwards, and nobody computes out of turn beside them; who is
// created meanwhile starts; metrics go on.
func TestUpgradeUnderLoad(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.fill(t, 2)
	if err := s.Publish(t.Context(), nextImage); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.upgrade(t, site.WeftImage, "0") })
	load := job{floor: "0.3", memory: "4Gi", seconds: 3600, arguments: busy}
	one, two := load, load
	one.name, two.name = "one", "two"
	n.apply(t, one.yaml(), two.yaml())
	pods := []*corev1.Pod{n.running(t, "one"), n.running(t, "two")}
	if a, b := s.device(t, pods[0]), s.device(t, pods[1]); a != b {
		t.Fatalf("one is on %s, two on %s: want one GPU for both", a, b)
	}
	pids := map[string][]int{}
	for _, p := range pods {
		n.says(t, p, "", `"type": "rate"`)
		pids[p.Name] = processes(p, "weft-train")
	}
	s.counts(t, pods)
	violations := s.gpuStats(t).Violations
	for round, image := range []string{nextImage, nextImage, site.WeftImage} {
		began := time.Now()
		was, judged := s.agent(t), s.gpuStats(t).Launches
		name := fmt.Sprintf("during-%d", round)
		s.change(t, image, strconv.Itoa(round))
		n.apply(t, job{name: name, floor: "0.2", memory: "2Gi", profile: "resnet:64", class: "besteffort", seconds: 3600}.yaml())
		s.rolledOut(t)
		replaced := time.Since(began)
		if s.agent(t).UID == was.UID {
			t.Fatalf("round %d: the agent is the Pod that it was", round)
		}
		n.running(t, name)
		t.Logf("round %d: replaced after %.1f s, a Pod that was created meanwhile runs after %.1f s", round, replaced.Seconds(), time.Since(began).Seconds())
		n.remove(t, name)
		for _, p := range pods {
			if now := processes(p, "weft-train"); fmt.Sprint(now) != fmt.Sprint(pids[p.Name]) {
				t.Fatalf("round %d: %s ran in %v, now in %v", round, p.Name, pids[p.Name], now)
			}
		}
		s.counts(t, pods)
		if s.gpuStats(t).Launches == judged {
			t.Errorf("round %d: no launch was held against a token since", round)
		}
	}
	if stats := s.gpuStats(t); stats.Violations != violations {
		t.Errorf("%d launches out of turn: %+v", stats.Violations-violations, stats.Examples)
	}
	var ends []line
	for _, p := range pods {
		ends = append(ends, n.ended(t, p))
	}
	machine := 0.0 // ms
	for _, p := range plain.pods(t, "native") {
		machine = max(machine, plain.ended(t, &p).Longest)
	}
	for i, last := range ends {
		if last.Longest > float64(pauseOfUpgrade.Milliseconds())+machine {
			t.Errorf("%s: its longest iteration took %.0f ms, want at most %v, and the %.0f ms that one without an agent took: %+v", pods[i].Name, last.Longest,
				pauseOfUpgrade, machine, last)
		}
	}
	n.remove(t, "one", "two")
	plain.remove(t, "native")
	s.nothingLeft(t, n.name, plain.name)
}

// upgrade gives controller and agent another image and another revision, and waits until they serve.
func (s *bed) upgrade(t *testing.T, image, revision string) {
	t.Helper()
	s.change(t, image, revision)
	s.rolledOut(t)
}

// change gives the Pods of controller and agent another image and another revision.
func (s *bed) change(t *testing.T, image, revision string) {
	t.Helper()
	for part, container := range map[string]string{"daemonset/weft-agent": "agent", "deployment/weft-controller": "controller"} {
		patch := fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"revision": %q}}, "spec": {"containers": [{"name": %q, "image": %q}]}}}}`,
			revision, container, image)
		s.kubectl(t, "patch", "-n", site.Namespace, part, "-p", patch)
	}
}

// rolledOut waits until controller and agent are of their newest revision.
func (s *bed) rolledOut(t *testing.T) {
	t.Helper()
	for _, part := range []string{"daemonset/weft-agent", "deployment/weft-controller"} {
		s.kubectl(t, "rollout", "status", "-n", site.Namespace, part, "--timeout="+patience.String())
	}
}

// kubectl runs kubectl, also after the test has ended.
func (s *bed) kubectl(t *testing.T, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if out, err := s.Kubectl(ctx, "", arguments...); err != nil {
		t.Fatal(out, err)
	}
}

// agent is the Pod of the node's agent.
func (s *bed) agent(t *testing.T) *corev1.Pod {
	t.Helper()
	list, err := s.api.CoreV1().Pods(site.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d agents, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

// counts waits until the agent has counted iterations of Pods, and more of each. An agent begins at 0, as counters of a process do.
func (s *bed) counts(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	first := s.iterations(t, pods)
	eventually(t, "the agent counts iterations", func(context.Context) string {
		now := s.iterations(t, pods)
		for _, p := range pods {
			if now[p.Name] <= first[p.Name] {
				return fmt.Sprintf("%.0f of %s, as before", now[p.Name], p.Name)
			}
		}
		return ""
	})
}

// iterations are those that the agent has counted of Pods, by name. It is a fault when a Pod has none or more than one series.
func (s *bed) iterations(t *testing.T, pods []*corev1.Pod) map[string]float64 {
	t.Helper()
	answer, err := http.Get("http://" + s.agent(t).Status.PodIP + ":8080/metrics") //nolint:noctx // the agent is on this machine
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, p := range pods {
		series := regexp.MustCompile(`(?m)^weft_job_iterations_total\{.*namespace="`+p.Namespace+`",pod="`+p.Name+`",container="train".*\} (\S+)$`).
			FindAllSubmatch(text, -1)
		if len(series) != 1 {
			t.Fatalf("%d series of %s:\n%s", len(series), p.Name, text)
		}
		if found[p.Name], err = strconv.ParseFloat(string(series[0][1]), 64); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// line is one that weft-train prints.
type line struct {
	Type       string  `json:"type"`
	Iterations uint64  `json:"iterations"`
	Rate       float64 `json:"rate_per_s"`
	Longest    float64 `json:"iteration_max_ms"`
	Seconds    float64 `json:"seconds"`
}

// ended ends the program of a Pod, and returns its last words. What it counted never went back.
func (n *namespace) ended(t *testing.T, p *corev1.Pod) line {
	t.Helper()
	for _, pid := range processes(p, "weft-train") {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var last line
	slowest := line{}
	for lines := bufio.NewScanner(strings.NewReader(n.says(t, p, "", `"type": "final"`))); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Logf("%s: %s", p.Name, lines.Text()) // of the library
			continue
		}
		if l.Type == "rate" && (slowest.Rate == 0 || l.Rate < slowest.Rate) {
			slowest = l
		}
		if l.Iterations < last.Iterations {
			t.Errorf("%s: %d iterations after %d", p.Name, l.Iterations, last.Iterations)
		}
		last = l
	}
	t.Logf("%s: %d iterations in %.0f s, %.1f a second, %.1f in the slowest (after %.0f s); the longest took %.0f ms", p.Name, last.Iterations, last.Seconds, last.Rate,
		slowest.Rate, slowest.Seconds, last.Longest)
	if last.Type != "final" {
		t.Errorf("%s: its last line is %+v", p.Name, last)
	}
	return last
}
