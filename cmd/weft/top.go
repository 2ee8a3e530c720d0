package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// topCommand shows the machine live.
type topCommand struct {
	boxAt
	kubeAt
	Namespace string `short:"n" placeholder:"NS" help:"Only Pods of this namespace. Default: all."`
	Once      bool   `help:"Of a cluster: write the table once, as where there is no terminal."`
	What      string `arg:"" optional:"" placeholder:"WHAT" complete:"tables" help:"Of a cluster: nodes, gpus or pods. Default: this machine."`
}

// Help is what weft top --help adds.
func (topCommand) Help() string {
	return `Each GPU with what is in use of its memory (# up to f, r is what is reserved) and its jobs: class, rate on a bar with the
floor as |, p99 of the wait for the GPU. Once a second. It needs a terminal; --json writes the state as an object a line
each second in which something changed, and events as they happen.

  q, Ctrl-C  leave             s  sort by id, rate, user, time
  up, down   choose a job      u  only your own jobs, or all
  Enter      explain it        /  only jobs with a text in name, user, ID
  Esc        close that        p  pause

Of a Kubernetes cluster: a table of its nodes, GPUs or Pods, every five seconds in a terminal and else once.

Examples:
  weft top
  weft top --json
  weft top pods -n ml`
}

// Run implements the command.
func (c *topCommand) Run(ctx context.Context, s *session) error {
	if c.What != "" || c.named() {
		return c.ofCluster(ctx, s)
	}
	if err := c.boxOnly(); err != nil {
		return asInput(err, c.JSON)
	}
	input, isFile := s.stdin.(*os.File)
	if !c.JSON && (!s.tty || !isFile || !term.IsTerminal(int(input.Fd()))) {
		return asInput(flagError("json", "", "weft top needs a terminal", "it draws a screen and reads keys", "weft top --json, or weft ps"), false)
	}
	d, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	d.Patience = forever
	if c.JSON {
		d.Patience = runPatience
		return c.stream(ctx, s, d)
	}
	return c.screen(ctx, s, d, input)
}

// forever is longer than anybody watches.
const forever = 365 * 24 * time.Hour

// line is one object of the stream: a state or an event.
type line struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	*client.State
	Event *box.Event `json:"event,omitempty"`
}

// stream writes states and events until it is interrupted.
func (c *topCommand) stream(ctx context.Context, s *session, d *client.Client) error {
	lines := json.NewEncoder(s.stdout)
	lines.SetEscapeHTML(false)
	for u, err := range d.Stream(ctx) {
		switch {
		case ctx.Err() != nil:
			return statusError(exitInterrupted)
		case err != nil:
			return c.fault(err)
		}
		l := line{Time: s.clock().UTC(), Type: "state", State: u.State, Event: u.Event}
		if u.Event != nil {
			l.Time, l.Type = u.Event.Time.UTC(), "event"
		}
		if err := lines.Encode(l); err != nil {
			return err
		}
	}
	return statusError(exitInterrupted)
}

// screen draws until the reader leaves.
func (c *topCommand) screen(ctx context.Context, s *session, d *client.Client, input *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	output := s.stdout
	if out, ok := output.(*sink); ok {
		output = out.w // the terminal itself, whose size is asked for
	}
	screen := &topScreen{explain: func(id box.ID) tea.Cmd { return explained(ctx, d, id) }, user: userName(), clock: s.clock}
	screen.top.View = s.view()
	program := tea.NewProgram(screen, tea.WithContext(ctx), tea.WithInput(input), tea.WithOutput(output), tea.WithoutSignalHandler())
	d.Away = func(away bool) { go program.Send(awayMsg(away)) }
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		for u, err := range d.Stream(ctx) {
			switch {
			case err != nil:
				program.Send(brokenMsg{err})
				return
			case u.State != nil:
				program.Send(u.State)
			}
		}
	}()
	_, err := program.Run()
	cancel()
	<-streamed
	switch {
	case screen.broken != nil && !errors.Is(screen.broken, context.Canceled):
		return c.fault(screen.broken)
	case errors.Is(err, tea.ErrProgramKilled): // by a signal
		return statusError(exitInterrupted)
	}
	return err
}

// explained asks why a job is where it is.
func explained(ctx context.Context, d *client.Client, id box.ID) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, explainTime)
		defer cancel()
		e, err := d.Explain(ctx, id)
		return explainedMsg{id, &e, err}
	}
}

// explainTime is how long the screen waits for an explanation.
const explainTime = 5 * time.Second
