package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// TestInterruptedSubmission interrupts weft run while its job is handed in: the job is stopped once it is there.
func TestInterruptedSubmission(t *testing.T) {
	ctx, cut := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	tell := func(w http.ResponseWriter, answer any) {
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}
	daemon := http.NewServeMux()
	daemon.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		cut()
		tell(w, client.IDList{Schema: 1, IDs: []box.ID{7}})
	})
	daemon.HandleFunc("POST /v1/jobs/7/stop", func(w http.ResponseWriter, _ *http.Request) {
		close(stopped)
		tell(w, box.Job{ID: 7, State: box.Stopping})
	})
	daemon.HandleFunc("GET /v1/jobs/7/wait", func(w http.ResponseWriter, _ *http.Request) {
		<-stopped
		tell(w, box.Job{ID: 7, State: box.Done, Outcome: box.Stopped})
	})
	daemon.HandleFunc("GET /v1/jobs/7/log", func(http.ResponseWriter, *http.Request) {}) // it printed nothing
	state := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(state, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: daemon}
	go func() { _ = server.Serve(l) }() // until it is closed
	defer server.Close()
	var errs strings.Builder
	if code := run(ctx, []string{"run", "--state", state, "--", "true"}, strings.NewReader(""), &strings.Builder{}, &errs); code != exitInterrupted {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	select {
	case <-stopped:
	default:
		t.Error("the job was not stopped")
	}
}
