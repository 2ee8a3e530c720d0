package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
)

//go:embed all:dist
var bundle embed.FS

// built is the page that is built in.
func built() fs.FS {
	sub, err := fs.Sub(bundle, "dist")
	if err != nil {
		return bundle // it cannot be: the name is a constant
	}
	return sub
}

const indexName = "index.html"

// page is the files of the page, held in memory with their tags.
type page struct{ files map[string]*asset }

// asset is one file.
type asset struct {
	kind       string
	tag        string // of its bytes
	plain      []byte
	compressed []byte // nil where that is no shorter
	immutable  bool
}

// newPage reads all files. What cannot be read is not there.
func newPage(from fs.FS) *page {
	p := &page{files: map[string]*asset{}}
	_ = fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error { // it only returns what is returned here
		if err != nil || d.IsDir() {
			return nil // the rest is served
		}
		if data, err := fs.ReadFile(from, name); err == nil {
			p.files[name] = newAsset(name, data)
		}
		return nil
	})
	if p.files[indexName] == nil {
		p.files[indexName] = newAsset("index.txt", []byte("weft runs. Its page is not built in: make page, then build weft again. The API is at /v1/.\n"))
	}
	return p
}

// hashed is a name that changes with the content.
var hashed = regexp.MustCompile(`[-.][0-9A-Za-z_-]{8,}\.[a-z0-9]+$`)

func newAsset(name string, data []byte) *asset {
	sum := sha256.Sum256(data)
	a := &asset{kind: kindOf(name), plain: data, tag: base64.RawURLEncoding.EncodeToString(sum[:12]), immutable: hashed.MatchString(name)}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return a
	}
	if _, err := z.Write(data); err == nil && z.Close() == nil && small.Len() < len(data)*9/10 {
		a.compressed = small.Bytes()
	}
	return a
}

// kindOf is the type of a file by its name. The machine's own list of types has no say.
func kindOf(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".json", ".map", ".webmanifest":
		return "application/json"
	case ".woff2":
		return "font/woff2"
	case ".png", ".ico":
		return mime.TypeByExtension(".png")
	}
	return "application/octet-stream"
}

// serve sends a file of the page. Paths that name none give its start, which knows what to show.
func (p *page) serve(w http.ResponseWriter, r *http.Request, _ box.Caller) error {
	name := strings.TrimPrefix(r.URL.Path, "/")
	a := p.files[name]
	if a == nil {
		if path.Ext(name) != "" || strings.HasPrefix(name, "assets/") {
			return &box.Error{Kind: box.NotFound, Code: "no_path", Message: "there is no /" + quoteShort(name), Fix: "/ is the page"}
		}
		a = p.files[indexName]
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if a.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	data, tag := a.plain, a.tag
	if a.compressed != nil && acceptsGzip(r) {
		data, tag = a.compressed, a.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Etag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}

// acceptsGzip says whether a reader takes gzip.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q := strings.ReplaceAll(strings.TrimSpace(weight), " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}
