package web

import (
	"errors"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusals holds what is asked over TCP by whom it should not be.
func TestRefusals(t *testing.T) {
	s := newSite(t, newMemory(t))
	submit(t, s.client(), "a")
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				switch pairs[i] {
				case "Host":
					r.Host = pairs[i+1]
				case "":
				default:
					r.Header.Set(pairs[i], pairs[i+1])
				}
			}
		}
	}
	noToken := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Authorization")
			header(pairs...)(r)
		}
	}
	own := "weft_" + s.port + "="
	wrong := strings.Repeat("B", len(testToken))
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		status       int
	}{
		"token":                          {"GET", "/v1/status", nil, 200},
		"cookie":                         {"GET", "/v1/status", noToken("Cookie", own+testToken), 200},
		"two cookies":                    {"GET", "/v1/status", noToken("Cookie", own+"x; "+own+testToken), 200},
		"bearer in small letters":        {"GET", "/v1/status", noToken("Authorization", "bearer "+testToken), 200},
		"no token":                       {"GET", "/v1/status", noToken(), 401},
		"no token, page":                 {"GET", "/", noToken(), 401},
		"no token, asset":                {"GET", "/assets/page.js", noToken(), 401},
		"no token, metrics":              {"GET", "/metrics", noToken(), 401},
		"no token, stream":               {"GET", "/v1/stream", noToken(), 401},
		"no token, stop":                 {"POST", "/v1/jobs/1/stop", noToken(), 401},
		"no token, no path":              {"GET", "/v1/nothing", noToken(), 401},
		"wrong token":                    {"GET", "/v1/status", noToken("Authorization", "Bearer "+wrong), 401},
		"empty token":                    {"GET", "/v1/status", noToken("Authorization", "Bearer "), 401},
		"half a token":                   {"GET", "/v1/status", noToken("Authorization", "Bearer "+testToken[:20]), 401},
		"longer token":                   {"GET", "/v1/status", noToken("Authorization", "Bearer "+testToken+"A"), 401},
		"two schemes":                    {"GET", "/v1/status", noToken("Authorization", "Basic "+testToken), 401},
		"wrong cookie":                   {"GET", "/v1/status", noToken("Cookie", own+wrong), 401},
		"cookie of another port":         {"GET", "/v1/status", noToken("Cookie", "weft_1="+testToken), 401},
		"wrong bearer beside a cookie":   {"GET", "/v1/status", noToken("Authorization", "Bearer x", "Cookie", own+testToken), 401},
		"token in the address of an API": {"GET", "/v1/status?token=" + testToken, noToken(), 401},
		"wrong token in the address":     {"GET", "/?token=" + wrong, noToken(), 401},
		"wrong token beside a cookie":    {"GET", "/?token=" + wrong, header("Cookie", own+testToken), 401},
		"empty token in the address":     {"GET", "/?token=", noToken(), 401},
		"two tokens in the address":      {"GET", "/?token=" + testToken + "&token=" + testToken, noToken(), 401},
		"login by POST":                  {"POST", "/?token=" + testToken, noToken(), 401},
		"login":                          {"GET", "/?token=" + testToken, noToken(), 303},

		"localhost":               {"GET", "/v1/status", header("Host", "localhost:"+s.port), 200},
		"localhost in capitals":   {"GET", "/v1/status", header("Host", "LOCALHOST:"+s.port), 200},
		"a forwarded port":        {"GET", "/v1/status", header("Host", "localhost:9999"), 200},
		"loopback":                {"GET", "/v1/status", header("Host", "127.0.0.1:"+s.port), 200},
		"loopback, version 6":     {"GET", "/v1/status", header("Host", "[::1]:"+s.port), 200},
		"foreign Host":            {"GET", "/v1/status", header("Host", "evil.example:"+s.port), 403},
		"foreign Host, no token":  {"GET", "/v1/status", noToken("Host", "evil.example"), 403},
		"foreign Host, login":     {"GET", "/?token=" + testToken, noToken("Host", "evil.example"), 403},
		"foreign Host, metrics":   {"GET", "/metrics", header("Host", "evil.example"), 403},
		"Host like localhost":     {"GET", "/v1/status", header("Host", "localhost.evil.example"), 403},
		"Host that resolves here": {"GET", "/v1/status", header("Host", "127.0.0.1.nip.io:"+s.port), 403},
		"Host with a point":       {"GET", "/v1/status", header("Host", "localhost.:"+s.port), 403},
		"another address":         {"GET", "/v1/status", header("Host", "192.0.2.1:"+s.port), 403},
		"unspecified":             {"GET", "/v1/status", header("Host", "0.0.0.0:"+s.port), 403},

		"own Origin":                {"POST", "/v1/jobs/1/stop", header("Origin", s.url), 200},
		"own Origin, forwarded":     {"POST", "/v1/jobs/1/stop", header("Host", "localhost:9999", "Origin", "http://localhost:9999"), 200},
		"foreign Origin":            {"POST", "/v1/jobs/1/stop", header("Origin", "http://evil.example"), 403},
		"foreign Origin, GET":       {"GET", "/v1/jobs", header("Origin", "http://evil.example"), 403},
		"foreign Origin, no token":  {"GET", "/v1/jobs", noToken("Origin", "http://evil.example"), 403},
		"foreign Origin, preflight": {"OPTIONS", "/v1/jobs", noToken("Origin", "http://evil.example", "Access-Control-Request-Method", "POST"), 403},
		"Origin of another port":    {"POST", "/v1/jobs/1/stop", header("Origin", "http://127.0.0.1:1"), 403},
		"Origin with TLS":           {"POST", "/v1/jobs/1/stop", header("Origin", "https://127.0.0.1:"+s.port), 403},
		"Origin null":               {"POST", "/v1/jobs/1/stop", header("Origin", "null"), 403},
		"Origin empty":              {"POST", "/v1/jobs/1/stop", func(r *http.Request) { r.Header["Origin"] = []string{""} }, 403},
		"two Origins":               {"POST", "/v1/jobs/1/stop", func(r *http.Request) { r.Header["Origin"] = []string{s.url, s.url} }, 403},
		"another site's form":       {"POST", "/v1/jobs/1/stop", header("Sec-Fetch-Site", "cross-site"), 403},
		"another port's form":       {"POST", "/v1/jobs/1/stop", header("Sec-Fetch-Site", "same-site"), 403},
		"a link on another site":    {"GET", "/", header("Sec-Fetch-Site", "cross-site"), 200},
	} {
		a := s.ask(c.method, c.path, c.change)
		if a.status != c.status {
			t.Errorf("%s: %s %s: %d, want %d: %s", name, c.method, c.path, a.status, c.status, a.text)
		}
		for header, want := range securityHeaders {
			if got := a.header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other origins are let in", name)
		}
		if a.status >= 400 && strings.Contains(a.text, testToken) {
			t.Errorf("%s: the token is told: %s", name, a.text)
		}
		if strings.HasPrefix(c.path, "/v1/") && c.status >= 400 && code(a.text) == "" {
			t.Errorf("%s: no code in %q", name, a.text)
		}
	}
}

