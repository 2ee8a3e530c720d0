package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// contents reads a tar file into memory: names in order, headers and texts by name.
func contents(t rapid.TB, text []byte) (names []string, headers map[string]tar.Header, texts map[string][]byte) {
	t.Helper()
	headers, texts = map[string]tar.Header{}, map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(text))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, headers, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := headers[h.Name]; twice {
			t.Fatalf("%s is there twice", h.Name)
		}
		names = append(names, h.Name)
		headers[h.Name], texts[h.Name] = *h, body
	}
}

// follow reads a blob and holds it against its descriptor.
func follow(t rapid.TB, texts map[string][]byte, d descriptor, kind string, into any) []byte {
	t.Helper()
	text, ok := texts[blobPath(d.Digest)]
	if !ok {
		t.Fatalf("no blob %s", d.Digest)
	}
	sum := sha256.Sum256(text)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest || int64(len(text)) != d.Size || d.Type != kind {
		t.Fatalf("a blob of %d bytes, %s, is described as %+v; its kind should be %s", len(text), got, d, kind)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

// read takes an image apart, as a runtime does: index, manifest, config, layer.
func read(t rapid.TB, text []byte) (index descriptor, c config, names []string, headers map[string]tar.Header, files map[string][]byte) {
	t.Helper()
	_, _, outer := contents(t, text)
	var top struct {
		Version   int          `json:"schemaVersion"`
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(outer["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	if string(outer["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` || top.Version != 2 || len(top.Manifests) != 1 {
		t.Fatalf("oci-layout %s, index %+v", outer["oci-layout"], top)
	}
	var m manifest
	follow(t, outer, top.Manifests[0], typeManifest, &m)
	follow(t, outer, m.Config, typeConfig, &c)
	if len(m.Layers) != 1 || !slices.Equal(c.RootFS.Layers, []string{m.Layers[0].Digest}) {
		t.Fatalf("layers %+v, in the config %v", m.Layers, c.RootFS.Layers)
	}
	if len(outer) != 5 {
		t.Fatalf("%d files in the layout, not five", len(outer))
	}
	names, headers, files = contents(t, follow(t, outer, m.Layers[0], typeLayer, nil))
	return top.Manifests[0], c, names, headers, files
}

func write(t rapid.TB, i Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := i.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImageReadsBack(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := Image{
		Name: "weft.local/test:1", Entrypoint: []string{"/bin/program", "-x"}, Env: []string{"A=b"}, User: "65532:65532", Dir: "/data",
		Files: []File{
			{Path: "/bin/program", From: program}, {Path: "/data/deep/er/text", Text: []byte("hello")},
			{Path: "/secret", Text: []byte("s"), Mode: 0o400},
		},
	}
	index, c, names, headers, files := read(t, write(t, i))
	if index.Annotations["io.containerd.image.name"] != i.Name || *index.Platform != (platform{runtime.GOARCH, "linux"}) {
		t.Errorf("the manifest is described as %+v", index)
	}
	if diff := cmp.Diff(process{"65532:65532", []string{"A=b"}, []string{"/bin/program", "-x"}, "/data"}, c.Config); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"bin/", "bin/program", "data/", "data/deep/", "data/deep/er/", "data/deep/er/text", "etc/", "etc/group", "etc/passwd", "secret", "tmp/",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	for name, mode := range map[string]int64{
		"bin/": 0o755, "bin/program": 0o755, "data/deep/er/text": 0o644, "secret": 0o400, "tmp/": 0o1777,
	} {
		if headers[name].Mode != mode {
			t.Errorf("%s has mode %o, want %o", name, headers[name].Mode, mode)
		}
	}
	if string(files["bin/program"]) != "a program" || string(files["data/deep/er/text"]) != "hello" ||
		!strings.Contains(string(files["etc/passwd"]), "nonroot:x:65532") {
		t.Errorf("files hold %q", files)
	}
}

// TestImageIsWholeAndTheSame writes random files in two orders: the images are the same and hold every file.
func TestImageIsWholeAndTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOf(rapid.StringMatching(`/[a-c]/[a-d]{1,3}`), rapid.SliceOfN(rapid.Byte(), 0, 2000)).Draw(t, "files")
		i := Image{Name: "weft.local/r:1"}
		for path, text := range texts {
			i.Files = append(i.Files, File{Path: path, Text: text})
		}
		first := write(t, i)
		slices.Reverse(i.Files)
		if !bytes.Equal(first, write(t, i)) {
			t.Fatal("the order of files matters")
		}
		_, _, _, _, files := read(t, first)
		for path, text := range texts {
			if got, ok := files[path[1:]]; !ok || !bytes.Equal(got, text) {
				t.Fatalf("%s: %d bytes became %d", path, len(text), len(got))
			}
		}
	})
}

func TestImageRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"relative":    {[]File{{Path: "bin/x"}}, "no absolute path"},
		"climbing":    {[]File{{Path: "/a/../../etc/x"}}, "no absolute path"},
		"root":        {[]File{{Path: "/a/"}}, "no absolute path"},
		"absent":      {[]File{{Path: "/x", From: filepath.Join(dir, "none")}}, "no such file"},
		"folder":      {[]File{{Path: "/x", From: dir}}, "no regular file"},
		"file as dir": {[]File{{Path: "/x", Text: []byte("x")}, {Path: "/x/y", Text: []byte("y")}}, "a file and a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Image{Name: "n", Files: c.files}.Write(io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
}

// TestImageNoticesChange lets a file grow between the two readings.
func TestImageNoticesChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("a"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := false
	err := Image{Name: "n", Files: []File{{Path: "/f", From: path}}}.Write(writerFunc(func(p []byte) (int, error) {
		if !changed {
			changed = true
			if err := os.WriteFile(path, bytes.Repeat([]byte("b"), 1<<20), 0o600); err != nil {
				t.Error(err)
			}
		}
		return len(p), nil
	}))
	if err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestResolved(t *testing.T) {
	got, err := resolved("\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n" +
		"\t/opt/own dir/libx.so (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n" +
		"\tlibld.so => /lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tstatically linked\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/lib/x86_64-linux-gnu/libm.so.6", "/opt/own dir/libx.so", "/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := resolved("\tlibnone.so.1 => not found\n"); err == nil || !strings.Contains(err.Error(), "libnone.so.1") {
		t.Errorf("a library that is not found gives %v", err)
	}
}

// TestProgramRuns runs a dynamically linked program in a folder that holds nothing but what its image would.
func TestProgramRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can change the root folder")
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Skip("SKIPPED: there is no chroot")
	}
	source, program := filepath.Join(t.TempDir(), "p.c"), filepath.Join(t.TempDir(), "p")
	text := "#include <math.h>\n#include <stdio.h>\nint main(int c, char **v) { printf(\"%.3f\\n\", cbrt(c * 27.0)); return 0; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-o", program, source, "-lm").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	files, err := Program(context.Background(), program, "/bin/p")
	if err != nil {
		t.Fatal(err)
	}
	_, _, names, _, texts := read(t, write(t, Image{Name: "n", Files: files}))
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, texts[name], 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(chroot, root, "/bin/p").CombinedOutput()
	if err != nil || string(out) != "3.000\n" {
		t.Errorf("%v, %q; the image holds %v", err, out, names)
	}
}

func TestProgramStatic(t *testing.T) {
	source, program := filepath.Join(t.TempDir(), "p.c"), filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-static", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	files, err := Program(context.Background(), program, "/p")
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Program(context.Background(), source, "/p"); err == nil {
		t.Error("a text is taken for a program")
	}
}
