// Package kubetable writes what is known of a cluster for people: its nodes, GPUs and Pods, whether all is well, and why a Pod waits. It is
// told what time it is, and looks at nothing itself.
package kubetable

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/unit"
)

// View is when and where something is shown.
type View struct {
	Now    time.Time
	Zone   *time.Location // of times of day; nil is UTC
	Screen report.Screen
}

// Order in which columns are left out, the last one stays longest.
const (
	keepUUID = iota
	keepModel
	keepMemory
	keepClass
	keepPredicted
)

// Nodes writes the table of nodes.
func (v View) Nodes(w io.Writer, nodes []look.Node) error {
	table := &report.Table{Columns: []report.Column{{Title: "NODE", Shrink: true}, {Title: "MODEL", Wide: true, Shrink: true, Keep: keepModel},
		{Title: "GPUS", Number: true},
		{Title: "IDLE", Number: true}, {Title: "SHARED", Number: true}, {Title: "NATIVE", Number: true}, {Title: "CLOSED", Number: true}, {Title: "PODS", Number: true},
		{Title: "RESERVED", Number: true}, {Title: "USABLE GiB", Number: true}, {Title: "FAULT"}}}
	for i := range nodes {
		n := &nodes[i]
		row := report.Cells(n.Name, cmp.Or(models(n.Models), report.None), strconv.Itoa(n.GPUs), strconv.Itoa(n.Idle), strconv.Itoa(n.Shared),
			strconv.Itoa(n.Native),
			strconv.Itoa(n.Closed), strconv.Itoa(n.Pods), gib(n.Reserved), gib(n.Usable), n.Fault)
		if n.Fault != "" {
			row[10].Mark = report.Bad
		}
		table.Rows = append(table.Rows, row)
	}
	return table.Write(w, v.Screen)
}

// models are product names without their maker's.
func models(names []string) string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimPrefix(name, "NVIDIA ")
	}
	return strings.Join(short, ",")
}

// GPUs writes the table of GPUs.
func (v View) GPUs(w io.Writer, gpus []look.GPU) error {
	table := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "MODEL", Wide: true, Shrink: true, Keep: keepModel},
		{Title: "UUID", Wide: true, Keep: keepUUID},
		{Title: "STATE"}, {Title: "RESERVED", Number: true}, {Title: "USABLE GiB", Number: true}, {Title: "RESIDENTS", Shrink: true}}}
	for i := range gpus {
		g := &gpus[i]
		row := report.Cells(g.Name, models([]string{g.Model}), shortUUID(g.UUID), g.State, gib(g.Reserved), gib(g.Usable), names(g.Residents))
		if g.Fault != "" {
			row[3].Mark = report.Bad
		}
		table.Rows = append(table.Rows, row)
	}
	if err := table.Write(w, v.Screen); err != nil {
		return err
	}
	for i := range gpus {
		if g := &gpus[i]; g.Fault != "" {
			if _, err := fmt.Fprintf(w, "note: %s: %s\n", g.Name, report.Clean(g.Fault)); err != nil {
				return err
			}
		}
	}
	return nil
}

// shortUUID is a UUID's first group, which tells the GPUs of a machine apart.
func shortUUID(uuid string) string {
	if parts := strings.SplitN(uuid, "-", 3); len(parts) == 3 {
		return parts[0] + "-" + parts[1]
	}
	return uuid
}

// names joins names with commas; "-" for none.
func names(list []string) string { return cmp.Or(strings.Join(list, ","), report.None) }

// places names GPUs, what is common to those in a row once: "node-3/gpu0,1 node-4/gpu0"; "-" for none.
func places(gpus []string) string {
	var b strings.Builder
	last := ""
	for _, gpu := range gpus {
		node := strings.TrimRight(gpu, "0123456789")
		switch {
		case node == last:
			b.WriteString("," + gpu[len(node):])
		case last == "":
			b.WriteString(gpu)
		default:
			b.WriteString(" " + gpu)
		}
		last = node
	}
	return cmp.Or(b.String(), report.None)
}

