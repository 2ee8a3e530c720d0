package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Client asks an agent.
type Client struct {
	conn  net.Conn
	in    *bufio.Reader
	bound time.Duration // of an answer
}

// ErrNoAgent says that no agent serves a folder.
var ErrNoAgent = errors.New("no agent")

// Dial connects to the agent of a folder.
func Dial(ctx context.Context, dir string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, ControlName))
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("ask the agent of %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoAgent, dir, err)
	}
	return &Client{conn, bufio.NewReader(conn), answering}, nil
}

// answering is how long an agent may take to answer what is answered at once. Its reactor serves hundreds of processes in between.
const answering = 10 * time.Second

// ErrSilent says that an agent takes longer than ten seconds to answer what is answered at once.
var ErrSilent = errors.New("the agent does not answer")

// Ask asks one question. A refusal is returned as an error. OpAllocate alone waits, until the job's memory is free. The end of ctx
// gives the question up, and the connection.
func (c *Client) Ask(ctx context.Context, r Request) (Response, error) {
	var until time.Time // no bound
	if r.Op != OpAllocate {
		until = time.Now().Add(c.bound)
	}
	var answer Response
	if err := c.conn.SetDeadline(until); err != nil {
		return answer, fmt.Errorf("ask the agent: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
	err := c.ask(r, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return answer, ErrSilent
	case err != nil:
		return answer, err
	case answer.Error != nil:
		return answer, answer.Error
	}
	return answer, nil
}

func (c *Client) ask(r Request, answer *Response) error {
	if err := json.NewEncoder(c.conn).Encode(r); err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	line, err := c.in.ReadBytes('\n')
	if err != nil && !(errors.Is(err, io.EOF) && len(line) > 0) {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	return nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
