package trace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/unit"
)

// sacctStates are Slurm's job states. The value says why a job in that state is not replayed; "" means that it ended.
var sacctStates = map[string]string{
	"COMPLETED": "", "CANCELLED": "", "FAILED": "", "TIMEOUT": "", "OUT_OF_MEMORY": "", "NODE_FAIL": "", "PREEMPTED": "",
	"DEADLINE": "", "BOOT_FAIL": "", "REQUEUED": "", "RESIZING": "", "SPECIAL_EXIT": "", "LAUNCH_FAILED": "",
	"RECONFIG_FAIL": "", "STOPPED": reasonRunning, "REVOKED": reasonRevoked,
	"RUNNING": reasonRunning, "SUSPENDED": reasonRunning, "COMPLETING": reasonRunning, "STAGE_OUT": reasonRunning,
	"SIGNALING": reasonRunning, "PENDING": reasonNoStart, "CONFIGURING": reasonNoStart, "REQUEUE_HOLD": reasonNoStart,
	"REQUEUE_FED": reasonNoStart, "RESV_DEL_HOLD": reasonNoStart,
}

// sacctState is the state without what follows it: "CANCELLED by 20017", or "+" where sacct cut it.
func sacctState(s string) string {
	state, _, _ := strings.Cut(s, " ")
	return strings.TrimSuffix(state, "+")
}

// parse reads the current row as a run, and why it cannot become a job, or "". What it cannot read is a fault.
func (c *sacctReader) parse(id sacctID) (sacctRun, string) {
	t := c.table
	state, known := sacctStates[sacctState(t.Text("State"))]
	submit, start, held := c.time("Submit"), c.time("Start"), c.held()
	run := sacctRun{component: id.component, submit: submit, submitted: submit, start: start, run: c.elapsed(start),
		gpus: held.total(), running: state == reasonRunning, line: t.line}
	switch {
	case !known:
		return run, reasonState
	case c.neverStarted(run, state):
		if !c.asksGPU() {
			return run, reasonNoGPU
		}
		return run, reasonNoStart
	case held.mig != "":
		return run, "MIG slice (" + held.mig + ")"
	case held.shards:
		return run, reasonShards
	case run.gpus == 0:
		return run, reasonNoGPU
	case run.gpus > maxWorkers:
		return run, reasonTooLarge
	case submit == 0:
		return run, reasonNoTime
	case state != "" && !run.running:
		return run, state
	case !run.running && run.run < 0:
		return run, reasonNoRun
	}
	run.key = sacctKey{id.text, c.names.text(t.Text("User")), c.names.text(t.Text("JobName"))}
	if run.component >= 0 {
		run.key.id += "+" + strconv.Itoa(run.component)
	}
	return run, ""
}

// neverStarted says whether a run ended before it held anything. A job cancelled in the queue has no start in some
// versions of Slurm and the time of its end in others, but nothing allocated.
func (c *sacctReader) neverStarted(run sacctRun, state string) bool {
	if state == reasonNoStart || run.start == 0 {
		return true
	}
	for _, column := range sacctAlloc {
		if c.table.Text(column) != "" {
			return false
		}
	}
	return state == "" && run.run <= 0
}

// held is what the run was given; where accounting did not say though it ran, what it asked for.
func (c *sacctReader) held() gres {
	var g gres
	for _, column := range slices.Concat(sacctAlloc, sacctReq) {
		text := c.table.Text(column)
		if text == "" {
			continue
		}
		if g = parseGRES(text); g.any() || column == "AllocTRES" {
			break
		}
	}
	if g.any() {
		c.gpus++
	}
	for _, kind := range g.types {
		if !slices.Contains(c.typed, kind) && len(c.typed) < maxErrors {
			c.typed = append(c.typed, strings.Clone(kind))
		}
	}
	return g
}

// time is a cell as a time; 0 for one that is absent. One in a form that cannot be read is a fault.
func (c *sacctReader) time(column string) unit.Time {
	at, naive, err := sacctTime(c.table.Text(column))
	if err != nil {
		c.table.Fault(column, "not_a_date", fmt.Sprintf("%s %s is not a date", column, clean(c.table.Text(column))),
			"SLURM_TIME_FORMAT of the exporting shell decides how sacct writes times", "unset SLURM_TIME_FORMAT; "+sacctExport)
	}
	c.naive = c.naive || naive
	return at
}

