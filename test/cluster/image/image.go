// Package image writes container images without a registry, a daemon or a base image: a tar file in the OCI image layout
// with one layer of given files, as `ctr images import` and `docker load` take it.
// Format: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is what an image holds and how it is run.
type Image struct {
	Name       string // with its tag: "weft.local/probe:1"
	Files      []File
	Entrypoint []string
	Env        []string // "NAME=value"
	User       string   // "65532:65532"; "" is root
	Dir        string   // working directory; "" is /
}

// File is one file of an image.
type File struct {
	Path string      // in the image, absolute
	From string      // path here of what it holds; symbolic links are followed
	Text []byte      // what it holds when From is ""
	Mode fs.FileMode // permissions; 0 is 0755 for what comes from a file here, and 0644 for a text
}

// users are in every image: programs look up who they are.
const (
	passwd = "root:x:0:0:root:/:/none\nnobody:x:65534:65534:nobody:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n"
	group  = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// Write writes the image. The same files give the same bytes, whoever owns them and whenever they were made.
func (i Image) Write(w io.Writer) error {
	entries, err := i.entries()
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	layer, err := measure(entries)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	config, err := json.Marshal(i.config(layer.Digest))
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(manifest{2, typeManifest, describe(typeConfig, config), []descriptor{layer}, nil})
	if err != nil {
		return err
	}
	at := describe(typeManifest, manifest)
	at.Platform = &platform{runtime.GOARCH, "linux"}
	at.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name}
	index, err := json.Marshal(struct {
		Version   int          `json:"schemaVersion"`
		Type      string       `json:"mediaType"`
		Manifests []descriptor `json:"manifests"`
	}{2, typeIndex, []descriptor{at}})
	if err != nil {
		return err
	}
	return i.layout(w, entries, layer, []blob{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index},
		{blobPath(at.Digest), manifest}, {blobPath(describe(typeConfig, config).Digest), config},
	})
}

// blob is a file of the layout.
type blob struct {
	name string
	text []byte
}

// layout writes the outer tar file: the small blobs, and the layer again while it is checked against what was measured.
func (i Image) layout(w io.Writer, entries []entry, layer descriptor, small []blob) error {
	outer := tar.NewWriter(w)
	for _, b := range small {
		if err := put(outer, &tar.Header{Name: b.name, Mode: 0o644, Size: int64(len(b.text))}, b.text); err != nil {
			return err
		}
	}
	if err := outer.WriteHeader(&tar.Header{Name: blobPath(layer.Digest), Mode: 0o644, Size: layer.Size}); err != nil {
		return err
	}
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(outer, sum), entries); err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != layer.Digest {
		return fmt.Errorf("image %s: a file changed while it was read", i.Name)
	}
	return outer.Close()
}

// entry is a file or folder of the layer.
type entry struct {
	header tar.Header
	file   File
}

// entries are the files with their folders, in order of path, after what every image has.
func (i Image) entries() ([]entry, error) {
	files := slices.Concat([]File{
		{Path: "/etc/passwd", Text: []byte(passwd)}, {Path: "/etc/group", Text: []byte(group)},
	}, i.Files)
	byPath := map[string]entry{"tmp/": {header: tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}}}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("%q is no absolute path of a file in an image", f.Path)
		}
		e, err := f.entry()
		if err != nil {
			return nil, err
		}
		byPath[e.header.Name] = e // a later file of that path wins
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			name := strings.TrimPrefix(dir, "/") + "/"
			if _, is := byPath[name]; !is {
				byPath[name] = entry{header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}}
			}
		}
	}
	list := make([]entry, 0, len(byPath))
	for name, e := range byPath {
		if _, both := byPath[name+"/"]; both {
			return nil, fmt.Errorf("/%s is a file and a folder", name)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.header.Name, b.header.Name) })
	return list, nil
}

func (f File) entry() (entry, error) {
	h := tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Typeflag: tar.TypeReg, Mode: int64(f.Mode.Perm()), Size: int64(len(f.Text))}
	if f.From == "" {
		if f.Mode == 0 {
			h.Mode = 0o644
		}
		return entry{h, f}, nil
	}
	if f.Mode == 0 {
		h.Mode = 0o755
	}
	info, err := os.Stat(f.From)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("%s is no regular file", f.From)
	}
	h.Size = info.Size()
	return entry{h, f}, nil
}

// measure is the descriptor of the layer that the entries make.
func measure(entries []entry) (descriptor, error) {
	sum, n := sha256.New(), count(0)
	if err := writeLayer(io.MultiWriter(sum, &n), entries); err != nil {
		return descriptor{}, err
	}
	return descriptor{Type: typeLayer, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: int64(n)}, nil
}

// count counts what is written to it.
type count int64

func (c *count) Write(p []byte) (int, error) {
	*c += count(len(p))
	return len(p), nil
}

func writeLayer(w io.Writer, entries []entry) error {
	layer := tar.NewWriter(w)
	for _, e := range entries {
		if e.file.From == "" {
			if err := put(layer, &e.header, e.file.Text); err != nil {
				return err
			}
			continue
		}
		if err := copyFile(layer, e); err != nil {
			return err
		}
	}
	return layer.Close()
}

func copyFile(layer *tar.Writer, e entry) error {
	f, err := os.Open(e.file.From)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if err := layer.WriteHeader(&e.header); err != nil {
		return err
	}
	if _, err := io.CopyN(layer, f, e.header.Size); err != nil {
		return fmt.Errorf("%s: %w", e.file.From, err)
	}
	return nil
}

func put(w *tar.Writer, h *tar.Header, text []byte) error {
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}
