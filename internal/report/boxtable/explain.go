package boxtable

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// Explain writes why a job waits, or sits where it is, or how it ended.
func (v View) Explain(w io.Writer, e *box.Explanation) error {
	var b strings.Builder
	switch e.Job.State {
	case box.Waiting:
		v.waits(&b, e)
	case box.Done:
		fmt.Fprintf(&b, "Job %s %s: %s.\n", e.Job.ID, report.Clean(nameOf(&e.Job)), Ended(&e.Job))
	default:
		v.moved(&b, &e.Job)
		v.sits(&b, e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// waits writes mock-up F: the job, what it asks for, who refused it, and what would have to change.
func (v View) waits(b *strings.Builder, e *box.Explanation) {
	j := &e.Job
	reason := Waits(j.Reason)
	if r := j.Reason; r != nil && r.GPU != nil && r.After == 0 {
		reason = string(r.Code)
	}
	fmt.Fprintf(b, "Job %s %s (%s) waits %s: %s.", j.ID, report.Clean(nameOf(j)), report.Clean(j.User), Span(v.timeOf(j)), report.Clean(reason))
	if len(e.Refusals) > 0 {
		hold := 0
		for i := range e.Refusals {
			if code := e.Refusals[i].Reason.Code; code == "" || code == plan.Priority {
				hold++
			}
		}
		fmt.Fprintf(b, " %d of %s %s all floors.", hold, report.Several(len(e.Refusals), "GPU"), report.Form(hold, "holds", "hold"))
	}
	v.moved2queue(b, j)
	fmt.Fprintf(b, "\nAsks %s%s, floor %s, reserved %s, peak %s\n", gang(j.GPUs), j.Class, report.Percent(j.Floor), j.Reserved, j.Peak)
	if len(e.Refusals) > 0 {
		table := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "BESIDE"}, {Title: "REFUSED BY"}, {Title: "NUMBERS"}}}
		for i := range e.Refusals {
			table.Rows = append(table.Rows, refusalRow(&e.Refusals[i]))
		}
		_ = table.Write(b, v.Screen) // a builder takes all
	}
	if len(e.Ahead) > 0 {
		fmt.Fprintf(b, "Ahead of it: %s\n", someIDs(e.Ahead))
	}
	if e.Promised != nil {
		fmt.Fprintf(b, "Starts at %s at the latest\n", v.clock(*e.Promised, minutes))
	}
	if e.Opens != "" {
		b.WriteString(report.Clean(e.Opens) + "\n")
	}
}

// moved2queue says that a job waits again.
func (v View) moved2queue(b *strings.Builder, j *box.Job) {
	if o := j.Operation; o != nil && (o.Verb == box.Evicted || o.Verb == box.Moved || o.Verb == box.Drained) {
		first, _, _ := strings.Cut(o.Text, "\n")
		fmt.Fprintf(b, "\n%s at %s: %s", o.Verb, v.clock(o.Time, seconds), report.Clean(first))
	}
}

func gang(n int) string {
	if n <= 1 {
		return ""
	}
	return report.Several(n, "GPU") + ", "
}

// someIDs names the first IDs of a list, and how many more there are.
func someIDs(list []box.ID) string {
	const most = 8
	if len(list) <= most {
		return ids(list)
	}
	return fmt.Sprintf("%s and %d more", ids(list[:most]), len(list)-most)
}

func refusalRow(r *box.Refusal) []report.Cell {
	code := string(r.Reason.Code)
	text := cmp.Or(strings.TrimSpace(strings.TrimPrefix(r.Reason.Text, code)), figures(&r.Reason))
	if code == "" {
		code, text = report.None, cmp.Or(text, "would take it")
	}
	if r.Nearest {
		text = strings.TrimPrefix(text+"  nearest", "  ")
	}
	return report.Cells(fmt.Sprintf("gpu%d", r.GPU), ids(r.Beside), code, text)
}

// figures is what would be and what is allowed, of a reason that says no more.
func figures(r *box.Reason) string {
	switch r.Code {
	case plan.MemoryReserved:
		return fmt.Sprintf("%s, usable %s", unit.Bytes(r.Got), gib(unit.Bytes(r.Limit)))
	case plan.MemoryOverflow:
		return fmt.Sprintf("P(over) %.2f, allowed %.2f", r.Got, r.Limit)
	case plan.FloorSelf, plan.FloorResident, plan.FloorUnreachable:
		return fmt.Sprintf("keeps at least %s, floor %s", report.Percent(r.Got), report.Percent(r.Limit))
	case plan.TooLarge:
		if r.Limit > float64(unit.MiB) {
			return fmt.Sprintf("%s, usable %s", unit.Bytes(r.Got), gib(unit.Bytes(r.Limit)))
		}
	}
	if r.Got == 0 && r.Limit == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g, allowed %.4g", r.Got, r.Limit)
}

