package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
)

// query reads the parameters of a question. The first fault is kept; what is read after it is the default.
type query struct {
	values url.Values
	err    error
}

// queryOf reads a query that may have the named parameters, once each.
func queryOf(r *http.Request, names ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.err = bad("query", r.URL.RawQuery, "the query cannot be read: "+err.Error(), "name=value&name=value, percent-encoded")
		return q
	}
	for name, given := range values {
		switch {
		case !slices.Contains(names, name):
			fix := "this path has none"
			if len(names) > 0 {
				fix = strings.Join(names, ", ")
			}
			q.err = bad(name, given[0], "there is no parameter "+strconv.Quote(name)+" of "+r.URL.Path, fix)
		case len(given) > 1:
			q.err = bad(name, given[1], "parameter "+name+" is there twice", "give it once")
		}
	}
	return q
}

// fault keeps the first fault.
func (q *query) fault(name, fix string) {
	if q.err == nil {
		value := q.values.Get(name)
		q.err = bad(name, value, name+" "+strconv.Quote(value)+" cannot be", fix)
	}
}

// text is a parameter as it is, "" when it is not given.
func (q *query) text(name string) string { return q.values.Get(name) }

// flag is whether a parameter is 1 or true.
func (q *query) flag(name string) bool {
	switch q.values.Get(name) {
	case "1", "true":
		return true
	case "", "0", "false":
	default:
		q.fault(name, "1 or 0")
	}
	return false
}

// whole is a number in a range, or its default.
func (q *query) whole(name string, least, most, otherwise int64) int64 {
	text := q.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		q.fault(name, "a whole number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
		return otherwise
	}
	return n
}

// number is the number of an event, 0 when it is not given.
func (q *query) number(name string) uint64 {
	text := q.values.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.fault(name, "the seq of an event")
	}
	return n
}

// ago is the time that a duration before now was, zero when it is not given.
func (q *query) ago(name string, now time.Time) time.Time {
	text := q.values.Get(name)
	if text == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		q.fault(name, "a duration, as 1h30m")
		return time.Time{}
	}
	return now.Add(-d)
}

// idOf is the ID in a path, written as weft writes it.
func idOf(r *http.Request) (box.ID, error) {
	text := r.PathValue("id")
	n, err := strconv.ParseUint(text, 10, 64)
	if id := box.ID(n); err == nil && id.String() == text {
		return id, nil
	}
	return 0, bad("ID", text, "a job has a number for its ID, not "+strconv.Quote(text), "weft ps lists them")
}

// gpuOf is the GPU in a path: 2 or gpu2.
func gpuOf(r *http.Request) (int, error) {
	text := r.PathValue("gpu")
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "gpu"), 10, 16)
	if err != nil {
		return 0, bad("GPU", text, "a GPU has a number, not "+strconv.Quote(text), "weft gpus lists them")
	}
	return int(n), nil
}
