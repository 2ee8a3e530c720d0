package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
)

// TestMovedWhileAway: a job was asked to move and ended while there was no daemon. The next one begins it again as soon as it knows of
// it, while it still takes over others, and does not take its new allocation for one that the last daemon left.
func TestMovedWhileAway(t *testing.T) {
	away := newGo(t)
	b := open(t, 3, func(o *Options) { o.Grace = patience })
	moved := b.submit(`trap "`+away.awaited()+`exit 143" TERM; echo ready; while :; do sleep 0.05; done`, func(s *box.Spec) { s.Migratable = true })
	on := b.until(moved, "running", running).On[0]
	b.untilLogged(moved, "ready\n")
	other := b.submit("sleep 60")
	b.until(other, "running", running)
	if _, err := b.Drain(me, on, true); err != nil {
		t.Fatal(err)
	}
	b.until(moved, "asked to move", func(j box.Job) bool { return j.State == box.Stopping })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	away.say()
	eventually(t, "the end of its program", func() bool { _, err := os.Stat(filepath.Join(b.dir(moved), "exit-1.json")); return err == nil })
	goOn := hold(t, filepath.Join(b.dir(other), "claim-1"))
	allocated := make(chan struct{}, 1)
	b.o.Faults = func(point string) {
		if point == "allocated" {
			allocated <- struct{}{}
		}
	}
	go func() {
		select {
		case <-allocated:
		case <-time.After(patience):
			t.Error("it is not begun while others are taken over")
		}
		goOn()
	}()
	b.reopen()
	j := b.until(moved, "running elsewhere", func(j box.Job) bool { return running(j) && j.On[0] != on })
	b.mu.Lock()
	alloc := b.jobs[moved].Alloc
	b.mu.Unlock()
	list, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpList})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Jobs {
		if a.ID == alloc {
			return
		}
	}
	t.Errorf("it runs without its allocation %d, there are %+v: %+v", alloc, list.Jobs, j)
}

// hold makes who reads a file wait until the function is called that it returns.
func hold(t *testing.T, path string) (goOn func()) {
	t.Helper()
	if err := os.Rename(path, path+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		text, err := os.ReadFile(path + ".kept")
		if err != nil {
			t.Error(err)
		}
		pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // once it is read from
		if err != nil {
			t.Error(err)
			return
		}
		if err := os.Rename(path+".kept", path); err != nil { // for the next look, before this one ends
			t.Error(err)
		}
		_, _ = pipe.Write(text)
		_ = pipe.Close()
	}
}
