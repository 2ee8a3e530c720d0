package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Binaries is the folder of the built programs. envtest takes it as KUBEBUILDER_ASSETS.
type Binaries string

// Path is the path of one program: "kubectl".
func (b Binaries) Path(name string) string { return filepath.Join(string(b), name) }

// stages is the file beside the programs that holds what kwok's nodes and Pods go through.
const stages = "stages.yaml"

// Find returns the programs that Build has made. It builds nothing: the error is an Unavailable that says how to build them
// when one of those named is missing, or any when none is named.
func Find(ctx context.Context, names ...string) (Binaries, error) {
	_, dir, err := places(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range absent(dir) {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		return "", &Unavailable{[]string{"not built yet: run `make cluster-build`, some 17 minutes on two cores, once"}}
	}
	return dir, nil
}

// places are the folder of the module files, and that of the programs that they make.
func places(ctx context.Context) (build string, dir Binaries, err error) {
	root, err := Source()
	if err != nil {
		return "", "", err
	}
	build = filepath.Join(root, "test", "cluster", "build")
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil {
		return "", "", &Unavailable{[]string{fmt.Sprintf("no go command that works: %v", err)}}
	}
	k, err := key(build, strings.TrimSpace(string(out)))
	if err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", &Unavailable{[]string{fmt.Sprintf("no cache folder: %v", err)}}
	}
	return build, Binaries(filepath.Join(cache, "weft", "cluster", k)), nil
}

// Source is the root of the checkout that the working directory is in.
func Source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "test", "cluster", "build", "kubernetes", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", &Unavailable{[]string{dir + " is not in a checkout of weft: test/cluster/build is in no folder above"}}
		}
	}
}

// absent are the files that a folder lacks.
func absent(dir Binaries) []string {
	var list []string
	for _, m := range recipe {
		for _, p := range m.programs {
			if _, err := os.Stat(dir.Path(p.name)); err != nil {
				list = append(list, p.name)
			}
		}
	}
	if _, err := os.Stat(dir.Path(stages)); err != nil {
		list = append(list, stages)
	}
	return list
}

