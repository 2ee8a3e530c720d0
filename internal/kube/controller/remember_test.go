package controller

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestLearnedIsWrittenAtTheEnd: a controller that is ended while it writes what was learned writes it once more, though nothing was learned
// since.
func TestLearnedIsWrittenAtTheEnd(t *testing.T) {
	var asked, taken atomic.Int32
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else its end is not noticed
		if asked.Add(1) == 1 {
			close(begun)
			<-r.Context().Done()
			return
		}
		taken.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}}`)
	}))
	defer server.Close()
	c, err := New(Options{Config: &rest.Config{Host: server.URL}, Namespace: "weft-system", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.adjust.Resume(time.Now()) // of which nothing is written yet
	ctx, end := context.WithCancel(t.Context())
	c.remember(ctx)
	<-begun
	end()
	c.conclude(ctx)
	if asked.Load() != 2 || taken.Load() != 1 {
		t.Errorf("%d writes, of which %d were taken, want 2 and 1", asked.Load(), taken.Load())
	}
	c.conclude(ctx)
	if asked.Load() != 2 {
		t.Errorf("what was taken is written again: %d writes", asked.Load())
	}
}