// sits writes mock-up G: where a job is, its rate, and what it loses to what.
func (v View) sits(b *strings.Builder, e *box.Explanation) {
	j := &e.Job
	place := " on " + gpus(j.On)
	if len(j.On) == 0 {
		place = ""
	}
	beside := " alone"
	if len(j.Beside) > 0 {
		beside = " beside " + ids(j.Beside)
	}
	rate := "not observed yet"
	if j.Rate != nil {
		rate = v.rate(j)
	}
	state := ""
	if j.State != box.Running {
		state = " (" + string(j.State) + ")"
	}
	fmt.Fprintf(b, "Job %s %s%s%s%s: %s, floor %s", j.ID, report.Clean(nameOf(j)), state, place, beside, rate, report.Percent(j.Floor))
	if j.Rate != nil && j.Run > 0 {
		b.WriteString(", held " + heldOf(e.Held, j.Run))
	}
	b.WriteString(".\n")
	if p := j.Predicted; p != nil && len(j.Beside) > 0 {
		fmt.Fprintf(b, "Predicted %s (%s), observed %s, %s.\n", report.Percent(p.Rate), rangeOf(p), share(j.Rate), report.Several(j.Windows, "window"))
	}
	if l := e.Lost; l != nil {
		fmt.Fprintf(b, "Lost %s: token wait %s, stalls %s, contention %s.\n", report.Percent(l.Token+l.Stall+l.Contention), points(l.Token), points(l.Stall), points(l.Contention))
	}
}

func (v View) rate(j *box.Job) string {
	if below(j.Rate, j.Floor) {
		return v.Screen.Marked(share(j.Rate), report.Bad)
	}
	return share(j.Rate)
}

// rangeOf is a prediction's interval and basis: "86 to 95, catalogue".
func rangeOf(p *box.Prediction) string {
	text := points(p.Low) + " to " + points(p.High)
	if p.Basis != "" {
		text += ", " + report.Clean(p.Basis)
	}
	return text
}

// points is a share in whole percent, without the sign.
func points(v float64) string { return strings.TrimSuffix(report.Percent(v), " %") }

// heldOf is a part of a time in one unit: "51 of 52 min".
func heldOf(held, run float64) string {
	switch d := secondsOf(run); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f of %.0f s", held, run)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d of %d min", secondsOf(held)/time.Minute, d/time.Minute)
	default:
		return Span(secondsOf(held)) + " of " + Span(d)
	}
}

// moved writes mock-up H: the last operation on a job that was moved, and why.
func (v View) moved(b *strings.Builder, j *box.Job) {
	o := j.Operation
	if o == nil || o.Verb == box.Placed {
		return
	}
	lines := strings.Split(strings.TrimSpace(o.Text), "\n")
	fmt.Fprintf(b, "Job %s %s %s at %s", j.ID, report.Clean(nameOf(j)), pathOf(o), v.clock(o.Time, seconds))
	if lines[0] != "" {
		b.WriteString(": " + report.Clean(lines[0]))
	} else {
		b.WriteString(".")
	}
	b.WriteByte('\n')
	for _, line := range lines[1:] {
		b.WriteString(report.Clean(line) + "\n")
	}
}

// pathOf is what was done, from where to where: "moved gpu1 -> gpu3".
func pathOf(o *box.Operation) string {
	what := strings.ToLower(string(o.Verb))
	switch {
	case len(o.From) > 0 && len(o.To) > 0:
		return what + " " + gpus(o.From) + " -> " + gpus(o.To)
	case len(o.From) > 0:
		return what + " from " + gpus(o.From)
	case len(o.To) > 0:
		return what + " on " + gpus(o.To)
	}
	return what
}

// Operated is what was done to a job, and why, in one line: "moved gpu1 -> gpu3: 43 was below its floor.".
func Operated(o *box.Operation) string {
	if first, _, _ := strings.Cut(strings.TrimSpace(o.Text), "\n"); first != "" {
		return pathOf(o) + ": " + report.Clean(first)
	}
	return pathOf(o)
}

// Placed is where a job is, in one line: "on gpu1 beside 43, predicted 87 % (82 to 91), floor 80 %".
func Placed(j *box.Job) string {
	text := "on " + gpus(j.On)
	if len(j.Beside) > 0 {
		text += " beside " + ids(j.Beside)
	} else {
		text += " alone"
	}
	if p := j.Predicted; p != nil && len(j.Beside) > 0 {
		text += fmt.Sprintf(", predicted %s (%s to %s)", report.Percent(p.Rate), points(p.Low), points(p.High))
	}
	return text + ", floor " + report.Percent(j.Floor)
}

// Ended is how a job ended, in one line: "done in 58m12s: mean rate 89 %, floor held, exit 0".
func Ended(j *box.Job) string {
	text := "done"
	if j.Outcome != box.Succeeded && j.Outcome != "" {
		text = string(j.Outcome)
	}
	if j.Started == nil {
		if j.Fault == "" {
			return text + " before it began"
		}
		return text + because(j)
	}
	var parts []string
	if j.Rate != nil {
		parts = append(parts, "mean rate "+share(j.Rate))
		if j.Below > 0 {
			parts = append(parts, "below its floor for "+report.Duration(secondsOf(j.Below)))
		} else {
			parts = append(parts, "floor held")
		}
	}
	if j.Exit != nil {
		parts = append(parts, exitOf(*j.Exit))
	}
	text += " in " + report.Duration(secondsOf(j.Run))
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text + because(j)
}

// because is a job's fault, if it has one.
func because(j *box.Job) string {
	if j.Fault == "" {
		return ""
	}
	return ": " + report.Clean(j.Fault)
}
