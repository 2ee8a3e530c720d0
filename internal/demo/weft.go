package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/web/client"
)

// lookInterval is how often the daemon is asked how far its jobs are.
const lookInterval = time.Second

// submitted is a group in the hands of a daemon.
type submitted struct {
	setup   Setup
	daemon  *daemon
	ids     []box.ID // of the jobs' present submissions
	jobs    []Outcome
	tracker tracker
	begun   time.Time
}

// runWeft starts a daemon of its own on emulated GPUs, submits the group, and waits for the last job's end.
func runWeft(ctx context.Context, s Setup) (run Run, err error) {
	dir, err := folder()
	if err != nil {
		return Run{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDaemon(ctx, s, dir)
	if err != nil {
		return Run{}, err
	}
	defer func() { err = errors.Join(err, d.end(ctx)) }()
	g := &submitted{setup: s, daemon: d, ids: make([]box.ID, len(s.Group)), jobs: make([]Outcome, len(s.Group)), tracker: tracker{setup: &s}, begun: time.Now()}
	for number := range s.Group {
		if err := g.submit(ctx, number, dir); err != nil {
			return Run{}, err
		}
	}
	if err := g.wait(ctx, dir); err != nil {
		return Run{}, err
	}
	stats, err := d.stats()
	if err != nil {
		return Run{}, err
	}
	return Run{Jobs: g.jobs, Busy: busy(stats)}, nil
}

// submit hands a job of the group in.
func (g *submitted) submit(ctx context.Context, number int, dir string) error {
	job := &g.setup.Group[number]
	ids, err := g.daemon.client.Submit(ctx, box.Spec{
		Name: job.Name, Command: append([]string{"weft-train"}, job.arguments(filepath.Join(dir, job.Name))...),
		Path: filepath.Join(g.setup.Programs, "weft-train"), Dir: dir, Env: plainEnvironment(), Class: job.Class, Floor: job.Floor, Priority: 10, GPUs: 1,
		Profile: job.Model + ":" + job.Batch, Reserved: job.Persistent + job.Context, Cooperate: true, Migratable: true,
	})
	if err != nil {
		return fmt.Errorf("submit %s: %w", job.Name, err)
	}
	g.ids[number] = ids[0]
	return nil
}

// wait returns once all jobs have ended, and notes what became of each.
func (g *submitted) wait(ctx context.Context, dir string) error {
	for left := len(g.ids); left > 0; {
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
		list, err := g.daemon.client.Jobs(ctx, true, "")
		if err != nil {
			return err
		}
		known := map[box.ID]*box.Job{}
		for i := range list {
			known[list[i].ID] = &list[i]
		}
		for number, id := range g.ids {
			ended, err := g.look(ctx, number, known[id], dir)
			if err != nil {
				return err
			}
			if ended {
				g.ids[number], left = 0, left-1
			}
		}
	}
	return nil
}

// look takes in how far a job is, and says whether it has ended just now. One that was out of memory is submitted again, as
// it would be without weft.
func (g *submitted) look(ctx context.Context, number int, j *box.Job, dir string) (ended bool, err error) {
	switch {
	case g.ids[number] == 0:
		return false, nil // it ended before
	case j == nil:
		return false, fmt.Errorf("job %s is lost", g.setup.Group[number].Name)
	case j.State != box.Done:
		g.tracker.progress(number, g.guess(number, j))
		return false, nil
	}
	if err := g.note(ctx, number, j); err != nil {
		return false, err
	}
	switch {
	case j.Outcome == box.Succeeded:
		g.tracker.ended(number)
		return true, nil
	case j.Exit != nil && *j.Exit == codeOOM:
		g.jobs[number].OOM++
		return false, g.submit(ctx, number, dir)
	}
	return false, fmt.Errorf("job %s %s: %s", j.Name, j.Outcome, g.daemon.lastWords(ctx, j.ID))
}

// guess is about how many iterations a job that runs has done.
func (g *submitted) guess(number int, j *box.Job) int {
	rate := 1.0
	switch {
	case j.Rate != nil:
		rate = *j.Rate
	case j.Predicted != nil:
		rate = j.Predicted.Rate
	}
	job := &g.setup.Group[number]
	return min(job.Iterations-1, int(j.Run*rate/job.Iteration().Seconds()))
}

// note adds what a submission of a job that ended did: its stays as the daemon saw them, and its running time as it told it
// itself.
func (g *submitted) note(ctx context.Context, number int, j *box.Job) error {
	o := &g.jobs[number]
	running, err := g.daemon.running(ctx, j.ID)
	if err != nil {
		return err
	}
	o.Running += running
	stays, err := g.stays(ctx, j)
	o.Stays = append(o.Stays, stays...)
	return err
}

// stays are the attempts of a submission that has ended, from what the daemon noted of it.
func (g *submitted) stays(ctx context.Context, j *box.Job) ([]Stay, error) {
	var stays []Stay
	var open bool
	end := func(at time.Time) {
		if open {
			stays[len(stays)-1].To, open = at.Sub(g.begun), false
		}
	}
	for e, err := range g.daemon.client.Events(ctx, 0, time.Since(g.begun)+time.Minute, false) {
		switch {
		case err != nil:
			return nil, err
		case e.Job != j.ID:
		case e.Type == box.EventPlaced && e.GPU != nil:
			end(e.Time)
			stays, open = append(stays, Stay{GPU: *e.GPU, From: e.Time.Sub(g.begun)}), true
		case e.Type == box.EventMoved, e.Type == box.EventEvicted:
			end(e.Time)
		}
	}
	if len(stays) == 0 || j.Started == nil || j.Ended == nil {
		return nil, fmt.Errorf("the daemon does not say where job %s ran: %s", j.Name, j.Fault)
	}
	end(*j.Ended)
	stays[0].From, stays[len(stays)-1].To = j.Started.Sub(g.begun), j.Ended.Sub(g.begun)
	return stays, nil
}

// stats are the figures of the daemon's emulated GPUs.
func (d *daemon) stats() (emugpu.Stats, error) {
	o, err := emugpu.Dial(filepath.Join(d.state, "emulated.sock"))
	if err != nil {
		return emugpu.Stats{}, err
	}
	defer o.Close()
	return o.Stats()
}

// newClient is a client of the daemon of a state folder.
func newClient(state string) *client.Client {
	c := client.New(filepath.Join(state, "weft.sock"))
	c.Patience = 0 // nobody starts it again
	return c
}
