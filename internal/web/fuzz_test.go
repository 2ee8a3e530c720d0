package web

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
)

// FuzzQuestion sends requests of any method, path and query, and holds that each is answered, with a code where it is refused.
func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{"/v1/jobs?all=1", "/v1/jobs/1", "/v1/jobs/1/wait?timeout_s=0&seen=x", "/v1/jobs/18446744073709551615", "/v1/gpus/gpu1/drain?off=1",
		"/v1/events?since=1h&after=3", "/v1/history?minutes=30", "/v1/jobs/%2e%2e/log?from=-1", "/v1/jobs?all=1;user=x", "/?token=x", "//v1/jobs", "/v1/jobs/1/explain/"} {
		f.Add("GET", seed)
	}
	f.Add("POST", "/v1/jobs/1/stop")
	f.Add("POST", "/v1/jobs")
	m := newMemory(f)
	if _, err := m.Submit(box.Caller{}, box.Spec{Floor: .5}); err != nil {
		f.Fatal(err)
	}
	m.finish(1)
	s := New(m, Options{})
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || strings.Contains(u.Path, "stream") || u.Query().Get("follow") != "" || strings.ContainsAny(method, " \r\n") || method == "" {
			t.Skip("it gets no further than net/http, or has no end")
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL, r.RequestURI = method, u, target
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r)
		if w.Code >= 400 && code(w.Body.String()) == "" && method != http.MethodHead {
			t.Fatalf("%s %s: %d without a code: %s", method, target, w.Code, w.Body)
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("%s %s: %s", method, target, w.Body)
		}
	})
}

// FuzzGate holds that nobody without the token gets in, whatever else he sends.
func FuzzGate(f *testing.F) {
	f.Add("GET", "/v1/status", "localhost", "Bearer x", "weft_80=x", "")
	f.Add("GET", "/?token=x", "[::1]:80", "bearer  "+testToken[1:], "weft_80=\"\"; weft_80", "http://localhost")
	f.Add("POST", "/metrics", "127.0.0.1", "Basic "+testToken, "weft_81="+testToken, "null")
	s := New(newMemory(f), Options{Token: testToken})
	g := s.gate(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})
	f.Fuzz(func(t *testing.T, method, target, host, authorization, cookie, origin string) {
		u, err := url.ParseRequestURI(target)
		carried := strings.Contains(authorization+"|"+target, testToken) || strings.Contains(cookie, "weft_80="+testToken) || strings.Contains(cookie, `weft_80="`+testToken)
		if err != nil || carried || method == "" {
			t.Skip("no request, or it has the token")
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL, r.Host = method, u, host
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Cookie", cookie)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized && w.Code != http.StatusForbidden {
			t.Fatalf("%s %s: %d", method, target, w.Code)
		}
		if w.Header().Get("Set-Cookie") != "" {
			t.Fatal("a cookie is set")
		}
	})
}

// FuzzHost holds that a Host that is let in is localhost, this machine's name, or an address.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1", "127.1", "0x7f.1", "[::ffff:127.0.0.1]:80", "localhost.evil", "evil@localhost", "::1", "[fe80::1%25lo]:80", "::1%0", ""} {
		f.Add(seed)
	}
	g := &gate{host: "box1"}
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if !g.isMine(r) {
			return
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.ToLower(strings.Trim(name, "[]"))
		if ip := net.ParseIP(name); name != "localhost" && name != "box1" && (ip == nil || !ip.IsLoopback()) {
			t.Fatalf("%q is let in", host)
		}
	})
}

// FuzzSpec and FuzzInput hold that what cannot be read is refused, and the rest is what was written.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"name":"a","command":["x"],"class":"burstable","floor":0.9,"gpus":1,"memory_bytes":1024,"max_time_ns":5,"array":{"first":0,"last":3}}`))
	f.Add([]byte(`{"class":7}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := specOf(data); err != nil && statusOf(box.BadInput) != http.StatusBadRequest {
			t.Fatal(err)
		}
	})
}

func FuzzInput(f *testing.F) {
	f.Add([]byte("{\"job\":1}\n"), 1)
	f.Add([]byte("{\"job\":-1}\n"), 1)
	f.Add([]byte("[]"), 0)
	f.Fuzz(func(t *testing.T, line []byte, descriptors int) {
		if _, err := inputOf(line, descriptors); err == nil && descriptors != 1 {
			t.Fatalf("%q with %d descriptors is taken", line, descriptors)
		}
	})
}

// FuzzQuery holds the ranges of what is read from a query.
func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=-5&c=1h&d=7")
	f.Add("b=99999999999999999999&c=-1h")
	f.Add("%")
	f.Fuzz(func(t *testing.T, raw string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = raw
		q, now := queryOf(r, "a", "b", "c", "d"), time.Now()
		_ = q.flag("a")
		n, since := q.whole("b", -3, 8, 2), q.ago("c", now)
		_ = q.number("d")
		if n < -3 || n > 8 || since.After(now) {
			t.Fatalf("%q: %d, %v", raw, n, since)
		}
	})
}

// FuzzRequest sends bytes to a server as they are: it must go on answering.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f.Add([]byte("POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{}"))
	f.Add([]byte("GET /v1/stream HTTP/1.0\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01"))
	s := newSite(f, newMemory(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = conn.Write(data)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return
		}
		_ = answer.Body.Close() // the connection goes anyway
		if answer.StatusCode == http.StatusInternalServerError {
			t.Fatalf("%q: %s", data, answer.Status)
		}
	})
}
