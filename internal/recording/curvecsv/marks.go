package curvecsv

import (
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/unit"
)

// marks finds iterations from the labels of rows. Rows are changes of memory, so a label says when a step first and last
// changed memory, not when it began and ended: in between the level is that of the last change. A step frees what it
// took by its end, and waits, as for data, at its beginning: so its last change is the better end. The first step, which
// no other precedes, is measured from its first change to the first of the next.
type marks struct {
	label string
	steps []step
}

type step struct {
	first, last unit.Time
}

func (m *marks) row(at unit.Time, label string) {
	if label == "" {
		m.label = ""
		return
	}
	if label != m.label {
		if len(m.steps) >= recording.MaxMarks {
			return
		}
		m.label = strings.Clone(label)
		m.steps = append(m.steps, step{at, at})
	}
	m.steps[len(m.steps)-1].last = at
}

func (m *marks) iterations() []recording.Iteration {
	if len(m.steps) < 2 {
		return nil
	}
	out := []recording.Iteration{{Start: m.steps[0].first, End: m.steps[1].first}}
	for i := 1; i < len(m.steps); i++ {
		out = append(out, recording.Iteration{Start: m.steps[i-1].last, End: m.steps[i].last})
	}
	kept := out[:0]
	for _, it := range out {
		if it.End > it.Start {
			kept = append(kept, it)
		}
	}
	return kept
}
