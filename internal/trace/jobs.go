package trace

import (
	"bufio"
	"fmt"
	"math"
	"slices"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// jobColumns are the columns of JOBS.csv, the project's own form: sizes per worker, times in seconds, gpu_util in
// percent from 0 to 100, gpu_milli in thousandths of each worker's GPU.
var jobColumns = []string{"id", "model", "batch", "workers", "floor", "class", "priority", "user", "submit_s",
	"duration_s", "memory_mib", "persistent_mib", "profile", "gpu_util", "name", "vc", "gpu_milli"}

const (
	maxMemoryMiB = 1 << 20 // 1 TiB: no GPU has more
	maxPriority  = 1_000_000_000
)

// readJobs reads JOBS.csv. The columns id and model are required; model may be missing where a map names models.
// submit_s and duration_s are in every row or in none. A job of 0 s is one that ended at once; a memory of 0 is an
// error, for unknown memory is an empty cell.
func readJobs(s *Stream, r *bufio.Reader) error {
	required := []string{"id", "model"}
	if s.o.Models != nil {
		required = required[:1]
	}
	t, err := NewTable(s.file, r, Columns{required, jobColumns, s.o.IgnoreUnknown, 0})
	if err != nil {
		return err
	}
	if err := s.axis(false); err != nil {
		return err
	}
	s.Timed = t.Has("submit_s") && t.Has("duration_s")
	filled := slices.DeleteFunc([]string{"id", "submit_s", "duration_s"}, func(c string) bool { return !t.Has(c) })
	for s.next(t) {
		full, before := cellsFilled(t, filled), len(t.errs)
		j := s.jobRow(t)
		if full && len(t.errs) == before {
			s.keep(j)
		}
	}
	return t.Err()
}

func (s *Stream) jobRow(t *Table) cluster.Job {
	id := t.Text("id")
	if at, isNew := s.first(id, t.line); id != "" && !isNew {
		t.Fault("id", "double_id", fmt.Sprintf("id %s repeats line %d", clean(id), at), "", "give every job an id of its own")
	}
	return cluster.Job{
		ID:       strings.Clone(id),
		Name:     s.names.text(t.Text("name")),
		User:     s.names.text(t.Text("user")),
		VC:       s.names.text(t.Text("vc")),
		Model:    s.names.text(t.Text("model")),
		Batch:    s.names.text(t.Text("batch")),
		Workers:  t.Int("workers", 1, maxWorkers, 1),
		Share:    unit.MilliGPU(t.Int("gpu_milli", 1, int(unit.WholeGPU), int(unit.WholeGPU))),
		Floor:    t.floor(),
		Class:    t.class(),
		Priority: t.Int("priority", -maxPriority, maxPriority, 0),
		Memory:   s.memory(t),
		GPUUtil:  t.Float("gpu_util", 0, 100, 0) / 100,
		Submit:   t.instant("submit_s"),
		Duration: t.span("duration_s"),
	}
}

// floor is the cell as a share in (0, 1]; 0 when it is empty or at fault.
func (t *Table) floor() float64 {
	v := t.Float("floor", math.Inf(-1), math.Inf(1), math.NaN())
	switch {
	case math.IsNaN(v):
		return 0
	case v > 0 && v <= 1:
		return v
	}
	t.Fault("floor", "out_of_range", fmt.Sprintf("floor %s is outside (0, 1]", clean(t.Text("floor"))),
		"a floor is a share of standalone speed", "0.9 for 90 %")
	return 0
}

func (t *Table) class() cluster.Class {
	c, ok := cluster.ParseClass(t.Text("class"))
	if !ok {
		t.Fault("class", "unknown_class", fmt.Sprintf("unknown class %q", clean(t.Text("class"))), "",
			"guaranteed, burstable or besteffort")
	}
	return c
}

func (s *Stream) memory(t *Table) cluster.Memory {
	peak, persistent := t.mebibytes("memory_mib"), t.mebibytes("persistent_mib")
	if t.Text("persistent_mib") != "" && persistent > peak {
		t.Fault("persistent_mib", "out_of_range", fmt.Sprintf("persistent_mib %s is above memory_mib %s",
			clean(t.Text("persistent_mib")), clean(t.Text("memory_mib"))), "memory_mib is the peak, and what is always in use is part of it",
			"give memory_mib of at least persistent_mib")
	}
	return cluster.Memory{Peak: peak, Persistent: persistent, Profile: s.names.text(t.Text("profile"))}
}

// mebibytes is the cell as memory of a GPU; 0 when it is empty or at fault.
func (t *Table) mebibytes(column string) unit.Bytes {
	v, ok := t.amount(column, maxMemoryMiB, "1 TiB", "give mebibytes, above 0")
	if ok && v == 0 {
		t.Fault(column, "out_of_range", column+" 0: must be positive", "", "leave the cell empty if it is not known")
	}
	return unit.FromMiB(v)
}
