package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weft.dev/weft/internal/box"
)

// Submit hands a job in and returns its ID, or those of its array. It is asked once: after an *UnreachableError with Sent the job
// may have been accepted.
func (c *Client) Submit(ctx context.Context, s box.Spec) ([]box.ID, error) {
	var answer IDList
	err := c.ask(ctx, http.MethodPost, "/v1/jobs", nil, s, &answer)
	return answer.IDs, err
}

// Jobs lists jobs: those that live or wait, or all; of a user, or of all for "".
func (c *Client) Jobs(ctx context.Context, all bool, user string) ([]box.Job, error) {
	query := url.Values{}
	if all {
		query.Set("all", "1")
	}
	if user != "" {
		query.Set("user", user)
	}
	var answer JobList
	err := c.ask(ctx, http.MethodGet, "/v1/jobs", query, nil, &answer)
	return answer.Jobs, err
}

// Job is a job as it is now.
func (c *Client) Job(ctx context.Context, id box.ID) (box.Job, error) {
	var answer box.Job
	err := c.ask(ctx, http.MethodGet, jobPath(id, ""), nil, nil, &answer)
	return answer, err
}

// Explain says why a job waits, or sits where it is.
func (c *Client) Explain(ctx context.Context, id box.ID) (box.Explanation, error) {
	var answer box.Explanation
	err := c.ask(ctx, http.MethodGet, jobPath(id, "/explain"), nil, nil, &answer)
	return answer, err
}

// Stop asks a job to end. It does not wait for that; to stop a job that is done changes nothing.
func (c *Client) Stop(ctx context.Context, id box.ID) (box.Job, error) {
	var answer box.Job
	err := c.ask(ctx, http.MethodPost, jobPath(id, "/stop"), nil, nil, &answer)
	return answer, err
}

// GPUs lists the GPUs.
func (c *Client) GPUs(ctx context.Context) ([]box.GPU, error) {
	var answer GPUList
	err := c.ask(ctx, http.MethodGet, "/v1/gpus", nil, nil, &answer)
	return answer.GPUs, err
}

// Drain takes a GPU out of use (on), or back into it.
func (c *Client) Drain(ctx context.Context, gpu int, on bool) (box.GPU, error) {
	query := url.Values{}
	if !on {
		query.Set("off", "1")
	}
	var answer box.GPU
	err := c.ask(ctx, http.MethodPost, "/v1/gpus/"+strconv.Itoa(gpu)+"/drain", query, nil, &answer)
	return answer, err
}

// Status is the machine in a few words.
func (c *Client) Status(ctx context.Context) (box.Status, error) {
	var answer box.Status
	err := c.ask(ctx, http.MethodGet, "/v1/status", nil, nil, &answer)
	return answer, err
}

// History is the recent past, in whole minutes.
func (c *Client) History(ctx context.Context, span time.Duration) (box.History, error) {
	var answer box.History
	query := url.Values{"minutes": {strconv.Itoa(int(span / time.Minute))}}
	err := c.ask(ctx, http.MethodGet, "/v1/history", query, nil, &answer)
	return answer, err
}

func jobPath(id box.ID, what string) string { return "/v1/jobs/" + id.String() + what }

// Metrics is the text for Prometheus. The caller closes it.
func (c *Client) Metrics(ctx context.Context) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, "/metrics", nil, nil)
}