// gib is an amount of memory in GiB, without the unit.
func gib(b unit.Bytes) string { return strconv.FormatFloat(b.GiB(), 'f', 1, 64) }

// Pods writes the table of Pods.
func (v View) Pods(w io.Writer, pods []look.Pod) error {
	table := &report.Table{Columns: []report.Column{{Title: "NAMESPACE", Shrink: true}, {Title: "NAME", Shrink: true}, {Title: "STATE"},
		{Title: "CLASS", Wide: true, Keep: keepClass},
		{Title: "GPU"}, {Title: "RATE", Number: true}, {Title: "PRED", Number: true, Wide: true, Keep: keepPredicted}, {Title: "FLOOR", Number: true},
		{Title: "MEM GiB", Number: true, Wide: true, Keep: keepMemory}, {Title: "TIME", Number: true}, {Title: "REASON"}}}
	for i := range pods {
		table.Rows = append(table.Rows, v.podRow(&pods[i]))
	}
	return table.Write(w, v.Screen)
}

func (v View) podRow(p *look.Pod) []report.Cell {
	memory, predicted := report.None, report.None
	if p.Peak > 0 {
		memory = gib(p.Reserved) + "/" + gib(p.Peak)
	}
	if len(p.On) > 0 {
		predicted = share(p.Predicted)
	}
	row := report.Cells(p.Namespace, p.Name, string(p.State), classOf(p), places(p.On), share(p.Rate), predicted,
		share(p.Floor), memory, boxtable.Span(v.Now.Sub(p.Since)), p.Reason)
	switch p.State {
	case look.Waiting, look.Placed:
		row[2].Mark = report.Waiting
	case look.Invalid:
		row[2].Mark = report.Bad
	}
	if p.Below {
		row[7].Mark = report.Bad
	}
	return row
}

// classOf is a Pod's class; a native one has a GPU whole.
func classOf(p *look.Pod) string {
	if p.Mode == look.Native {
		return string(look.Native)
	}
	return cmp.Or(p.Class, report.None)
}

// share is a share that may not be known.
func share(v *float64) string {
	if v == nil {
		return report.None
	}
	return report.Percent(*v)
}

// Status writes how a cluster is: what is wrong first.
func (v View) Status(w io.Writer, s *look.Status, server string) error {
	var b strings.Builder
	for i, line := range s.Degraded {
		if i == mostWrong {
			fmt.Fprintf(&b, "%s: %s more; --json has all\n", v.Screen.Coloured("DEGRADED", report.Bad), report.Count(len(s.Degraded)-mostWrong))
			break
		}
		b.WriteString(v.Screen.Coloured("DEGRADED", report.Bad) + ": " + report.Clean(line) + "\n")
	}
	fmt.Fprintf(&b, "%d/%d nodes, %s: %d shared, %d native, %d idle, %d closed\n", s.Serving, s.Nodes, report.Several(s.GPUs, "GPU"), s.Shared, s.Native, s.Idle, s.Closed)
	waits := fmt.Sprintf("%d wait", s.Waiting)
	if len(s.Reasons) > 0 {
		waits += " (" + reasons(s.Reasons) + ")"
	}
	if s.Wanted > 0 {
		waits += fmt.Sprintf(", %s wanted", report.Several(s.Wanted, "GPU"))
	}
	fmt.Fprintf(&b, "Pods: %d share, %d on whole GPUs, %s, %d below floor\n", s.Sharing, s.Whole, waits, s.Below)
	b.WriteString(report.Clean(server) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// mostWrong bounds the lines of what is wrong.
const mostWrong = 20

// reasons are counts by code, the most frequent first.
func reasons(counts map[plan.Code]int) string {
	var parts []string
	codes := slices.SortedFunc(maps.Keys(counts), func(a, b plan.Code) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for _, code := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", counts[code], code))
	}
	return strings.Join(parts, ", ")
}
