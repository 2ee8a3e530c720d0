package boxtable

import (
	"fmt"
	"io"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
)

// GPUs writes the table of weft gpus, and under it the programs on them that are of no job.
func (v View) GPUs(w io.Writer, gpus []box.GPU) error {
	table := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "MODEL", Wide: true, Shrink: true}, {Title: "UUID", Wide: true}, {Title: "HEALTH"},
		{Title: "TEMP", Number: true, Wide: true}, {Title: "BUSY", Number: true}, {Title: "RESERVED", Number: true}, {Title: "IN USE", Number: true},
		{Title: "USABLE GiB", Number: true}, {Title: "STALLS", Number: true, Wide: true}, {Title: "OVERRUNS", Number: true, Wide: true},
		{Title: "XID", Number: true, Wide: true}, {Title: "RESIDENTS"}, {Title: "TOKEN"}}}
	for i := range gpus {
		table.Rows = append(table.Rows, gpuRow(&gpus[i]))
	}
	if err := table.Write(w, v.Screen); err != nil {
		return err
	}
	for i := range gpus {
		for _, p := range gpus[i].Foreign {
			if _, err := fmt.Fprintf(w, "note: gpu%d: %s (pid %d, user %s) is of no job and holds %s\n", gpus[i].Index, report.Clean(p.Name), p.PID, report.Clean(p.User), p.Bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func gpuRow(g *box.GPU) []report.Cell {
	temperature, xid, token := report.None, report.None, report.None
	if g.Temperature != nil {
		temperature = fmt.Sprintf("%.0f C", *g.Temperature)
	}
	if g.XID != nil {
		xid = fmt.Sprint(*g.XID)
	}
	if g.Token != 0 {
		token = g.Token.String()
	}
	row := report.Cells(fmt.Sprintf("gpu%d", g.Index), strings.TrimPrefix(g.Model, "NVIDIA "), shortUUID(g.UUID), "", temperature, share(g.Busy), gib(g.Reserved), gib(g.InUse),
		gib(g.Usable), stalls(g.Stall), report.Count(g.Overruns), xid, ids(g.Residents), token)
	row[3] = healthOf(g)
	return row
}

func healthOf(g *box.GPU) report.Cell {
	c := report.Cell{Text: g.Health}
	switch g.Health {
	case "unhealthy":
		c.Mark = report.Bad
	case "drained", "draining":
		c.Mark = report.Waiting
	}
	return c
}

// shortUUID is a UUID's first group, which tells the GPUs of a machine apart.
func shortUUID(uuid string) string {
	if parts := strings.SplitN(uuid, "-", 3); len(parts) == 3 {
		return parts[0] + "-" + parts[1]
	}
	return uuid
}

func stalls(s float64) string {
	if d := secondsOf(s); d >= time.Minute {
		return report.Duration(d)
	}
	return fmt.Sprintf("%.0f s", s)
}

// Events writes events as lines of a table; with titles, its first line.
func (v View) Events(w io.Writer, events []box.Event, titles bool) error {
	if titles {
		if _, err := fmt.Fprintf(w, "%-8s  %-11s  %-4s  %-4s  %s\n", "TIME", "EVENT", "JOB", "GPU", "WHAT"); err != nil {
			return err
		}
	}
	for i := range events {
		if _, err := io.WriteString(w, v.event(&events[i])); err != nil {
			return err
		}
	}
	return nil
}

// event is one line. It has fixed columns, since nobody knows what comes after it.
func (v View) event(e *box.Event) string {
	job, gpu := report.None, report.None
	if e.Job != 0 {
		job = e.Job.String()
	}
	if e.GPU != nil {
		gpu = fmt.Sprintf("gpu%d", *e.GPU)
	}
	what := report.Clean(e.Text)
	if e.Name != "" {
		what = report.Clean(e.Name) + ": " + what
	}
	kind := fmt.Sprintf("%-11s", report.Clean(string(e.Type)))
	if e.Alarm() {
		text := strings.TrimRight(kind, " ")
		kind = v.Screen.Marked(text, report.Bad) + strings.Repeat(" ", max(0, len(kind)-len(text)-1))
	}
	return strings.TrimRight(fmt.Sprintf("%-8s  %s  %-4s  %-4s  %s", v.clock(e.Time, seconds), kind, job, gpu, what), " ") + "\n"
}

// Status writes the machine in a few lines: what is wrong first.
func (v View) Status(w io.Writer, s *box.Status) error {
	var b strings.Builder
	for _, line := range s.Degraded {
		b.WriteString(v.Screen.Coloured("DEGRADED", report.Bad) + ": " + report.Clean(line) + "\n")
	}
	kind := "GPU"
	if s.Emulated {
		kind = "emulated GPU"
	}
	fmt.Fprintf(&b, "%s: %s, %d in use; %s run (%s), %d wait, %d below floor\n", report.Clean(s.Host), report.Several(s.GPUs, kind), s.InUse,
		report.Several(s.Running, "job"), report.Several(s.Workers, "worker"), s.Waiting, s.BelowFloor)
	fmt.Fprintf(&b, "weft %s, pid %d, up %s, state %s\n", report.Clean(strings.TrimPrefix(s.Version, "weft ")), s.PID, Span(v.Now.Sub(s.Since)), report.Clean(s.State))
	if s.Page != "" {
		fmt.Fprintf(&b, "page %s\n", report.Clean(s.Page))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