func TestNoTokenNoEntry(t *testing.T) {
	s := New(newMemory(t), Options{})
	g := s.gate(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer x"} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/status", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("a server without a token lets %q in: %d", header, w.Code)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	s := newSite(t, newMemory(t))
	s.down()
	s.o.OpenMetrics = true
	s.up()
	for path, want := range map[string]int{"/metrics": 200, "/v1/status": 403, "/": 403} {
		a := s.ask("GET", path, func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Host = "box1.example:9400"
		})
		if a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	if a := s.ask("GET", "/metrics", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }); a.status != http.StatusForbidden {
		t.Errorf("another page reads the figures: %d", a.status)
	}
}

// TestLogin opens the page as a browser does.
func TestLogin(t *testing.T) {
	s := newSite(t, newMemory(t))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (status int, asked *http.Request) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode, answer.Request
	}
	if status, _ := get("/"); status != http.StatusUnauthorized {
		t.Errorf("before the login: %d", status)
	}
	status, asked := get("/?token=" + testToken)
	if status != http.StatusOK || asked.URL.RawQuery != "" {
		t.Errorf("login: %d at %s", status, asked.URL)
	}
	if set := asked.Response.Header.Get("Set-Cookie"); !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") || !strings.Contains(set, "Path=/;") {
		t.Errorf("cookie: %s", set)
	}
	s.down()
	s.up()
	if status, _ := get("/v1/status"); status != http.StatusOK {
		t.Errorf("after a restart: %d", status)
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	first, err := Token(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, tokenName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if again, err := Token(dir); err != nil || again != first {
		t.Errorf("the token changed: %q, %q, %v", first, again, err)
	}
	for name, spoil := range map[string]func() error{
		"others may read it": func() error { return os.Chmod(path, 0o644) },
		"it is cut":          func() error { return os.WriteFile(path, []byte(first[:10]), 0o600) },
		"it is empty":        func() error { return os.Truncate(path, 0) },
		"it is a link": func() error {
			return errors.Join(os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path))
		},
	} {
		before, err := Token(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		after, err := Token(dir)
		if err != nil || after == before || len(after) != len(first) {
			t.Errorf("%s: %q, then %q, %v", name, before, after, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := Token(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a token in a folder that there is not")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 { // and the one elsewhere
		t.Errorf("what is left: %v, %v", entries, err)
	}
}

func TestPageURL(t *testing.T) {
	for want, got := range map[string]string{
		"http://127.0.0.1:7070/?token=abc": PageURL(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070}, "abc"),
		"http://[::1]:7070/":               PageURL(&net.TCPAddr{IP: net.IPv6loopback, Port: 7070}, ""),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := PageURL(&net.TCPAddr{IP: net.IPv6unspecified, Port: 1}, ""); strings.Contains(got, "[::]") {
		t.Errorf("nobody can open %s", got)
	}
}
