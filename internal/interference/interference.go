// Package interference says how much jobs that share a GPU slow each other down: pair rates, their composition for more
// than two residents, and a belief about them that observations correct.
package interference

import (
	"math"
)

// Config is what a pair rate was measured for: a model at a batch size. An empty batch is a value of its own, for
// models that have none.
type Config struct {
	Model, Batch string
}

// String is "model:batch", or the model alone.
func (c Config) String() string {
	if c.Batch == "" {
		return c.Model
	}
	return c.Model + ":" + c.Batch
}

// Table holds pair rates, measured or predicted. Configurations are numbered in order of first appearance. Two
// configurations whose pair is not in the table may not share a GPU.
type Table struct {
	configs []Config
	index   map[Config]int
	added   [][]float64 // or unmeasured
}

// unmeasured is below every measured slowdown, so that the worst of all measurements is their maximum.
const unmeasured = -1

// NewTable is an empty table: nothing may share.
func NewTable() *Table { return &Table{index: map[Config]int{}} }

// Add records one measurement: a keeps the share rateA of its standalone rate beside b, and b the share rateB. A rate
// above 1 counts as 1, one that is not above 0 as "may not share". A pair that is recorded again keeps the worse rates.
// Beside its own twin a configuration has two measured rates, and the worse counts for both.
func (t *Table) Add(a, b Config, rateA, rateB float64) {
	i, l := t.number(a), t.number(b)
	t.record(i, l, rateA)
	t.record(l, i, rateB)
}

func (t *Table) record(i, l int, rate float64) {
	added := math.Inf(1)
	if rate > 0 {
		added = max(0, 1/rate-1)
	}
	t.added[i][l] = max(t.added[i][l], added)
}

func (t *Table) number(c Config) int {
	if i, ok := t.index[c]; ok {
		return i
	}
	i := len(t.configs)
	t.index[c] = i
	t.configs = append(t.configs, c)
	for j := range t.added {
		t.added[j] = append(t.added[j], unmeasured)
	}
	row := make([]float64, i+1)
	for j := range row {
		row[j] = unmeasured
	}
	t.added = append(t.added, row)
	return i
}

// Lookup is the number of a configuration.
func (t *Table) Lookup(c Config) (int, bool) {
	i, ok := t.index[c]
	return i, ok
}

// Len is the number of configurations.
func (t *Table) Len() int { return len(t.configs) }

// Config is the configuration of a number.
func (t *Table) Config(i int) Config { return t.configs[i] }

// Added is the slowdown that l adds to i: 1/rate - 1, at least 0; +Inf when the pair was never measured. Slowdowns
// compose by addition, s = 1 + sum of Added: exact for saturated time slicing, and monotone, so that every subset of
// a set that holds its floors holds them too.
func (t *Table) Added(i, l int) float64 {
	if added := t.added[i][l]; added >= 0 {
		return added
	}
	return math.Inf(1)
}
