package kubetable

import (
	"cmp"
	"fmt"
	"io"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/removal"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/boxtable"
)

// Removal writes the Pods that weft cannot be removed from under; nothing for none. Below them stand the nodes without an agent, on which none
// of them can end.
func (v View) Removal(w io.Writer, pods []removal.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	table := &report.Table{Columns: []report.Column{{Title: "POD", Shrink: true}, {Title: "MODE"}, {Title: "STATE"}, {Title: "GPU", Shrink: true},
		{Title: "OWNER", Shrink: true}, {Title: "TIME", Number: true}}}
	var orphaned []string
	for i := range pods {
		p := &pods[i]
		span := report.None
		if p.Since != nil {
			span = boxtable.Span(v.Now.Sub(*p.Since))
		}
		row := report.Cells(p.String(), string(p.Mode), cmp.Or(string(p.State), report.None), places(p.GPUs), cmp.Or(p.Owner, report.None), span)
		if p.State == look.Waiting {
			row[2].Mark = report.Waiting
		}
		if p.Orphaned {
			orphaned = append(orphaned, p.Node)
		}
		table.Rows = append(table.Rows, row)
	}
	if err := table.Write(w, v.Screen); err != nil {
		return err
	}
	for _, node := range unique(orphaned) {
		if _, err := fmt.Fprintf(w, "%s: no agent of weft runs there, so its Pods cannot end\n", report.Clean(node)); err != nil {
			return err
		}
	}
	return nil
}
