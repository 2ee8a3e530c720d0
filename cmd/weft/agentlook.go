package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
)

// agentAt says which agent is asked.
type agentAt struct {
	Socket string `env:"WEFT_DIR" placeholder:"DIR" help:"The agent's folder. Default: /run/weft, or weft in the user's runtime folder."`
}

func (c agentAt) dir() string { return cmp.Or(c.Socket, defaultDir()) }

// ask asks the agent one question.
func (c agentAt) ask(ctx context.Context, r agent.Request, asJSON bool) (agent.Response, error) {
	client, err := agent.Dial(ctx, c.dir())
	if err != nil {
		return agent.Response{}, noAgent(err, c.dir(), asJSON)
	}
	defer func() { _ = client.Close() }() // it is answered
	answer, err := client.Ask(ctx, r)
	if errors.Is(err, agent.ErrSilent) {
		return answer, &failure{inputError{trace.Errors{{Code: "unreachable", File: c.dir(), Message: err.Error(),
			Why: "it hangs, or the machine is too busy", Fix: "start the agent anew: its jobs go on"}}, asJSON}, exitUnreachable}
	}
	return answer, refused(err, asJSON)
}

// noAgent says that no agent is there, and how to start one.
func noAgent(err error, dir string, asJSON bool) error {
	if !errors.Is(err, agent.ErrNoAgent) {
		return asInput(&os.PathError{Op: "open", Path: filepath.Join(dir, agent.ControlName), Err: errors.Unwrap(err)}, asJSON)
	}
	return &failure{inputError{trace.Errors{{Code: "unreachable", File: dir, Message: "no agent at " + dir,
		Fix: "weft agent --local --dir " + shellWord(dir)}}, asJSON}, exitUnreachable}
}

// refused makes a refusal of the agent a fault of the command line.
func refused(err error, asJSON bool) error {
	var r *agent.RefusalError
	if !errors.As(err, &r) || r.Code == "failed" || r.Code == "ended" {
		return err
	}
	return &inputError{trace.Errors{{Code: r.Code, File: "command line", Column: r.Flag, Value: r.Value, Message: r.Message, Why: r.Why, Fix: r.Fix}}, asJSON}
}

// agentStatsCommand shows what jobs have.
type agentStatsCommand struct {
	agentAt
	JSON bool `name:"json" help:"Write JSON for programs."`
}

// Help is what weft agent stats --help adds.
func (agentStatsCommand) Help() string {
	return `SHARE is the part of its time in which the job held the token, WAIT P99 how long it waited for it, DRAIN P99 how long it took to give it back when told to.

Examples:
  weft agent stats --socket /run/weft
  weft agent stats --json`
}

// Run implements the command.
func (c *agentStatsCommand) Run(ctx context.Context, s *session) error {
	answer, err := c.ask(ctx, agent.Request{Op: agent.OpStats}, c.JSON)
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(answer.Stats)
		return nil
	}
	return writeAgent(s, answer.Stats)
}

func writeAgent(s *session, stats *agent.Stats) error {
	gpus := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "NAME", Shrink: true}, {Title: "HEALTH"}, {Title: "BUSY", Number: true},
		{Title: "RESERVED", Number: true}, {Title: "POOL FREE", Number: true}, {Title: "USABLE", Number: true}, {Title: "JOBS"}, {Title: "WAITING", Number: true}}}
	for _, g := range stats.GPUs {
		health := "ok"
		if g.XID != nil {
			health = fmt.Sprintf("XID %d", *g.XID)
		}
		var jobs []string
		for _, id := range g.Residents {
			jobs = append(jobs, strconv.FormatUint(id, 10))
		}
		gpus.Rows = append(gpus.Rows, report.Cells(fmt.Sprintf("gpu%d", g.GPU), g.Name, health, report.Percent(g.Utilisation), g.Reserved.String(),
			g.PoolFree.String(), g.Usable.String(), cmp.Or(strings.Join(jobs, ","), report.None), strconv.Itoa(g.Waiting)))
	}
	jobs := &report.Table{Columns: []report.Column{{Title: "ID", Number: true}, {Title: "NAME", Shrink: true}, {Title: "CLASS"}, {Title: "GPU"},
		{Title: "SHARE", Number: true}, {Title: "WAIT P99", Number: true}, {Title: "DRAIN P99", Number: true, Wide: true}, {Title: "OVERRUNS", Number: true},
		{Title: "STALL", Number: true, Wide: true}, {Title: "IT/S", Number: true, Wide: true}, {Title: "IN USE", Number: true}, {Title: "LIMIT", Number: true}}}
	for i := range stats.Jobs {
		jobs.Rows = append(jobs.Rows, jobRow(&stats.Jobs[i]))
	}
	err := gpus.Write(s.stdout, s.screen)
	if len(jobs.Rows) == 0 {
		_, said := fmt.Fprintln(s.stdout, "\nNo job.")
		return errors.Join(err, said)
	}
	_, blank := fmt.Fprintln(s.stdout)
	return errors.Join(err, blank, jobs.Write(s.stdout, s.screen))
}

