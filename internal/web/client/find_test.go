package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen makes a socket in a state folder that answers as long as the test runs, or until end.
func listen(t *testing.T, state string) (end func()) {
	t.Helper()
	dir, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + SocketName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return func() { _ = l.Close() }
}

// home gives the test places of its own, as another user than root has them.
func home(t *testing.T) (runtime string) {
	t.Helper()
	runtime = t.TempDir()
	t.Setenv(RuntimeVariable, runtime)
	t.Setenv("WEFT_STATE", "")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return filepath.Join(runtime, "daemons")
}

func TestFind(t *testing.T) {
	dir := home(t)
	if _, err := os.Stat(filepath.Join(DefaultState(), SocketName)); err == nil {
		t.Skip("a daemon runs on this machine")
	}
	var gone *UnreachableError
	if _, err := Find(t.Context(), ""); !errors.As(err, &gone) || gone.Socket != filepath.Join(DefaultState(), SocketName) {
		t.Errorf("nobody is there: %v", err)
	}
	a, b := t.TempDir(), t.TempDir()
	endA := listen(t, a)
	if _, err := Find(t.Context(), ""); !errors.As(err, &gone) {
		t.Errorf("it is not registered: %v", err)
	}
	found := func(state, want string) {
		t.Helper()
		c, err := Find(t.Context(), state)
		if err != nil || c.Socket() != filepath.Join(want, SocketName) {
			t.Errorf("find %q: %+v, %v", state, c, err)
		}
	}
	found(a, a)
	removeA, err := Register(filepath.Join(a, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	found("", a)
	endB := listen(t, b)
	// A second daemon has a pid of its own.
	if err := os.Symlink(filepath.Join(b, SocketName), filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	var several *SeveralError
	want := []string{a, b}
	slices.Sort(want)
	if _, err := Find(t.Context(), ""); !errors.As(err, &several) || !slices.Equal(several.States, want) {
		t.Errorf("two: %v", err)
	}
	found(b, b)
	t.Setenv("WEFT_STATE", b)
	found("", b)
	found(a, a)
	t.Setenv("WEFT_STATE", t.TempDir())
	if _, err := Find(t.Context(), ""); !errors.As(err, &gone) {
		t.Errorf("the folder that is named counts: %v", err)
	}
	t.Setenv("WEFT_STATE", "")
	endB()
	found("", a)
	if _, err := os.Lstat(filepath.Join(dir, "1")); err == nil {
		t.Error("a dead daemon's entry is still there")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, state := range []string{"", a, t.TempDir()} {
		if _, err := Find(over, state); !errors.Is(err, context.Canceled) {
			t.Errorf("find %q when nobody waits for it: %v", state, err)
		}
	}
	removeA()
	if _, err := Find(t.Context(), ""); !errors.As(err, &gone) {
		t.Errorf("the entry was taken back: %v", err)
	}
	endA()
	if _, err := Find(t.Context(), a); !errors.As(err, &gone) || gone.Error() != "no weft daemon answers at "+filepath.Join(a, SocketName)+": connection refused" {
		t.Errorf("it ended: %v", err)
	}
}

func TestRegister(t *testing.T) {
	dir := home(t)
	state := t.TempDir()
	socket := filepath.Join(state, SocketName)
	for range 2 { // as after a restart with this pid, or of this socket
		if _, err := Register(socket); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(socket, filepath.Join(dir, "7")); err != nil {
			t.Fatal(err)
		}
	}
	remove, err := Register(socket)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != strconv.Itoa(os.Getpid()) {
		t.Errorf("entries: %v, %v", entries, err)
	}
	remove()
	remove()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("entries: %v, %v", entries, err)
	}
}

// TestUntrustedRegister believes no folder that others may write to, as one in /tmp that came first.
func TestUntrustedRegister(t *testing.T) {
	dir := home(t)
	state := t.TempDir()
	listen(t, state)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(state, SocketName), filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	if got := registered(t.Context()); len(got) != 1 {
		t.Fatalf("registered: %v", got)
	}
	for name, spoil := range map[string]func() error{
		"others may write": func() error { return os.Chmod(dir, 0o777) },
		"another's": func() error {
			if os.Geteuid() != 0 {
				return os.Chmod(dir, 0o777)
			}
			return os.Chown(dir, 65534, 65534)
		},
		"a link": func() error { return errors.Join(os.Rename(dir, dir+"2"), os.Symlink(dir+"2", dir)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 && name == "another's" {
			_ = os.Chmod(dir, 0o700)
		}
		if got := registered(t.Context()); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		if _, err := Register(filepath.Join(state, SocketName)); err == nil {
			t.Errorf("%s: registered", name)
		}
		if name == "a link" {
			_ = errors.Join(os.Remove(dir), os.Rename(dir+"2", dir))
		}
		_ = errors.Join(os.Chown(dir, os.Geteuid(), os.Getegid()), os.Chmod(dir, 0o700))
	}
}

func TestLongPath(t *testing.T) {
	state := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	listen(t, state)
	if uid, err := knock(t.Context(), filepath.Join(state, SocketName)); err != nil || uid != os.Geteuid() {
		t.Errorf("knock: %d, %v", uid, err)
	}
	if _, err := knock(t.Context(), filepath.Join(state, "nothing", SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("knock at nothing: %v", err)
	}
}

func TestDefaultState(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/x")
	want := "/x/weft"
	if os.Geteuid() == 0 {
		want = "/var/lib/weft"
	}
	if got := DefaultState(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
