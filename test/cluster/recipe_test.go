package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// modules copies the files that the key depends on.
func modules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, m := range recipe {
		if err := os.MkdirAll(filepath.Join(dir, m.name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join("build", m.name, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, m.name, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func keyOf(t *testing.T, dir, goVersion string) string {
	t.Helper()
	k, err := key(dir, goVersion)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKey changes each thing that the programs depend on: each gives another folder of the cache, and back the first.
func TestKey(t *testing.T) {
	dir := modules(t)
	first := keyOf(t, dir, "go1.26.8")
	if len(first) != 16 || first != keyOf(t, dir, "go1.26.8") || first != keyOf(t, "build", "go1.26.8") {
		t.Errorf("the key %q depends on where the files are", first)
	}
	seen := map[string]string{first: "nothing", keyOf(t, dir, "go1.26.9"): "the Go release"}
	for _, m := range recipe {
		for _, name := range []string{"go.mod", "go.sum"} {
			path := filepath.Join(dir, m.name, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
			k := keyOf(t, dir, "go1.26.8")
			if other, twice := seen[k]; twice {
				t.Errorf("a change of %s gives the key of a change of %s", path, other)
			}
			seen[k] = path
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keyOf(t, dir, "go1.26.8") != first {
		t.Error("the key does not come back")
	}
	if err := os.Remove(filepath.Join(dir, "etcd", "go.sum")); err != nil {
		t.Fatal(err)
	}
	if _, err := key(dir, "go1.26.8"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a go.sum: %v", err)
	}
}

// TestRecipeIsPinned holds the versions of the recipe against the module files, and wants each program named as a tool, so
// that go mod tidy keeps what it takes.
func TestRecipeIsPinned(t *testing.T) {
	for _, m := range recipe {
		text, err := os.ReadFile(filepath.Join("build", m.name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.programs {
			if !strings.Contains(string(text), p.pkg+"\n") {
				t.Errorf("build/%s/go.mod has no tool %s", m.name, p.pkg)
			}
		}
		for _, x := range m.stamp {
			path, version, _ := strings.Cut(x, "=")
			if strings.HasSuffix(path, ".gitVersion") || strings.HasSuffix(path, "version.Version") {
				from, _, _ := strings.Cut(m.programs[0].pkg, "/cmd/")
				if !strings.Contains(string(text), "require "+from+" v"+strings.TrimPrefix(version, "v")+" ") {
					t.Errorf("build/%s/go.mod pins another version than %s", m.name, x)
				}
			}
		}
	}
	kubernetes, err := os.ReadFile("build/kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	staging := "v0" + strings.TrimPrefix(Version, "v1")
	count := 0
	for line := range strings.Lines(string(kubernetes)) {
		if _, to, found := strings.Cut(line, "=> k8s.io/"); found {
			count++
			if !strings.HasSuffix(strings.TrimSpace(to), " "+staging) {
				t.Errorf("a staging module is not at %s: %s", staging, line)
			}
		}
	}
	if count != 31 {
		t.Errorf("%d staging modules are replaced, Kubernetes %s has 31 in its own go.mod", count, Version)
	}
}

func TestCounter(t *testing.T) {
	var c counter
	for _, part := range []string{
		"go: downloading k8s.io/api v0.36.3\n", "inter", "nal/goarch\nk8s.io/api/core/v1\n", "# k8s.io/x\nx.go:1:2: bad\n", "\n",
	} {
		if _, err := fmt.Fprint(&c, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.packages(); got != 2 {
		t.Errorf("%d packages counted, want 2", got)
	}
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"", 3, ""}, {"a\n", 3, "a"}, {"a\nb\nc\n", 2, "b\nc"}, {"a\nb", 0, ""}} {
		if got := tail([]byte(c.text), c.n); got != c.want {
			t.Errorf("the last %d lines of %q are %q, want %q", c.n, c.text, got, c.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for text, want := range map[string]bool{
		`go: k8s.io/api@v0.36.3: Get "https://proxy.example/x": dial tcp: lookup proxy.example: no such host`: true,
		"go: module lookup disabled by GOPROXY=off":                                                           true,
		"k8s.io/kubernetes/cmd/kubelet: undefined: x":                                                         false,
		"verifying k8s.io/api@v0.36.3: checksum mismatch":                                                     false,
		"go: updates to go.mod needed; to update it: go mod tidy":                                             false,
		"reading https://proxy/x: 503 Service Unavailable":                                                    true,
		"link: signal: killed":                                                                                false,
		"x.go:10:2: cannot use connection (refused) as value":                                                 false,
	} {
		if unreachable([]byte(text)) != want {
			t.Errorf("unreachable(%q) = %v", text, !want)
		}
	}
}

func TestGather(t *testing.T) {
	fsys := fstest.MapFS{
		"a/one.yaml": {Data: []byte("---\nkind: Stage\nname: one\n")}, "a/two.yaml": {Data: []byte("kind: Stage\nname: two")},
		"a/kustomization.yaml": {Data: []byte("kind: Kustomization\n")}, "b/kustomization.yaml": {Data: []byte("kind: Kustomization\n")},
	}
	text, err := gather(fsys, []string{"a"})
	if want := "---\nkind: Stage\nname: one\n\n---\nkind: Stage\nname: two\n"; err != nil || string(text) != want {
		t.Errorf("%v, %q", err, text)
	}
	for _, folder := range []string{"b", "c"} {
		if _, err := gather(fsys, []string{"a", folder}); err == nil {
			t.Errorf("the folder %s holds no stage, and that is no error", folder)
		}
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, func() { t.Error("waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	waits := 0
	if _, err := lock(ctx, path, func() { waits++ }); !errors.Is(err, context.DeadlineExceeded) || waits != 1 {
		t.Errorf("locked twice: %v, said so %d times", err, waits)
	}
	second := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		unlock, err := lock(t.Context(), path, func() { close(waiting) })
		if err == nil {
			unlock()
		}
		second <- err
	}()
	<-waiting
	unlock()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"first", "second, longer", ""} {
		if err := writeWhole(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(got) != text || info.Mode() != 0o640 {
			t.Errorf("%v, %q, %v", err, got, info.Mode())
		}
	}
	if err := writeWhole(filepath.Join(dir, "none", "f"), nil, 0o600); err == nil {
		t.Error("a folder that is not there is written to")
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("%v: halves stay: %v", err, names)
	}
}

// TestFindSaysHow wants the remedy in the error where nothing is built, and every missing program named.
func TestFindSaysHow(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := Find(t.Context())
	var u *Unavailable
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "make cluster-build") {
		t.Errorf("nothing is built: %v", err)
	}
	if got := absent(Binaries(t.TempDir())); !slices.Contains(got, "kubelet") || !slices.Contains(got, stages) || len(got) != 11 {
		t.Errorf("an empty folder lacks %v", got)
	}
	t.Chdir("/")
	if _, err := Find(t.Context()); !errors.As(err, &u) || !strings.Contains(err.Error(), "not in a checkout") {
		t.Errorf("outside of a checkout: %v", err)
	}
}

// TestBuildWithoutProxy builds where no module can be fetched: the machine is said to be without a cluster, and nothing
// half built stays.
func TestBuildWithoutProxy(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	var lines []string
	_, err := Build(t.Context(), func(line string) { lines = append(lines, line) })
	var u *Unavailable
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "the modules of etcd cannot be fetched") {
		t.Errorf("%v", err)
	}
	if len(lines) < 2 || !strings.Contains(lines[0], "some 17 minutes") {
		t.Errorf("the progress is %q", lines)
	}
	halves, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "weft", "cluster", "*", "half-*"))
	if len(halves) > 0 {
		t.Errorf("%v stay", halves)
	}
}

// TestBuildIsInterrupted ends a build while it compiles: it returns at once, and no compiler goes on.
func TestBuildIsInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles; skipped with -short")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOCACHE", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		_, err := Build(ctx, func(string) { began <- struct{}{} })
		done <- err
	}()
	<-began
	<-began // the first program
	time.Sleep(time.Second)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("an interrupted build says %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("an interrupted build does not end")
	}
	eventually(t, 30*time.Second, "the compilers end", func() error { // they are killed, and die when it is their turn to run
		if left := running(t, os.Getenv("XDG_CACHE_HOME")); len(left) > 0 {
			return fmt.Errorf("%v go on", left)
		}
		return nil
	})
}

// running are processes whose command line or environment names a folder.
func running(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		command, _ := os.ReadFile(filepath.Join(name, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(name, "environ"))
		if name != fmt.Sprintf("/proc/%d", os.Getpid()) && (strings.Contains(string(command), dir) || hasVariable(environment, "XDG_CACHE_HOME="+dir)) {
			list = append(list, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return list
}
