package main

import (
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/web/client"
)

// stopCommand ends jobs.
type stopCommand struct {
	boxAt
	ID []string `arg:"" placeholder:"ID" complete:"live" help:"Jobs: IDs or ranges, 44 or 44-75."`
}

// Help is what weft stop --help adds.
func (stopCommand) Help() string {
	return `The whole process tree of a job is asked to end by SIGTERM, and killed after 30 seconds. weft stop asks and goes; weft wait
waits for the end. A job that waits is cancelled, one that is done stays as it is. Of several jobs all are asked; the
exit code is that of the first refusal: 5 another's job, 6 no such job.

Examples:
  weft stop 44
  weft stop 44-75
  weft stop 44 && weft wait 44`
}

// Run implements the command.
func (c *stopCommand) Run(ctx context.Context, s *session) error {
	d, list, err := c.dialAbout(ctx, c.ID)
	if err != nil {
		return err
	}
	defer d.Close()
	var jobs []box.Job
	var refusals []error
	for _, id := range list {
		job, err := d.Stop(ctx, id)
		var refusal *box.Error
		switch {
		case errors.As(err, &refusal):
			refusals = append(refusals, c.refused(refusal))
			continue
		case err != nil:
			return c.fault(err)
		}
		jobs = append(jobs, job)
		if !c.JSON {
			_, _ = fmt.Fprintln(s.stdout, stopped(&job)) // the sink keeps a failure
		}
	}
	if len(refusals) > 0 {
		return allRefusals(refusals)
	}
	if c.JSON {
		s.writeJSON(client.JobList{Schema: client.Schema, Jobs: orEmpty(jobs)})
		return nil
	}
	if len(list) == 1 && jobs[0].State != box.Done {
		s.next("weft wait " + list[0].String())
	}
	return nil
}

// stopped is what became of a job that was asked to end.
func stopped(j *box.Job) string {
	if j.State == box.Done {
		return fmt.Sprintf("job %d %s", j.ID, boxtable.Ended(j))
	}
	return fmt.Sprintf("job %d %s", j.ID, j.State)
}

// allRefusals is the first of several refusals, with the faults of all.
func allRefusals(refusals []error) error {
	first := inputIn(refusals[0])
	for _, err := range refusals[1:] {
		first.faults = append(first.faults, inputIn(err).faults...)
	}
	return refusals[0]
}
