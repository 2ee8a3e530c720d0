package box

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
)

// onSmallDisk is a bed whose state folder is a file system of its own.
func onSmallDisk(t *testing.T) *bed {
	t.Helper()
	rooted(t)
	b := newBed(t, "--emulate", "1", "--gpu-memory", "16GiB")
	if err := os.Mkdir(b.state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", b.state, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("SKIPPED: no file system can be mounted: %v", err)
	}
	unmount := func() { _ = syscall.Unmount(b.state, syscall.MNT_DETACH) }
	t.Cleanup(unmount)
	t.Cleanup(b.tearDown) // before it is unmounted
	return b
}

// fill writes until nothing more fits, and returns what makes room again.
func (b *bed) fill() (empty func()) {
	b.t.Helper()
	path := filepath.Join(b.state, "filler")
	f, err := os.Create(path)
	if err != nil {
		b.t.Fatal(err)
	}
	block := make([]byte, 1<<16)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	_ = f.Close() // full, as wanted
	return func() {
		if err := os.Remove(path); err != nil {
			b.t.Error(err)
		}
	}
}

// TestFullDisk: what runs goes on, what cannot be kept is refused and said, and once there is room all is written.
func TestFullDisk(t *testing.T) {
	b := onSmallDisk(t)
	b.start()
	long := b.submit(spec("for i in $(seq 1000); do echo $i; sleep 0.1; done"))
	full := filepath.Join(b.dir, "full") // beside that disk
	ends := b.submit(spec("until [ -e '" + full + "' ]; do sleep 0.1; done; exit 7"))
	pid := b.until(long, "running", runs).PID
	b.until(ends, "running", runs)
	empty := b.fill()
	refused := 0
	for i := range 3 { // the database may have room left within its file
		switch r := b.run("run", "-d", "--env", "FILLER="+strings.Repeat("x", 100<<10), "--", "true"); {
		case r.code == 125 && strings.Contains(r.err, "space") && strings.Contains(r.err, "fix"):
			refused++
		case r.code != 0:
			t.Errorf("submission %d on a full disk: %+v", i, r)
		}
	}
	if refused == 0 {
		t.Error("none is refused")
	}
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := b.done(ends) // its end cannot be written down yet
	if *j.Exit != 7 {
		t.Errorf("%+v", j)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		r := b.run("status")
		if r.code == 0 && strings.Contains(r.out, "DEGRADED") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("status: %+v", r)
		}
	}
	if syscall.Kill(pid, 0) != nil {
		t.Error("the job that runs has ended")
	}
	empty()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if s, err := b.Status(t.Context()); err == nil && len(s.Degraded) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("there is room, and still: %v %v", s.Degraded, err)
		}
	}
	after := b.submit(spec("exit 0"))
	b.done(after)
	b.kill()
	b.start()
	if j, err := b.Job(t.Context(), ends); err != nil || j.Outcome != box.Failed || *j.Exit != 7 {
		t.Errorf("after a restart: %v %+v", err, j)
	}
	if j, err := b.Job(t.Context(), long); err != nil || j.PID != pid {
		t.Errorf("after a restart: %v %+v", err, j)
	}
}

// TestRestartOnFullDisk: a daemon that was killed comes back on a full disk, or says why not, and what runs goes on.
func TestRestartOnFullDisk(t *testing.T) {
	b := onSmallDisk(t)
	b.start()
	id := b.submit(spec("sleep 1000"))
	pid := b.until(id, "running", runs).PID
	b.kill()
	empty := b.fill()
	if err := b.tryStart(); err != nil {
		if !strings.Contains(b.said.String(), "space") {
			t.Errorf("it does not say why: %v", err)
		}
		empty()
		b.start()
	} else {
		empty()
	}
	if j := b.until(id, "running", runs); j.PID != pid || j.Attempt != 1 {
		t.Errorf("%+v", j)
	}
}

// TestReadOnlyState: a folder that cannot be written is said, with what to do, and what runs goes on.
func TestReadOnlyState(t *testing.T) {
	rooted(t)
	b := up(t, 1)
	id := b.submit(spec("sleep 1000"))
	pid := b.until(id, "running", runs).PID
	b.kill()
	if err := syscall.Mount(b.state, b.state, "", syscall.MS_BIND, ""); err != nil { // what the job has open is beneath
		t.Skipf("SKIPPED: no folder can be mounted: %v", err)
	}
	unmount := func() { _ = syscall.Unmount(b.state, syscall.MNT_DETACH) }
	if err := syscall.Mount("", b.state, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		unmount()
		t.Fatal(err)
	}
	r := finish(b.weft(append([]string{"up", "--state", b.state, "--listen", "none"}, b.flags...)...))
	if r.code != 2 || !strings.Contains(r.err, "read-only") || !strings.Contains(r.err, "fix") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	unmount()
	b.start()
	if j := b.until(id, "running", runs); j.PID != pid || j.Attempt != 1 {
		t.Errorf("%+v", j)
	}
}

// TestCorruptState: the database is kept aside and said, and the jobs go on from their own folders.
func TestCorruptState(t *testing.T) {
	b := up(t, 1)
	back := filepath.Join(b.dir, "back")
	id := b.submit(spec("until [ -e '"+back+"' ]; do sleep 0.1; done; exit 5", func(s *box.Spec) { s.Memory *= 15 }))
	waits := b.submit(spec("exit 6"))
	pid := b.until(id, "running", runs).PID
	b.kill()
	path := filepath.Join(b.state, "state.db")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(text) / 64 {
		text[i*64] ^= 0x55
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if !strings.Contains(b.said.String(), "corrupt") {
		t.Errorf("it is not said: %s", b.said)
	}
	if r := b.run("status"); !strings.Contains(r.out, "corrupt") {
		t.Errorf("status: %+v", r)
	}
	j, err := b.Job(t.Context(), id)
	if err != nil || j.PID != 0 && j.PID != pid {
		t.Errorf("%v %+v, its pid was %s", err, j, strconv.Itoa(pid))
	}
	if err := os.WriteFile(back, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := b.done(id); *j.Exit != 5 || j.Attempt != 1 {
		t.Errorf("%+v", j)
	}
	if j := b.done(waits); *j.Exit != 6 {
		t.Errorf("%+v", j)
	}
}
