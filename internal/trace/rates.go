package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// RateSource names one measurement campaign and GPU in a table of rates.
type RateSource struct {
	Source string // "" means gavel_simulation, the campaign with the most entries
	GPU    string // "" means v100
}

// Rates is the standalone speed of models on equal GPUs, all of a gang on as few nodes as it fits.
type Rates struct {
	perSecond map[rateKey]float64
}

type rateKey struct {
	model, batch string
	workers      int
}

// rate is steps per second of a model on so many GPUs, if measured.
func (r *Rates) rate(model, batch string, workers int) (float64, bool) {
	if r == nil {
		return 0, false
	}
	v, ok := r.perSecond[rateKey{model, batch, workers}]
	return v, ok
}

var rateColumns = []string{"source", "gpu_type", "placement", "scale_factor", "model", "steps_per_sec"}

// ReadRates reads the rows of one source and GPU, placement consolidated, from a table with the columns source,
// gpu_type, placement, scale_factor, model, steps_per_sec. A rate of 0 means not measured. It is an error when the
// table has no row of that source and GPU, or two rates for one configuration.
func ReadRates(file string, r io.Reader, want RateSource) (*Rates, error) {
	if want.Source == "" {
		want.Source = "gavel_simulation"
	}
	if want.GPU == "" {
		want.GPU = "v100"
	}
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	t, err := NewTable(file, in, Columns{Required: rateColumns})
	if err != nil {
		return nil, err
	}
	rates := &Rates{perSecond: map[rateKey]float64{}}
	var found []string // sources seen, to name them when the wanted one is not there
	for t.Next() {
		full := cellsFilled(t, rateColumns)
		workers, v := t.Int("scale_factor", 1, maxWorkers, 1), t.Float("steps_per_sec", 0, 1e12, 0)
		if has := t.Text("source") + " on " + t.Text("gpu_type"); !slices.Contains(found, has) && len(found) < maxErrors {
			found = append(found, strings.Clone(has))
		}
		wanted := t.Text("source") == want.Source && strings.EqualFold(t.Text("gpu_type"), want.GPU) &&
			t.Text("placement") == "consolidated"
		if full && wanted && v > 0 {
			rates.add(t, workers, v)
		}
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	if len(rates.perSecond) == 0 {
		return nil, Errors{{Code: "no_rates", File: file, Value: want.Source,
			Message: fmt.Sprintf("no rates of %s on %s", want.Source, want.GPU), Fix: "it has " + clean(strings.Join(found, ", "))}}
	}
	return rates, nil
}

func (r *Rates) add(t *Table, workers int, v float64) {
	model, batch := splitJobType(strings.Clone(t.Text("model")))
	key := rateKey{model, batch, workers}
	if _, twice := r.perSecond[key]; twice {
		t.Fault("model", "double_row", clean(t.Text("model"))+" on "+strconv.Itoa(workers)+" GPUs stands twice", "", "remove one row")
	}
	r.perSecond[key] = v
}
