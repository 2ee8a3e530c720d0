package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// explainCommand says why.
type explainCommand struct {
	boxAt
	kubeAt
	Namespace string `short:"n" placeholder:"NS" help:"Of the Pod. Default: that of the kubeconfig."`
	ID        string `arg:"" placeholder:"ID" complete:"jobs" help:"The job of this machine; or pod, for a Pod of a cluster."`
	Name      string `arg:"" optional:"" placeholder:"POD" help:"The Pod's name."`
}

// Help is what weft explain --help adds.
func (explainCommand) Help() string {
	return `Of a job that waits: each GPU with the constraint that refused it and its numbers, the nearest first, and what would have to
change. Of one that runs: its rate as predicted and as observed, where the rest went, and why it was moved. The
reasons are described in docs/box.md. Of a Pod in a Kubernetes cluster the same, and of one that shares nothing who
holds each GPU: docs/kube-commands.md.

Examples:
  weft explain 47
  weft explain 47 --json
  weft explain pod vit-7x -n ml`
}

// Run implements the command.
func (c *explainCommand) Run(ctx context.Context, s *session) error {
	if name, ok := c.pod(); ok {
		return c.explainPod(ctx, s, name)
	}
	if err := c.boxOnly(); err != nil {
		return asInput(err, c.JSON)
	}
	id, err := parseID(c.ID)
	if err != nil {
		return asInput(err, c.JSON)
	}
	e, err := ask(ctx, c.boxAt, func(d *client.Client) (box.Explanation, error) { return d.Explain(ctx, id) })
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(struct {
			Schema int `json:"schema"`
			box.Explanation
		}{client.Schema, e})
		return nil
	}
	return s.view().Explain(s.stdout, &e)
}

// eventsCommand shows what happened.
type eventsCommand struct {
	boxAt
	Since  string `placeholder:"D" help:"Only what is not older: 1h, 30m, 2d. Default: all that is kept."`
	Follow bool   `short:"f" help:"Go on with what happens from now on."`
}

// Help is what weft events --help adds.
func (eventsCommand) Help() string {
	return `Bad news has a "!". With --json each event is an object on a line of its own: seq, time, type, job, gpu, text.

Examples:
  weft events --since 1h
  weft events -f
  weft events --json`
}

// Run implements the command.
func (c *eventsCommand) Run(ctx context.Context, s *session) error {
	var since time.Duration
	if c.Since != "" {
		var err error
		if since, err = parseTime("since", c.Since); err != nil {
			return asInput(err, c.JSON)
		}
	}
	d, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Follow {
		d.Patience = runPatience
	}
	lines := json.NewEncoder(s.stdout)
	lines.SetEscapeHTML(false)
	shown := 0
	for e, err := range d.Events(ctx, 0, since, c.Follow) {
		if ctx.Err() != nil {
			return statusError(exitInterrupted)
		}
		if err != nil {
			return c.fault(err)
		}
		if c.JSON {
			err = lines.Encode(e)
		} else {
			err = s.view().Events(s.stdout, []box.Event{e}, shown == 0)
		}
		if shown++; err != nil {
			return err
		}
	}
	if shown == 0 && !c.JSON {
		_, err = fmt.Fprintln(s.stdout, "Nothing happened.")
	}
	return err
}

// gpusCommand lists GPUs.
type gpusCommand struct{ boxAt }

// Help is what weft gpus --help adds.
func (gpusCommand) Help() string {
	return `Memory is in GiB. RESERVED is what jobs may always have, IN USE what they hold now, TOKEN the job that computes. From 120
columns on: model, UUID, temperature, waits for memory and overruns of the last hour, the last XID.

Examples:
  weft gpus
  weft gpus --json`
}

// Run implements the command.
func (c *gpusCommand) Run(ctx context.Context, s *session) error {
	gpus, err := ask(ctx, c.boxAt, func(d *client.Client) ([]box.GPU, error) { return d.GPUs(ctx) })
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(client.GPUList{Schema: client.Schema, GPUs: orEmpty(gpus)})
		return nil
	}
	return s.view().GPUs(s.stdout, gpus)
}

// statusCommand says how the machine is.
type statusCommand struct {
	boxAt
	kubeAt
}

// Help is what weft status --help adds.
func (statusCommand) Help() string {
	return `What is wrong comes first, a line that begins with DEGRADED each; weft events and weft gpus tell more. Exit code 0: a daemon
answers, 4: none does. Where no daemon runs and there is access to a Kubernetes cluster, it is about that.

Examples:
  weft status
  weft status --kubeconfig ~/.kube/config
  weft status --json`
}

// Run implements the command.
func (c *statusCommand) Run(ctx context.Context, s *session) error {
	if c.named() {
		return c.ofCluster(ctx, s)
	}
	status, err := ask(ctx, c.boxAt, func(d *client.Client) (box.Status, error) { return d.Status(ctx) })
	if err != nil {
		return c.orCluster(ctx, s, err)
	}
	status.Degraded = orEmpty(status.Degraded)
	if c.JSON {
		status.Schema = client.Schema
		s.writeJSON(status)
		return nil
	}
	return s.view().Status(s.stdout, &status)
}

// drainCommand takes GPUs out of use.
type drainCommand struct {
	boxAt
	Off bool   `help:"Take it back into use."`
	GPU string `arg:"" placeholder:"GPU" complete:"gpus" help:"The GPU: gpu2, or 2."`
}

// Help is what weft drain --help adds.
func (drainCommand) Help() string {
	return `A drained GPU takes no jobs. Migratable jobs that are on it move where others can take them; the rest run on to their end.
Only administrators drain: root, and the user whose daemon it is.

Examples:
  weft drain gpu2
  weft drain gpu2 --off`
}

// Run implements the command.
func (c *drainCommand) Run(ctx context.Context, s *session) error {
	n, err := gpuNumber(c.GPU)
	if err != nil {
		return asInput(err, c.JSON)
	}
	gpu, err := ask(ctx, c.boxAt, func(d *client.Client) (box.GPU, error) { return d.Drain(ctx, n, !c.Off) })
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(struct {
			Schema int `json:"schema"`
			box.GPU
		}{client.Schema, gpu})
		return nil
	}
	text := fmt.Sprintf("gpu%d %s", gpu.Index, gpu.Health)
	if n := len(gpu.Residents); n > 0 && !c.Off {
		text += fmt.Sprintf("; on it: %s", idsInOneWord(gpu.Residents))
	}
	_, err = fmt.Fprintln(s.stdout, text)
	return err
}
