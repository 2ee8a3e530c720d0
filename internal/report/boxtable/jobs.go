package boxtable

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
)

// Order in which columns of jobs are left out, the last one stays longest.
const (
	keepCommand = iota
	keepPredicted
	keepPriority
	keepClass
	keepMemory
)

// Jobs writes the table of weft ps.
func (v View) Jobs(w io.Writer, jobs []box.Job) error {
	table := &report.Table{Columns: []report.Column{{Title: "ID"}, {Title: "NAME", Shrink: true}, {Title: "USER"}, {Title: "STATE"},
		{Title: "CLASS", Wide: true, Keep: keepClass}, {Title: "PRIO", Number: true, Wide: true, Keep: keepPriority}, {Title: "GPU"}, {Title: "RATE", Number: true},
		{Title: "PRED", Number: true, Wide: true, Keep: keepPredicted}, {Title: "FLOOR", Number: true}, {Title: "MEM GiB", Number: true, Wide: true, Keep: keepMemory},
		{Title: "TIME", Number: true}, {Title: "REASON"}, {Title: "COMMAND", Wide: true, Shrink: true, Keep: keepCommand}}}
	for i := range jobs {
		table.Rows = append(table.Rows, v.jobRow(&jobs[i]))
	}
	return table.Write(w, v.Screen)
}

func (v View) jobRow(j *box.Job) []report.Cell {
	rate := report.Cell{Text: report.None}
	if j.State.Live() || j.State == box.Done {
		rate.Text = share(j.Rate)
	}
	if j.State.Live() && below(j.Rate, j.Floor) {
		rate.Mark = report.Bad
	}
	predicted := report.None
	if j.Predicted != nil && j.State.Live() {
		predicted = report.Percent(j.Predicted.Rate)
	}
	on := report.None
	if j.State != box.Done {
		on = numbers(j.On)
	}
	row := report.Cells(j.ID.String(), nameOf(j), j.User, "", j.Class.String(), strconv.Itoa(j.Priority), on, "", predicted,
		report.Percent(j.Floor), gib(j.Reserved)+"/"+gib(j.Peak), Span(v.timeOf(j)), v.reasonOf(j), commandOf(j.Command))
	row[3], row[7] = stateOf(j), rate
	return row
}

// nameOf is a job's name, with its index in an array.
func nameOf(j *box.Job) string {
	if j.Index == nil {
		return j.Name
	}
	return fmt.Sprintf("%s[%d]", j.Name, *j.Index)
}

// stateOf is the state; of a job that is done, how it ended.
func stateOf(j *box.Job) report.Cell {
	switch j.State {
	case box.Done:
		c := report.Cell{Text: cmp.Or(string(j.Outcome), string(box.Done))}
		if j.Outcome == box.Failed || j.Outcome == box.Lost || j.Outcome == box.TimedOut {
			c.Mark = report.Bad
		}
		return c
	case box.Waiting:
		return report.Cell{Text: string(j.State), Mark: report.Waiting}
	}
	return report.Cell{Text: string(j.State)}
}

// timeOf is how long a job waits, or ran.
func (v View) timeOf(j *box.Job) time.Duration {
	if j.State == box.Waiting {
		return v.Now.Sub(j.Submitted)
	}
	return secondsOf(j.Run)
}

// reasonOf is what there is to say of a job in a word or three.
func (v View) reasonOf(j *box.Job) string {
	switch {
	case j.State == box.Done:
		if j.Exit != nil && *j.Exit != 0 && j.Outcome == box.Failed {
			return exitOf(*j.Exit)
		}
		return ""
	case j.State == box.Waiting:
		return Waits(j.Reason)
	case j.Operation != nil && j.Operation.Verb != box.Placed:
		return string(j.Operation.Verb) + " " + v.clock(j.Operation.Time, minutes)
	}
	return ""
}

// exitOf is an exit status, as a shell has it.
func exitOf(status int) string {
	if status > 128 && status <= 192 {
		return fmt.Sprintf("exit %d (signal %d)", status, status-128)
	}
	return fmt.Sprintf("exit %d", status)
}

// Waits is why a job waits, in a few words: "MemoryOverflow gpu1", "Priority after 47".
func Waits(r *box.Reason) string {
	switch {
	case r == nil:
		return "Planning"
	case r.Text != "":
		return r.Text
	case r.After != 0:
		return fmt.Sprintf("%s after %d", r.Code, r.After)
	case r.GPU != nil:
		return fmt.Sprintf("%s gpu%d", r.Code, *r.GPU)
	}
	return string(r.Code)
}

// interpreters are programs whose first argument tells more than their name.
var interpreters = []string{"python", "bash", "sh", "zsh", "perl", "ruby", "node", "julia", "Rscript"}

// commandOf is a command in few letters: without folders, and without the interpreter of a script.
func commandOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	words := slices.Clone(command)
	words[0] = path.Base(words[0])
	name := strings.TrimRight(words[0], "0123456789.")
	if len(words) > 1 && slices.Contains(interpreters, name) && !strings.HasPrefix(words[1], "-") {
		words = words[1:]
		words[0] = path.Base(words[0])
	}
	return strings.Join(words, " ")
}
