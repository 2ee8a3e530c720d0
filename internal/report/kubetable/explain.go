package kubetable

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/boxtable"
)

// mostRefusals bounds the GPUs that an explanation lists.
const mostRefusals = 20

// Explain writes why a Pod waits, or where it is and beside whom, and what would have to change.
func (v View) Explain(w io.Writer, e *look.Explanation) error {
	var b strings.Builder
	name := report.Clean(e.Namespace + "/" + e.Name)
	switch {
	case e.State == look.Ended:
		fmt.Fprintf(&b, "Pod %s: %s.\n", name, report.Clean(e.Told))
	case e.State == look.Invalid:
		fmt.Fprintf(&b, "Pod %s cannot be placed: %s\n", name, report.Clean(e.Told))
	case len(e.Places) > 0:
		v.sits(&b, e, name)
	case e.Mode == look.None:
		fmt.Fprintf(&b, "Pod %s asks for no GPU.\n", name)
	case e.State == look.Waiting:
		v.waits(&b, e, name)
	default:
		fmt.Fprintf(&b, "Pod %s is %s; weft serves none of its GPUs.\n", name, e.State)
	}
	v.conditions(&b, e)
	if e.Scheduler != "" {
		b.WriteString("The scheduler says: " + report.Clean(e.Scheduler) + "\n")
	}
	for _, line := range e.Advice {
		b.WriteString(report.Clean(line) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// waits writes the reason, what the Pod asks, who refuses it and what would have to change.
func (v View) waits(b *strings.Builder, e *look.Explanation, name string) {
	fmt.Fprintf(b, "Pod %s waits %s: %s.\n", name, boxtable.Span(v.Now.Sub(e.Since)), strings.TrimSuffix(report.Clean(e.Told), "."))
	if e.Mode == look.Shared {
		fmt.Fprintf(b, "Asks %s%s, floor %s, %s\n", gang(e), e.Class, share(e.Floor), memory(e))
	}
	table := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "BESIDE", Shrink: true}, {Title: "REFUSED BY"}, {Title: "NUMBERS"}}}
	for i := range e.Refusals {
		if i == mostRefusals || e.Never { // what GPUs say is no help to who must change the Pod
			break
		}
		r := &e.Refusals[i]
		text := r.Text
		if r.Code == "" {
			text = cmp.Or(text, "would take it")
		} else if r.Nearest {
			text = strings.TrimPrefix(text+"  nearest", "  ")
		}
		table.Rows = append(table.Rows, report.Cells(r.GPU, names(r.Beside), cmp.Or(string(r.Code), report.None), text))
	}
	if len(table.Rows) > 0 {
		_ = table.Write(b, v.Screen) // a builder takes all
	}
	if n := len(e.Refusals) - mostRefusals; n > 0 && !e.Never {
		fmt.Fprintf(b, "and %s more; --json has all\n", report.Several(n, "GPU"))
	}
	if len(e.Ahead) > 0 && !e.Never {
		b.WriteString("Ahead of it: " + report.Clean(some(e.Ahead)) + "\n")
	}
	if e.Promised != nil {
		b.WriteString("Starts at " + v.clock(*e.Promised) + " at the latest\n")
	}
	if e.Opens != "" {
		b.WriteString(report.Clean(e.Opens) + "\n")
	}
}

// clock is a time of day; with its date when that is another day.
func (v View) clock(t time.Time) string {
	zone := v.Zone
	if zone == nil {
		zone = time.UTC
	}
	t = t.In(zone)
	if now := v.Now.In(zone); now.Year() != t.Year() || now.YearDay() != t.YearDay() {
		return t.Format("Jan 2 15:04")
	}
	return t.Format("15:04")
}

func gang(e *look.Explanation) string {
	text := ""
	if n := len(e.Gang); n > 0 {
		text = report.Several(n, "Pod") + " at once, "
	}
	if e.GPUs > 1 {
		text += report.Several(e.GPUs, "GPU") + ", "
	}
	return text
}

