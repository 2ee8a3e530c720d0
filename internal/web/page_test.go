package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
)

func TestPage(t *testing.T) {
	script := "console.log('" + strings.Repeat("weft ", 1000) + "')"
	s := newSite(t, newMemory(t))
	s.down()
	s.o.Page = fstest.MapFS{
		"index.html":                   {Data: []byte("<!doctype html><title>weft</title>")},
		"assets/page.js":               {Data: []byte(script)},
		"assets/page-a1B2c3D4.css":     {Data: []byte("body{}")},
		"assets/icon.svg":              {Data: []byte("<svg/>")},
		"assets/font-0123456789.woff2": {Data: []byte("f")},
	}
	s.up()
	for path, c := range map[string]struct {
		status      int
		kind, cache string
	}{
		"/":                             {200, "text/html; charset=utf-8", "no-cache"},
		"/index.html":                   {200, "text/html; charset=utf-8", "no-cache"},
		"/jobs/42":                      {200, "text/html; charset=utf-8", "no-cache"},
		"/assets/page.js":               {200, "text/javascript; charset=utf-8", "no-cache"},
		"/assets/page-a1B2c3D4.css":     {200, "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		"/assets/icon.svg":              {200, "image/svg+xml", "no-cache"},
		"/assets/font-0123456789.woff2": {200, "font/woff2", "public, max-age=31536000, immutable"},
		"/assets/nothing":               {404, "application/json", "no-store"},
		"/nothing.js":                   {404, "application/json", "no-store"},
		"/%2e%2e/%2e%2e/etc/passwd":     {200, "text/html; charset=utf-8", "no-cache"},
		"/..%2fmain_test.go":            {404, "application/json", "no-store"},
		"/assets/%00":                   {404, "application/json", "no-store"},
	} {
		a := s.ask("GET", path, nil)
		if a.status == http.StatusMovedPermanently {
			a.status = http.StatusTemporaryRedirect // to the clean path, either way
		}
		if a.status != c.status || c.status != http.StatusTemporaryRedirect && (a.header.Get("Content-Type") != c.kind || a.header.Get("Cache-Control") != c.cache) {
			t.Errorf("%s: %d, %v: %.100s", path, a.status, a.header, a.text)
		}
	}
	plain := s.ask("GET", "/assets/page.js", nil)
	if plain.text != script || plain.header.Get("Content-Encoding") != "" {
		t.Errorf("uncompressed: %v", plain.header)
	}
	small := s.ask("GET", "/assets/page.js", func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip;q=0.5") })
	if small.header.Get("Content-Encoding") != "gzip" || len(small.text) >= len(script) || small.header.Get("Etag") == plain.header.Get("Etag") {
		t.Errorf("compressed: %v", small.header)
	}
	z, err := gzip.NewReader(strings.NewReader(small.text))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(z); err != nil || string(data) != script {
		t.Errorf("decompressed: %d bytes, %v", len(data), err)
	}
	if again := s.ask("GET", "/assets/page.js", func(r *http.Request) { r.Header.Set("If-None-Match", plain.header.Get("Etag")) }); again.status != http.StatusNotModified {
		t.Errorf("again: %d", again.status)
	}
	for accept, want := range map[string]bool{"": false, "gzip": true, "GZIP": true, "deflate, gzip": true, "gzip;q=0": false, "gzip; q=0.0": false, "xgzip": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", accept)
		if got := acceptsGzip(r); got != want {
			t.Errorf("Accept-Encoding %q: %v", accept, got)
		}
	}
}

func TestNoPage(t *testing.T) {
	p := newPage(fstest.MapFS{})
	if a := p.files[indexName]; a == nil || !strings.HasPrefix(a.kind, "text/plain") {
		t.Errorf("without a page: %+v", a)
	}
}

// TestBuiltPage holds what the page must not have under its Content-Security-Policy.
func TestBuiltPage(t *testing.T) {
	p := newPage(built())
	index := string(p.files[indexName].plain)
	if !strings.Contains(index, "<html") {
		t.Skip("the page is not built in")
	}
	for _, never := range []string{"<script>", "<style", " style=", " onclick=", "javascript:", "http://", "https://"} {
		if strings.Contains(index, never) {
			t.Errorf("index.html has %q", never)
		}
	}
	for name, a := range p.files {
		if a.kind == "application/octet-stream" {
			t.Errorf("%s has no type", name)
		}
	}
}
