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
)

// Client asks an agent.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
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
	return &Client{conn, bufio.NewReader(conn)}, nil
}

// Ask asks one question. A refusal is returned as an error.
func (c *Client) Ask(r Request) (Response, error) {
	var answer Response
	if err := json.NewEncoder(c.conn).Encode(r); err != nil {
		return answer, fmt.Errorf("ask the agent: %w", err)
	}
	line, err := c.in.ReadBytes('\n')
	if err != nil && !(errors.Is(err, io.EOF) && len(line) > 0) {
		return answer, fmt.Errorf("the agent's answer: %w", err)
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return answer, fmt.Errorf("the agent's answer: %w", err)
	}
	if answer.Error != nil {
		return answer, answer.Error
	}
	return answer, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
