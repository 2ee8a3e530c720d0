package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft.dev/weft/internal/agent"
)

// told is stderr, and calls heard with what is written.
type listener func(text string)

func (f listener) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// TestExecGivesUp interrupts a program's start while its memory is not free: it was said for what it waits, it does not start, and
// the agent is let go.
func TestExecGivesUp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("WEFT_LIB", dir)
	if err := os.WriteFile(filepath.Join(dir, "libweft.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, agent.ControlName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cut := context.WithCancel(t.Context())
	var said []string
	errs := listener(func(text string) {
		said = append(said, text)
		cut()
	})
	code := run(ctx, []string{"exec", "--socket", dir, "--", "true"}, strings.NewReader(""), &strings.Builder{}, errs)
	if code != exitInterrupted || len(said) != 1 || !strings.Contains(said[0], "waiting until its memory is free") {
		t.Errorf("exit %d, said %q", code, said)
	}
}
