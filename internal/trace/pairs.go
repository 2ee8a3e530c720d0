package trace

import (
	"io"
)

// Pair is one measurement of two jobs that shared a GPU: each one's speed as a share of its speed alone. A share above
// 1 is as measured; whether it counts as 1 is for the user of the table to decide.
type Pair struct {
	Source, GPU  string
	JobA, BatchA string // an empty batch is a value
	JobB, BatchB string
	NormA, NormB float64 // above 0
}

var (
	pairRequired = []string{"job_a", "job_b", "norm_a", "norm_b"}
	pairOptional = append([]string{"source", "gpu_type", "sharing", "kind", "batch_a", "share_a", "batch_b", "share_b", "alone_a",
		"alone_b", "together_a", "together_b", "unit", "gpu_util_pct", "mem_util_pct", "mem_used_mib", "flag"}, pairAlone...)
)

// maxNorm is far above any speed-up that a neighbour can give; beyond it a column holds something else.
const maxNorm = 100

// ReadPairs reads a table of measured pairs, in file order. The columns job_a, job_b, norm_a and norm_b are required.
// A speed that is missing, not a number or not above 0 is an error.
func ReadPairs(file string, r io.Reader) ([]Pair, error) {
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	t, err := NewTable(file, in, Columns{Required: pairRequired, Optional: pairOptional})
	if err != nil {
		return nil, err
	}
	var pairs []Pair
	names := interner{}
	text := func(column string) string { return names.text(t.Text(column)) }
	for t.Next() {
		cellsFilled(t, pairRequired)
		pairs = append(pairs, Pair{Source: text("source"), GPU: text("gpu_type"), JobA: text("job_a"), BatchA: text("batch_a"),
			JobB: text("job_b"), BatchB: text("batch_b"), NormA: t.positive("norm_a"), NormB: t.positive("norm_b")})
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	return pairs, nil
}

// positive is the cell as a number in (0, maxNorm]; 0 when it is empty or at fault.
func (t *Table) positive(column string) float64 {
	v := t.Float(column, 0, maxNorm, -1)
	if v == 0 {
		t.Fault(column, "out_of_range", column+" 0: must be positive", "", "remove the row of a pair that was not measured")
	}
	return max(v, 0)
}