// Build makes what is missing of the programs and returns their folder. It calls progress with a line for people each time
// there is something new, and at least every 15 seconds. Each program appears under its name when it is whole, so that a
// build that was interrupted goes on where it was. Of several builds at once one works and the others wait for it.
func Build(ctx context.Context, progress func(string)) (Binaries, error) {
	build, dir, err := places(ctx)
	if err != nil {
		return "", err
	}
	if len(absent(dir)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(string(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir.Path("lock"), func() {
		progress("another build is under way: waiting for it")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	b := builder{build: build, dir: dir, progress: progress, began: time.Now()}
	if err := b.all(ctx); err != nil {
		return "", err
	}
	return dir, nil
}

// builder is one run of Build, under its lock.
type builder struct {
	build    string
	dir      Binaries
	progress func(string)
	began    time.Time
}

func (b *builder) say(format string, arguments ...any) {
	b.progress(fmt.Sprintf("%6s  ", b.elapsed()) + fmt.Sprintf(format, arguments...))
}

func (b *builder) elapsed() string { return time.Since(b.began).Round(time.Second).String() }

func (b *builder) all(ctx context.Context) error {
	missing := absent(b.dir)
	total := 0
	for _, m := range recipe {
		total += len(m.programs)
	}
	b.say("building %s into %s: some 17 minutes on two idle cores when nothing of it was ever compiled, half a minute when all was",
		strings.Join(missing, ", "), b.dir)
	halves, _ := filepath.Glob(b.dir.Path("half-*")) // of builds that were killed
	for _, dir := range halves {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	n := 0
	for _, m := range recipe {
		for _, p := range m.programs {
			n++
			if _, err := os.Stat(b.dir.Path(p.name)); err == nil {
				continue
			}
			if err := b.program(ctx, m, p, fmt.Sprintf("%s (%d of %d)", p.name, n, total)); err != nil {
				return err
			}
		}
	}
	if err := b.stages(ctx); err != nil {
		return err
	}
	b.say("all built")
	return nil
}

// program builds one program beside its place and moves it there. What came over the network only in part is asked for again.
func (b *builder) program(ctx context.Context, m module, p program, title string) error {
	half, err := os.MkdirTemp(string(b.dir), "half-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(half) }()
	arguments := append([]string{"build", "-v", "-o", filepath.Join(half, p.name)}, m.flags()...)
	for try := 1; ; try++ {
		out, err := b.run(ctx, m, title, append(arguments, p.pkg)...)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("building %s: %w", p.name, ctx.Err())
		}
		if !unreachable(out) {
			return fmt.Errorf("building %s: %w\n%s", p.name, err, tail(out, 20))
		}
		if try == 3 {
			return &Unavailable{[]string{fmt.Sprintf("the modules of %s cannot be fetched (GOPROXY): %s", p.name, tail(out, 3))}}
		}
		b.say("%s: the modules could not be fetched, trying again", title)
	}
	return os.Rename(filepath.Join(half, p.name), b.dir.Path(p.name))
}

// run runs the go command in a module's folder and tells how many packages it has compiled.
func (b *builder) run(ctx context.Context, m module, title string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = filepath.Join(b.build, m.name)
	cmd.Env = append(os.Environ(), environment()...)
	inGroup(cmd)
	var out counter
	cmd.Stdout, cmd.Stderr = &out, &out
	done := make(chan struct{})
	told := make(chan struct{})
	began := time.Now()
	b.say("%s: begins", title)
	go func() {
		defer close(told)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.say("%s: %d packages compiled", title, out.packages())
			case <-done:
				return
			}
		}
	}()
	err := cmd.Run()
	close(done)
	<-told
	if err == nil {
		b.say("%s: done in %s, %d packages compiled", title, time.Since(began).Round(time.Second), out.packages())
	}
	return out.text(), err
}

// unreachable says whether go build ended because modules could not be had, and not because of what is in them.
func unreachable(out []byte) bool {
	for _, sign := range []string{
		"dial tcp", "module lookup disabled", "connection refused", "connection reset", "i/o timeout", "no such host",
		"TLS handshake timeout", "unexpected EOF", "502 Bad Gateway", "503 Service Unavailable", "proxyconnect",
	} {
		if bytes.Contains(out, []byte(sign)) {
			return true
		}
	}
	return false
}

// stageFolders are the folders of kwok's module whose stages are used: nodes are ready at once and renew their leases, Pods
// run, complete and end at once.
var stageFolders = []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"}

// stages copies kwok's own stages out of its module.
func (b *builder) stages(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	cmd.Dir = filepath.Join(b.build, "kwok")
	cmd.Env = append(os.Environ(), environment()...)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("finding the module of kwok: %w", err)
	}
	text, err := gather(os.DirFS(filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage")), stageFolders)
	if err != nil {
		return fmt.Errorf("the stages of kwok: %w", err)
	}
	return writeWhole(b.dir.Path(stages), text, 0o644)
}

// gather joins the stages of folders into one file of several documents.
func gather(fsys fs.FS, folders []string) ([]byte, error) {
	var all bytes.Buffer
	for _, folder := range folders {
		names, err := fs.Glob(fsys, folder+"/*.yaml")
		if err != nil {
			return nil, err
		}
		found := false
		for _, name := range names {
			text, err := fs.ReadFile(fsys, name)
			if err != nil {
				return nil, err
			}
			if !bytes.Contains(text, []byte("kind: Stage")) {
				continue // kustomization.yaml
			}
			found = true
			all.WriteString("---\n")
			all.Write(bytes.TrimPrefix(text, []byte("---\n")))
			all.WriteString("\n")
		}
		if !found {
			return nil, fmt.Errorf("%s holds none: %w", folder, errors.ErrUnsupported)
		}
	}
	return all.Bytes(), nil
}
