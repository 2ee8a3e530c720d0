package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestSilent asks an agent that hangs: what is answered at once is given up soon, and all of it where who asks gives up.
func TestSilent(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ControlName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ask := func(ctx context.Context, op string, bound time.Duration) error {
		c, err := Dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.bound = bound
		_, err = c.Ask(ctx, Request{Op: op})
		return err
	}
	if err := ask(t.Context(), OpStats, 10*time.Millisecond); !errors.Is(err, ErrSilent) {
		t.Errorf("%v", err)
	}
	for _, op := range []string{OpStats, OpAllocate} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := ask(ctx, op, patient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", op, err)
		}
		cancel()
	}
}
