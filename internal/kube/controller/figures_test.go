package controller

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube/queue"
)

// TestHandler: health says that the process answers, readiness what is missing, and metrics what was planned last.
func TestHandler(t *testing.T) {
	c := &Controller{figures: newFigures("1.2.3")}
	missing := errors.New("pods are not listed yet")
	h := c.Handler(func() error { return nil }, func() error { return missing })
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, text := get("/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("/healthz: %d %s", code, text)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || text != "pods are not listed yet\n" {
		t.Errorf("/readyz: %d %s", code, text)
	}
	missing = nil
	if code, _ := get("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	q := &queue.Queue{}
	c.figures.planned(q, &dispatch.Decision{}, 3*time.Millisecond)
	c.figures.count("place", "refused")
	_, text := get("/metrics")
	for _, want := range []string{`weft_build_info{go_version="go`, `version="1.2.3"} 1`,
		`weft_operations_total{operation="place",outcome="refused"} 1`,
		`weft_plan_duration_seconds_count 1`, "weft_queue_oldest_wait_seconds 0", "process_resident_memory_bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if code, _ := get("/debug"); code != http.StatusNotFound {
		t.Errorf("/debug: %d", code)
	}
}