// jobRow is a job's line. Its memory is that of the GPU where it uses most.
func jobRow(j *agent.Job) []report.Cell {
	var gpus []string
	var most agent.JobMemory
	for i, m := range j.Memory {
		gpus = append(gpus, strconv.Itoa(m.GPU))
		if i == 0 || m.Used > most.Used {
			most = m
		}
	}
	share := report.None
	if j.Age > 0 {
		share = report.Percent(j.Held / j.Age)
	}
	return report.Cells(strconv.FormatUint(j.ID, 10), j.Name, j.Class.String(), strings.Join(gpus, ","), share, wait(j.Wait), wait(j.Preemption),
		report.Count(int(j.Overruns)), report.Duration(time.Duration(j.Stall*float64(time.Second))), report.Tenths(j.Rate), most.Used.String(), most.Limit.String())
}

// wait is the 99th percentile of a distribution, if there is one.
func wait(q agent.Quantiles) string {
	if q.Count == 0 {
		return report.None
	}
	return report.Tenths(q.P99) + " ms"
}

// agentEventsCommand shows what happened.
type agentEventsCommand struct {
	agentAt
	JSON bool `name:"json" help:"Write one JSON object a line."`
}

// Help is what weft agent events --help adds.
func (agentEventsCommand) Help() string {
	return `The agent keeps the last 1,024.

Examples:
  weft agent events --socket /run/weft
  weft agent events --json`
}

// Run implements the command.
func (c *agentEventsCommand) Run(ctx context.Context, s *session) error {
	answer, err := c.ask(ctx, agent.Request{Op: agent.OpEvents}, c.JSON)
	if err != nil {
		return err
	}
	if c.JSON {
		out := json.NewEncoder(s.stdout)
		out.SetEscapeHTML(false)
		for _, e := range answer.Events {
			if err := out.Encode(e); err != nil {
				return err
			}
		}
		return nil
	}
	table := &report.Table{Columns: []report.Column{{Title: "TIME"}, {Title: "EVENT"}, {Title: "JOB"}, {Title: "GPU"}, {Title: "PID", Number: true}, {Title: "WHAT"}}}
	for _, e := range answer.Events {
		job, gpu, pid := report.None, report.None, report.None
		if e.ID != 0 {
			job = fmt.Sprintf("%d %s", e.ID, e.Job)
		}
		if e.GPU != nil {
			gpu = strconv.Itoa(*e.GPU)
		}
		if e.PID != 0 {
			pid = strconv.Itoa(e.PID)
		}
		table.Rows = append(table.Rows, report.Cells(e.Time.Local().Format("15:04:05.000"), e.Type, job, gpu, pid, e.Text))
	}
	return table.Write(s.stdout, s.screen)
}

// agentMetricsCommand shows metrics.
type agentMetricsCommand struct{ agentAt }

// Run implements the command.
func (c *agentMetricsCommand) Run(ctx context.Context, s *session) error {
	answer, err := c.ask(ctx, agent.Request{Op: agent.OpMetrics}, false)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.stdout, answer.Metrics)
	return err
}
