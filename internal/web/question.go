package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

const (
	mostBody    = 4 << 20          // bytes
	bodyTime    = 30 * time.Second // for all of a body
	longestPoll = 5 * 60           // seconds
	calmTime    = 50 * time.Millisecond
)

func (s *Server) status(w http.ResponseWriter, r *http.Request, _ box.Caller) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	return s.answer(w, s.box.Status())
}

func (s *Server) jobs(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	q := queryOf(r, "all", "user")
	all, user := q.flag("all"), q.text("user")
	if q.err != nil {
		return q.err
	}
	return s.answer(w, client.JobList{Schema: client.Schema, Jobs: some(s.box.Jobs(c, all, user))})
}

// some is a list that is not null as JSON.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, box.Error{Kind: box.BadInput, Code: "content_type",
			Message: "a job is handed in as application/json", Value: r.Header.Get("Content-Type"), Fix: "set Content-Type"}}
	}
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTime))            // a reader of tests has none
	defer func() { _ = deadline.SetReadDeadline(time.Time{}) }()      // likewise
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody)) // a shared buffer would hold a daemon's memory for good
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &statusError{http.StatusRequestEntityTooLarge, box.Error{Kind: box.BadInput, Code: "too_large",
			Message: fmt.Sprintf("a job of more than %d MiB", mostBody>>20), Why: "its environment and command are kept", Fix: "hand large inputs over as files"}}
	case err != nil:
		return bad("body", "", "the job did not arrive whole: "+err.Error(), "send it again")
	}
	spec, err := specOf(data)
	if err != nil {
		return err
	}
	ids, err := s.box.Submit(c, spec)
	if err != nil {
		return err
	}
	return s.answer(w, client.IDList{Schema: client.Schema, IDs: some(ids)})
}

// specOf reads a job. A key that is not known is refused: what it asks for would be left undone in silence.
func specOf(data []byte) (box.Spec, error) {
	var spec box.Spec
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	err := in.Decode(&spec)
	if err == nil {
		if _, more := in.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows it")
		}
	}
	if err != nil {
		return box.Spec{}, bad("body", "", "this is no job: "+err.Error(), "one JSON object with the keys of docs/web.md")
	}
	return spec, nil
}

// about answers a question about one job.
func about[T any](s *Server, w http.ResponseWriter, r *http.Request, c box.Caller, ask func(box.Caller, box.ID) (T, error)) error {
	id, err := idOf(r)
	if err != nil {
		return err
	}
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	answer, err := ask(c, id)
	if err != nil {
		return err
	}
	return s.answer(w, answer)
}

func (s *Server) job(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	return about(s, w, r, c, s.box.Job)
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	return about(s, w, r, c, s.box.Explain)
}

func (s *Server) stopJob(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	return about(s, w, r, c, s.box.Stop)
}

// wait answers once a job is done, once what is told of it is not what was seen, or when the time is over.
func (s *Server) wait(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	id, err := idOf(r)
	if err != nil {
		return err
	}
	q := queryOf(r, "timeout_s", "seen")
	limit, seen := q.whole("timeout_s", 0, longestPoll, 30), q.text("seen")
	if q.err != nil {
		return q.err
	}
	if !s.limits.polls.enter(c.UID, c.Admin) {
		return errBusy
	}
	defer s.limits.polls.leave(c.UID)
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(limit)*time.Second)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)() //nolint:contextcheck // it ends the request's context, and makes none
	job, err := s.await(ctx, c, id, seen)
	if err == nil && job.State != box.Done && s.life.Err() != nil {
		err = errStopping
	}
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // it waited
	return s.answer(w, job)
}

// await waits for a job until ctx ends.
func (s *Server) await(ctx context.Context, c box.Caller, id box.ID, seen string) (box.Job, error) {
	if seen == "" {
		return s.box.Wait(ctx, c, id)
	}
	at, over := context.WithCancel(ctx)
	over() // Wait then says how things are, to whom it may
	for {
		changed := s.box.Changed()
		job, err := s.box.Wait(at, c, id)
		if err != nil || job.State == box.Done || client.Tag(&job) != seen || ctx.Err() != nil {
			return job, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select { // a busy machine changes all the time
		case <-time.After(calmTime):
		case <-ctx.Done():
		}
	}
}

func (s *Server) gpus(w http.ResponseWriter, r *http.Request, _ box.Caller) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	return s.answer(w, client.GPUList{Schema: client.Schema, GPUs: some(s.box.GPUs())})
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request, c box.Caller) error {
	gpu, err := gpuOf(r)
	if err != nil {
		return err
	}
	q := queryOf(r, "off")
	off := q.flag("off")
	if q.err != nil {
		return q.err
	}
	answer, err := s.box.Drain(c, gpu, !off)
	if err != nil {
		return err
	}
	return s.answer(w, answer)
}

func (s *Server) history(w http.ResponseWriter, r *http.Request, _ box.Caller) error {
	q := queryOf(r, "minutes")
	minutes := q.whole("minutes", 1, 24*60, 30)
	if q.err != nil {
		return q.err
	}
	return s.answer(w, s.box.History(time.Duration(minutes)*time.Minute))
}
