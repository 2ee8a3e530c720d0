package agent

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketIsAlwaysThere has a process connect again and again while one agent after the other comes and goes: it finds one, or the
// socket that one left, on which it waits for the next. A process that finds no socket at its start runs unshared from then on.
func TestSocketIsAlwaysThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), SocketName)
	agent := func() {
		fd, err := listenPackets(path, func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd) // nothing is lost with it
	}
	agent()
	stop := make(chan struct{})
	var wrong error
	var starts sync.WaitGroup
	starts.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p, err := tryConnect(t, path)
			switch {
			case err == nil:
				p.hangUp()
			case !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EAGAIN):
				wrong = err
			}
		}
	})
	for range 3000 {
		agent()
	}
	close(stop)
	starts.Wait()
	if wrong != nil {
		t.Error(wrong)
	}
}
