package main

import (
	"context"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/web/client"
)

// exitTimedOut is the exit code of a job whose --max-time was over.
const exitTimedOut = 124

// waitCommand waits for jobs.
type waitCommand struct {
	boxAt
	ID []string `arg:"" placeholder:"ID" complete:"live" help:"Jobs: IDs or ranges, 44 or 44-75."`
}

// Help is what weft wait --help adds.
func (waitCommand) Help() string {
	return `It ends with the status of the job; of several with the first one, in the order of the command line, that is not 0. 124:
--max-time was over, 125: the job was lost or never began, 4: no daemon, 5: another's job, 6: no such job.

Examples:
  weft wait 44
  weft wait 44-75 --json`
}

// Run implements the command.
func (c *waitCommand) Run(ctx context.Context, s *session) error {
	d, list, err := c.dialAbout(ctx, c.ID)
	if err != nil {
		return err
	}
	defer d.Close()
	d.Patience = runPatience
	jobs, err := waitFor(ctx, s, d, list)
	if ctx.Err() != nil {
		return statusError(exitInterrupted)
	}
	if err != nil {
		return c.fault(err)
	}
	if c.JSON {
		s.writeJSON(client.JobList{Schema: client.Schema, Jobs: jobs})
	}
	for i := range jobs {
		if len(jobs) == 1 || firstStatus(jobs[i:i+1]) != nil {
			s.say("job %d %s", jobs[i].ID, boxtable.Ended(&jobs[i]))
		}
	}
	return firstStatus(jobs)
}

// waitFor waits until all jobs are done.
func waitFor(ctx context.Context, s *session, d *client.Client, list []box.ID) ([]box.Job, error) {
	jobs := make([]box.Job, 0, len(list))
	for i, id := range list {
		job, err := d.Wait(ctx, id)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, job)
		if len(list) > 1 {
			s.progress.Report("wait", i+1, len(list), "jobs")
		}
	}
	s.progress.Done()
	return jobs, nil
}

// firstStatus is the first status that is not 0.
func firstStatus(jobs []box.Job) error {
	for i := range jobs {
		if err := statusOf(&jobs[i]); err != nil {
			return err
		}
	}
	return nil
}