func memory(e *look.Explanation) string {
	if e.Peak == 0 {
		return "memory unknown: it shares with nobody"
	}
	return fmt.Sprintf("reserved %s, peak %s", queue.Bytes(e.Reserved), queue.Bytes(e.Peak))
}

// some are the first names of a list, and how many more there are.
func some(list []string) string {
	const most = 8
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(list[:most], ", "), report.Count(len(list)-most))
}

// sits writes where a Pod is, with what it is held to, and who is beside it.
func (v View) sits(b *strings.Builder, e *look.Explanation, name string) {
	var at, beside []string
	for i := range e.Places {
		at = append(at, e.Places[i].GPU)
		for _, r := range e.Places[i].Residents {
			beside = append(beside, r.Name)
		}
	}
	verb := map[look.State]string{look.Placed: "is placed", look.Stopping: "is stopping"}[e.State]
	where := strings.Join(at, ", ")
	if e.Mode != look.Shared {
		fmt.Fprintf(b, "Pod %s %s %s whole.\n", name, cmp.Or(verb, "has"), where)
		return
	}
	text := " alone"
	if len(beside) > 0 {
		text = " beside " + some(unique(beside))
	}
	fmt.Fprintf(b, "Pod %s %s on %s%s: %sfloor %s%s.\n", name, cmp.Or(verb, "runs"), where, report.Clean(text), v.observed(e), share(e.Floor), predicted(e.Range))
	if e.Peak > 0 {
		fmt.Fprintf(b, "Reserved %s, peak %s\n", queue.Bytes(e.Reserved), queue.Bytes(e.Peak))
	}
	if len(beside) == 0 {
		return
	}
	table := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "BESIDE", Shrink: true}, {Title: "CLASS"}, {Title: "FLOOR", Number: true},
		{Title: "RESERVED", Number: true}, {Title: "PEAK GiB", Number: true}}}
	for i := range e.Places {
		for _, r := range e.Places[i].Residents {
			table.Rows = append(table.Rows, report.Cells(e.Places[i].GPU, r.Name,
				cmp.Or(r.Class, report.None), share(&r.Floor), gib(r.Reserved), gib(r.Peak)))
		}
	}
	_ = table.Write(b, v.Screen) // a builder takes all
	for i := range e.Places {
		fmt.Fprintf(b, "%s: %s of %s reserved\n", e.Places[i].GPU, queue.Bytes(e.Places[i].Reserved), queue.Bytes(e.Places[i].Usable))
	}
}

func unique(list []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			out, seen[s] = append(out, s), true
		}
	}
	return out
}

// observed is the rate of a Pod where it is known.
func (v View) observed(e *look.Explanation) string {
	switch {
	case e.Rate == nil:
		return ""
	case e.Below:
		return v.Screen.Marked(share(e.Rate), report.Bad) + ", "
	}
	return share(e.Rate) + ", "
}

// predicted is a prediction: ", predicted 91 % (86 to 95, catalogue)".
func predicted(r *look.Range) string {
	if r == nil || r.Basis == "alone" {
		return ""
	}
	points := func(v float64) string { return strings.TrimSuffix(report.Percent(v), " %") }
	return fmt.Sprintf(", predicted %s (%s to %s, %s)", report.Percent(r.Rate), points(r.Low), points(r.High), report.Clean(r.Basis))
}

// conditions writes those that are not as they should be.
func (v View) conditions(b *strings.Builder, e *look.Explanation) {
	for _, c := range e.Condition {
		if c.Type == kube.ConditionFloorHeld && c.Status == "False" {
			fmt.Fprintf(b, "%s for %s: %s\n", v.Screen.Marked("Below its floor", report.Bad), boxtable.Span(v.Now.Sub(c.Since)), report.Clean(c.Message))
		}
	}
}
