package main

import (
	"cmp"
	"context"
	"fmt"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// psCommand lists jobs.
type psCommand struct {
	boxAt
	All  bool   `short:"a" help:"Those that are done, too."`
	User string `short:"u" placeholder:"U" complete:"users" help:"Only those of a user."`
}

// Help is what weft ps --help adds.
func (psCommand) Help() string {
	return `RATE is a job's speed as a share of its speed alone, FLOOR the least that it was promised; one below its floor has a "!".
REASON is why it waits, or what was done to it last. From 120 columns on: class, priority, predicted rate, memory
(reserved/peak), command. weft explain ID tells more.

Examples:
  weft ps
  weft ps --all --user ana
  weft ps --json`
}

// Run implements the command.
func (c *psCommand) Run(ctx context.Context, s *session) error {
	jobs, err := ask(ctx, c.boxAt, func(d *client.Client) ([]box.Job, error) { return d.Jobs(ctx, c.All, c.User) })
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(client.JobList{Schema: client.Schema, Jobs: orEmpty(jobs)})
		return nil
	}
	if len(jobs) == 0 {
		_, err = fmt.Fprintln(s.stdout, cmp.Or(noJob(c), "No job."))
		return err
	}
	return s.view().Jobs(s.stdout, jobs)
}

func noJob(c *psCommand) string {
	switch {
	case c.All:
		return ""
	case c.User != "":
		return "No job of " + c.User + " runs or waits; weft ps --all lists those that are done."
	}
	return "No job runs or waits; weft ps --all lists those that are done."
}

// orEmpty is a list that JSON writes as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
