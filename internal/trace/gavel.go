package trace

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Columns of the traces of Gavel (Narayanan et al., OSDI 2020) and of Shockwave, which adds a measured run time.
var (
	gavelRequired = []string{"job_type", "total_steps", "scale_factor", "arrival_time"}
	gavelOptional = []string{"vc", "trace", "working_dir", "needs_data_dir", "mode", "priority", "priority_weight", "slo",
		"duration"}
)

// maxSteps bounds a job's iterations; beyond 2^53 a float64 would lose count.
const maxSteps = 1 << 53

// readGavel reads a Gavel trace. A job's work is in steps, so its run time is total_steps / (steps per second alone, on
// scale_factor GPUs), from Options.Rates; a column duration, in seconds, goes before it. Where a trace merges several,
// each is a virtual cluster.
func readGavel(s *Stream, r *bufio.Reader) error {
	t, err := NewTable(s.file, r, Columns{gavelRequired, gavelOptional, s.o.IgnoreUnknown, 0})
	if err != nil {
		return err
	}
	if s.o.Rates == nil && !t.Has("duration") {
		return Errors{{Code: "no_rates", File: s.file, Column: "total_steps",
			Message: "this trace states work in steps: run times need the steps per second of each job alone",
			Fix: "give --rates FILE with the columns source,gpu_type,placement,scale_factor,model,steps_per_sec " +
				"(isolated_throughput_gavel_shockwave.csv)"}}
	}
	if err := s.axis(false); err != nil {
		return err
	}
	for s.next(t) {
		s.gavelRow(t)
	}
	return t.Err()
}

func (s *Stream) gavelRow(t *Table) {
	full, before := cellsFilled(t, gavelRequired), len(t.errs)
	steps := t.Float("total_steps", 0, maxSteps, 0)
	j := cluster.Job{
		ID:       strconv.Itoa(s.Rows),
		VC:       s.names.text(t.Text("vc") + t.Text("trace")),
		Workers:  t.Int("scale_factor", 1, maxWorkers, 1),
		Share:    unit.WholeGPU,
		Priority: int(math.Round(t.Float("priority", 0, maxPriority, 0))),
		Submit:   t.instant("arrival_time"),
		Duration: t.span("duration"),
	}
	j.Model, j.Batch = splitJobType(t.Text("job_type"))
	j.Model, j.Batch = s.names.text(j.Model), s.names.text(j.Batch)
	if !full || len(t.errs) > before {
		return
	}
	if t.Text("duration") == "" {
		rate, ok := s.o.Rates.rate(j.Model, j.Batch, j.Workers)
		if !ok {
			s.exclude(fmt.Sprintf("no measured rate on %d GPUs", j.Workers))
			return
		}
		if steps/rate > maxSeconds {
			t.Fault("total_steps", "out_of_range", fmt.Sprintf("total_steps %g at %g a second are over 100 years", steps, rate), "", "")
			return
		}
		j.Duration = seconds(steps / rate)
	}
	s.keep(j)
}

// splitJobType splits "ResNet-18 (batch size 16)" into the model and batch that pair tables name. A type without a
// batch has an empty one.
func splitJobType(s string) (model, batch string) {
	model, rest, ok := strings.Cut(s, " (batch size ")
	if !ok {
		return s, ""
	}
	return model, strings.TrimSuffix(rest, ")")
}
