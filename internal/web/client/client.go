// Package client asks a running daemon over its socket. What follows a job (Wait, Watch, Log, Events, Stream, Stdin) survives a
// restart of the daemon: it connects again and goes on where it was. Refusals are *box.Error; a daemon that does not answer is
// an *UnreachableError.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"weft.dev/weft/internal/box"
)

const (
	answerTime      = 30 * time.Second // for a plain question
	defaultPatience = 30 * time.Second
	mostAnswer      = 256 << 20 // bytes of one answer
)

// Client asks one daemon. It may be used by several goroutines at once.
type Client struct {
	// Away is told when the daemon stops answering while something is followed (true), and when it is back (false). It may be
	// nil, and must be set before the first question.
	Away func(away bool)
	// Patience is how long to wait for a daemon that is away. 0 gives up at once.
	Patience time.Duration

	socket string
	http   *http.Client

	mu   sync.Mutex
	away bool
}

// New is a client of the daemon that listens on a socket. It asks nothing yet.
func New(socket string) *Client {
	c := &Client{Patience: defaultPatience, socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, c.socket) },
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true, // it is the same machine
	}}
	return c
}

// Socket is the path of the daemon's socket.
func (c *Client) Socket() string { return c.socket }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// UnreachableError says that no daemon answers.
type UnreachableError struct {
	Socket string
	Sent   bool // the question was sent, and may have been acted on
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no weft daemon answers at %s: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// CodeStopping is the code of the refusal of a daemon that is about to end.
const CodeStopping = "stopping"

// isAway says whether an error may pass once a daemon is back.
func isAway(err error) bool {
	var unreachable *UnreachableError
	var refusal *box.Error
	return errors.As(err, &unreachable) || errors.As(err, &refusal) && refusal.Code == CodeStopping
}

// open asks and returns the body of the answer, which the caller closes.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, body any) (io.ReadCloser, error) {
	address := "http://weft" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", path, err)
		}
		in = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, in)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }() // all of it that matters is read
	return nil, refusal(answer)
}

// unreachable is what an error of the transport means.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var op *net.OpError
	dialed := errors.As(err, &op) && op.Op == "dial"
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return &UnreachableError{Socket: c.socket, Sent: !dialed, Err: err}
}

// refusal is the error that an answer tells.
func refusal(answer *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20)) // what there is may say enough
	var told Refusal
	if json.Unmarshal(data, &told) == nil && told.Error != nil && told.Error.Message != "" {
		return told.Error
	}
	text, _, _ := strings.Cut(string(data), "\n")
	return &box.Error{Kind: box.Trouble, Code: "protocol", Message: fmt.Sprintf("the daemon answers %s: %.200q", answer.Status, text),
		Fix: "weft and its daemon should be of one version"}
}

// ask asks and decodes the answer.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	return c.askWithin(ctx, answerTime, method, path, query, body, answer)
}

var errSlow = errors.New("no answer in time")

func (c *Client) askWithin(ctx context.Context, limit time.Duration, method, path string, query url.Values, body, answer any) error {
	within, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	in, err := c.open(within, method, path, query, body)
	if errors.Is(err, errSlow) && ctx.Err() == nil {
		return &UnreachableError{Socket: c.socket, Sent: true, Err: errSlow}
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is read
	data, err := io.ReadAll(io.LimitReader(in, mostAnswer))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return &box.Error{Kind: box.Trouble, Code: "protocol", Message: fmt.Sprintf("the daemon's answer to %s: %v", path, err),
			Fix: "weft and its daemon should be of one version"}
	}
	return nil
}
