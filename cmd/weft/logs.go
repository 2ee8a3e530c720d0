package main

import (
	"context"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"weft.dev/weft/internal/shepherd"
)

// logsCommand shows what a job printed.
type logsCommand struct {
	boxAt
	Follow bool   `short:"f" help:"Go on until the job is done."`
	ID     string `arg:"" placeholder:"ID" complete:"jobs" help:"The job."`
}

// Help is what weft logs --help adds.
func (logsCommand) Help() string {
	return `What the job wrote to its standard output goes to standard output, its errors to standard error, each byte as it was. With
--json each piece is an object: time, type (stdout, stderr, weft), and text, or bytes in base64 where it is no UTF-8.
What is older than the limit of a log (weft config show) is gone, and that is said.

Examples:
  weft logs 44
  weft logs -f 44
  weft logs 44 --json`
}

// Run implements the command.
func (c *logsCommand) Run(ctx context.Context, s *session) error {
	id, err := parseID(c.ID)
	if err != nil {
		return asInput(err, c.JSON)
	}
	d, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Follow {
		d.Patience = runPatience
	}
	in, err := d.Log(ctx, id, 0, c.Follow)
	if err != nil {
		return c.fault(err)
	}
	defer func() { _ = in.Close() }() // only read from
	if c.JSON {
		err = copyLogJSON(in, s.stdout)
	} else {
		err = copyLog(in, s.stdout, s.stderr)
	}
	if ctx.Err() != nil {
		return statusError(exitInterrupted)
	}
	return c.fault(err)
}

// piece is a frame of a log for programs.
type piece struct {
	Time  time.Time `json:"time"`
	Type  string    `json:"type"`
	Text  *string   `json:"text,omitempty"`
	Bytes []byte    `json:"bytes_base64,omitempty"`
}

// copyLogJSON writes each frame of a log as an object on a line of its own.
func copyLogJSON(in io.Reader, out io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return eachFrame(in, func(frame shepherd.Frame) error {
		p := piece{Time: frame.Time.UTC(), Type: frame.Stream.String()}
		if utf8.Valid(frame.Bytes) {
			text := string(frame.Bytes)
			p.Text = &text
		} else {
			p.Bytes = frame.Bytes
		}
		return lines.Encode(p)
	})
}
