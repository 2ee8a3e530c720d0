package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// upControlPlane brings one up, or skips the test. It is ended with the test.
func upControlPlane(t *testing.T, o ControlPlane) *Cluster {
	t.Helper()
	c, err := UpControlPlane(t.Context(), o)
	SkipOr(t, err)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestControlPlane brings up two at the same time, and loses nothing when etcd and the API server are killed.
func TestControlPlane(t *testing.T) {
	long(t)
	began := time.Now()
	c := upControlPlane(t, ControlPlane{})
	took := time.Since(began)
	if t.Logf("up in %.1f s", took.Seconds()); took > quick(6*time.Second) {
		t.Errorf("it took %s to come up", took)
	}
	other := upControlPlane(t, ControlPlane{})
	var version struct{ GitVersion string }
	if err := c.client.call(t.Context(), http.MethodGet, "/version", nil, &version); err != nil || version.GitVersion != Version {
		t.Errorf("it serves %q, %v", version.GitVersion, err)
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	if err := c.client.call(t.Context(), http.MethodPost, maps, object{"metadata": object{"name": "mine"}}, nil); err != nil {
		t.Fatal(err)
	}
	var r *refusal
	if err := other.client.call(t.Context(), http.MethodGet, maps+"/mine", nil, nil); !errors.As(err, &r) || r.code != http.StatusNotFound {
		t.Errorf("the other one has what the first has: %v", err)
	}
	for _, name := range []string{Etcd, APIServer} {
		if err := c.Component(name).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.client.call(t.Context(), http.MethodGet, "/readyz", nil, nil); err == nil {
			t.Errorf("it is ready without %s", name)
		}
		if err := c.Component(name).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "what was there before "+name+" was killed", func() error {
			return c.client.call(t.Context(), http.MethodGet, maps+"/mine", nil, nil)
		})
	}
	dir := c.Dir()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || len(marked(dir)) > 0 {
		t.Errorf("it is closed; its folder: %v, its processes: %v", err, marked(dir))
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
	for _, name := range other.Components() {
		if err := other.Component(name).Ready(t.Context()); err != nil {
			t.Errorf("the other one ended with it: %v", err)
		}
	}
}

// TestControlPlaneWithNodes has Pods scheduled to nodes that exist in the API only, without root, also after kwok was killed.
func TestControlPlaneWithNodes(t *testing.T) {
	long(t)
	c := upControlPlane(t, ControlPlane{Scheduler: true, Kwok: true})
	if err := c.Nodes(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	run(t, c, pod("before", FakeNode(2), nil), "Running")
	kwok := c.Component(Kwok)
	for _, name := range []string{"after", "after-that"} { // in fewer seconds than a node's lease has
		if err := kwok.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := kwok.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, c, pod(name, FakeNode(1), nil), "Running")
	}
}

// TestControlPlaneSaysWhy gives the API server an argument that it does not know: the error has what it says, and nothing stays.
func TestControlPlaneSaysWhy(t *testing.T) {
	long(t)
	t.Setenv("TMPDIR", t.TempDir())
	began := time.Now()
	_, err := UpControlPlane(t.Context(), ControlPlane{Extra: map[string][]string{APIServer: {"--no-such-flag"}}})
	var u *Unavailable
	if errors.As(err, &u) {
		SkipOr(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "apiserver has ended") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > quick(6*time.Second) {
		t.Errorf("it took %s to say so", took)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "weft-api-*")); len(left) > 0 {
		t.Errorf("%v stay", left)
	}
}

// TestControlPlaneInterrupted ends the context at several moments of coming up: it ends soon, and nothing stays.
func TestControlPlaneInterrupted(t *testing.T) {
	long(t)
	if _, err := Find(t.Context(), ControlPlane{}.programs()...); err != nil {
		SkipOr(t, err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			c, err := UpControlPlane(ctx, ControlPlane{})
			if err == nil { // quicker than that
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			} else if ctx.Err() == nil {
				t.Errorf("it ended by itself: %v", err)
			}
			left, _ := filepath.Glob(filepath.Join(os.TempDir(), "weft-api-*"))
			for _, dir := range left {
				t.Errorf("%s stays, with %v", dir, marked(dir))
			}
		})
	}
}
