package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"weft.dev/weft/internal/box"
)

// gate lets in who asks over TCP: a browser or program that has the token. The order of its questions: does the request mean
// this server (a name that an attacker's DNS points here does not), does it come from this server's own page, has it the token.
func (s *Server) gate(address net.Addr) http.Handler {
	g := &gate{s: s, cookie: cookieName(address), token: sha256.Sum256([]byte(s.o.Token))}
	if host, err := os.Hostname(); err == nil {
		g.host = strings.ToLower(host)
	}
	return g
}

type gate struct {
	s      *Server
	host   string // name of this machine
	cookie string
	token  [sha256.Size]byte
}

// cookieName differs by port: cookies do not.
func cookieName(address net.Addr) string {
	if _, port, err := net.SplitHostPort(address.String()); err == nil {
		return "weft_" + port
	}
	return "weft"
}

// securityHeaders are on every answer over TCP.
var securityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range securityHeaders {
		w.Header().Set(name, value)
	}
	open := g.s.o.OpenMetrics && r.URL.Path == "/metrics"
	switch {
	case !open && !g.isMine(r):
		g.refuse(w, r, http.StatusForbidden, "foreign_host", "requests for "+quoteShort(r.Host)+" are not for this server")
	case !isSameOrigin(r):
		g.refuse(w, r, http.StatusForbidden, "foreign_origin", "another page may not ask here")
	case open:
		g.pass(w, r)
	case r.URL.Path == "/" && r.URL.Query().Has("token"):
		g.login(w, r)
	case g.knows(r):
		g.pass(w, r)
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="weft"`)
		g.refuse(w, r, http.StatusUnauthorized, "no_token", "this needs the token")
	}
}

// pass serves a request with the rights of the daemon's user.
func (g *gate) pass(w http.ResponseWriter, r *http.Request) {
	caller := box.Caller{UID: g.s.uid, GID: os.Getegid(), Admin: true}
	g.s.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
}

// refuse says what to do instead. It answers people with a line, programs with JSON.
func (g *gate) refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	const fix = "open the URL that weft up printed"
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, message+": "+fix, status)
		return
	}
	g.s.refuse(w, &statusError{status, box.Error{Kind: box.Forbidden, Code: code, Message: message, Fix: fix}})
}

// isMine says whether a request's Host names this server: an address of this machine that it came in by, a name of it, or localhost
// (at any port: it may be forwarded).
func (g *gate) isMine(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	host = strings.ToLower(host)
	if host == "localhost" || host != "" && host == g.host {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	own, err := netip.ParseAddrPort(local.String())
	return err == nil && own.Addr().Unmap().WithZone("") == ip.Unmap()
}

// isSameOrigin says whether a request comes from this server's own page, or from no page.
func isSameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	return len(origins) <= 1 && (safe || site == "" || site == "same-origin" || site == "none")
}

// knows says whether a request carries the token.
func (g *gate) knows(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return g.isToken(token)
	}
	for _, c := range r.CookiesNamed(g.cookie) {
		if g.isToken(c.Value) {
			return true
		}
	}
	return false
}

// isToken compares in constant time.
func (g *gate) isToken(given string) bool {
	sum := sha256.Sum256([]byte(given))
	return g.s.o.Token != "" && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}

// loginSeconds is how long a browser keeps the cookie.
const loginSeconds = 30 * 24 * 3600

// login turns a token in the address into a cookie, and the address into one without it.
func (g *gate) login(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query()["token"]
	if r.Method != http.MethodGet || len(given) != 1 || !g.isToken(given[0]) {
		g.refuse(w, r, http.StatusUnauthorized, "wrong_token", "this is not the token")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: given[0], Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: loginSeconds})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", "/")
	w.WriteHeader(http.StatusSeeOther)
}

// quoteShort is a text of others, safe to show.
func quoteShort(text string) string {
	const most = 60
	if len(text) > most {
		text = text[:most]
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
}