// sacctLayouts are the forms of times: sacct's own, and ISO 8601 with an offset.
var sacctLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", time.DateTime}

var errNotTime = errors.New("not a time")

// sacctTime reads a time as nanoseconds since 1970; naive ones are taken as UTC. Unknown, None and N/A are 0: Slurm
// writes them for what has not happened. A number is seconds since 1970, as SLURM_TIME_FORMAT=%s gives.
func sacctTime(s string) (at unit.Time, naive bool, err error) {
	switch s {
	case "", "Unknown", "None", "N/A", "NONE", "Invalid", "INVALID", "0":
		return 0, false, nil
	}
	for _, layout := range sacctLayouts {
		if v, err := time.Parse(layout, s); err == nil && validDate(v) {
			return unit.Time(v.UnixNano()), !strings.Contains(layout, "Z"), nil
		}
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil && len(s) >= 9 && validDate(time.Unix(v, 0).UTC()) {
		return unit.Time(v) * unit.Time(time.Second), false, nil
	}
	return 0, false, errNotTime
}

// elapsed is the run time without suspension, -1 when the log has none.
//
// Slurm itself takes suspension off Elapsed, other tools that write this form do not. Start and End tell which: the
// reading that is nearer to End - Start counts. Without them Slurm's rule holds.
func (c *sacctReader) elapsed(start unit.Time) time.Duration {
	column := "Elapsed"
	if c.table.Text(column) == "" {
		column = "ElapsedRaw"
	}
	run, suspended, end := c.span(column), c.span("Suspended"), c.time("End")
	if run < 0 || suspended <= 0 || start == 0 || end == 0 {
		return run
	}
	wall := end.Sub(start)
	if (wall - run).Abs() < (wall - run - suspended).Abs() {
		run = max(0, run-suspended)
	}
	return run
}

func (c *sacctReader) span(column string) time.Duration {
	text := c.table.Text(column)
	d, err := parseElapsed(text)
	if err != nil {
		c.table.Fault(column, "not_a_duration", fmt.Sprintf("%s %s is not a run time", column, clean(text)), "",
			"Slurm writes [days-]hours:minutes:seconds; export with "+sacctExport)
	}
	return d
}

// parseElapsed reads [days-][hours:]minutes:seconds[.fraction], or whole seconds as ElapsedRaw has. An absent one is -1.
func parseElapsed(s string) (time.Duration, error) {
	switch s {
	case "", "Unknown", "None", "N/A", "INVALID":
		return -1, nil
	}
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "0", s
	}
	parts := strings.Split(clock, ":")
	if len(parts) > 3 || hasDays && len(parts) != 3 {
		return 0, errNotTime
	}
	total, err := parseCount(days)
	if err != nil {
		return 0, err
	}
	total *= 24 // hours so far
	if len(parts) < 3 {
		total *= 60
	}
	if len(parts) < 2 {
		total *= 60
	}
	for i, p := range parts {
		var v float64
		if i == len(parts)-1 {
			v, err = parseSeconds(p)
		} else {
			v, err = parseCount(p)
		}
		if err != nil || i > 0 && v >= 61 { // 60 is a leap second
			return 0, errNotTime
		}
		if i > 0 {
			total *= 60
		}
		total += v
	}
	if total > maxSeconds {
		return 0, errNotTime
	}
	return unit.Duration(total), nil
}

// parseCount reads digits only: no sign, exponent or fraction.
func parseCount(s string) (float64, error) {
	v, err := strconv.ParseUint(s, 10, 40)
	return float64(v), err
}

// parseSeconds reads digits and a fraction.
func parseSeconds(s string) (float64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	v, err := parseCount(whole)
	if err != nil || fraction == "" {
		return v, err
	}
	f, err := parseCount(fraction[:min(len(fraction), 9)])
	for range min(len(fraction), 9) {
		f /= 10
	}
	return v + f, err
}
