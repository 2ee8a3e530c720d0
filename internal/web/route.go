package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
)

// handler answers a question of a caller. What it returns is told as a refusal; nothing may have been written then.
type handler func(w http.ResponseWriter, r *http.Request, c box.Caller) error

// answerTime is how long a reader may take for an answer that is no stream.
const answerTime = 30 * time.Second

// routes is the API, the figures and the page, for callers that are known.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]handler{
		"/v1/status":            {http.MethodGet: s.status},
		"/v1/jobs":              {http.MethodGet: s.jobs, http.MethodPost: s.submit},
		"/v1/jobs/{id}":         {http.MethodGet: s.job},
		"/v1/jobs/{id}/explain": {http.MethodGet: s.explain},
		"/v1/jobs/{id}/stop":    {http.MethodPost: s.stopJob},
		"/v1/jobs/{id}/wait":    {http.MethodGet: s.wait},
		"/v1/jobs/{id}/log":     {http.MethodGet: s.log},
		"/v1/gpus":              {http.MethodGet: s.gpus},
		"/v1/gpus/{gpu}/drain":  {http.MethodPost: s.drain},
		"/v1/events":            {http.MethodGet: s.events},
		"/v1/history":           {http.MethodGet: s.history},
		"/v1/stream":            {http.MethodGet: s.stream},
		"/metrics":              {http.MethodGet: s.figures},
		"/v1":                   {},
		"/v1/":                  {},
		"/":                     {http.MethodGet: s.page.serve},
	} {
		mux.Handle(path, s.methods(methods))
	}
	return mux
}

// methods chooses by method.
func (s *Server) methods(of map[string]handler) http.Handler {
	var allowed []string
	for method := range of {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline := http.NewResponseController(w)
		_ = deadline.SetWriteDeadline(time.Now().Add(answerTime)) // a writer of tests has none
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		answer, ok := of[method]
		switch {
		case len(allowed) == 0:
			s.refuse(w, &box.Error{Kind: box.NotFound, Code: "no_path", Message: "there is no " + r.URL.Path, Fix: "docs/web.md lists what there is"})
		case !ok:
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.refuse(w, &statusError{http.StatusMethodNotAllowed, box.Error{Kind: box.BadInput, Code: "method", Message: r.Method + " is not for " + r.URL.Path,
				Fix: strings.Join(allowed, " or ")}})
		default:
			if err := answer(w, r, callerOf(r.Context())); err != nil {
				s.refuse(w, err)
			}
		}
	})
}
