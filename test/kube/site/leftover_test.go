package site

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weft.dev/weft/test/suite"
)

// TestLeftover: GPUs of an earlier demonstration are taken by another one and stay for as long as that runs; a site with GPUs of its own
// ends them. Where nobody serves the socket there is nothing to do.
func TestLeftover(t *testing.T) {
	weft := filepath.Join(t.TempDir(), "weft")
	if err := suite.Run("go", "build", "-buildvcs=false", "-o", weft, "../../../cmd/weft"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "gpu.sock")
	if taken, err := leftover(ctx, socket, false); taken || err != nil {
		t.Fatalf("without a socket: %v, %v", taken, err)
	}
	const linger = time.Second
	broker := exec.Command(weft, "emugpu", "serve", "--gpus", "1", "--socket", socket, "--linger", linger.String())
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = broker.Wait() // that it ends is what counts
	}()
	t.Cleanup(func() { _ = broker.Process.Kill(); <-ended })
	for c := served(socket); ; c = served(socket) {
		if c != nil {
			_ = c.Close() // it serves
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no emulated GPUs")
		}
		time.Sleep(10 * time.Millisecond)
	}
	demonstration, over := context.WithCancel(ctx)
	defer over()
	if taken, err := leftover(demonstration, socket, true); !taken || err != nil {
		t.Fatalf("another demonstration: %v, %v", taken, err)
	}
	select {
	case <-ended:
		t.Fatal("the GPUs end while a demonstration has them")
	case <-time.After(2 * linger):
	}
	if taken, err := leftover(ctx, socket, false); taken || err != nil {
		t.Fatalf("a site with GPUs of its own: %v, %v", taken, err)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the GPUs of the demonstration are still served")
	}
}
