package trace

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// openbColumns are those of the pod lists of Alibaba's 2023 GPU trace. Times are seconds from the start of the trace.
var openbColumns = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
	"creation_time", "deletion_time", "scheduled_time"}

const (
	maxMilliCPU      = 100_000_000 // 100,000 cores
	maxHostMemoryMiB = 1 << 30     // 1 PiB
)

// readOpenb reads a pod list as jobs. A pod runs from scheduled_time to deletion_time; each of its num_gpu workers
// holds gpu_milli thousandths of a GPU. gpu_spec is a choice of models, split on "|". The quality of service BE is the
// class best-effort, Guaranteed is guaranteed, any other burstable.
func readOpenb(s *Stream, r *bufio.Reader) error {
	t, err := NewTable(s.file, r, Columns{openbColumns, nil, s.o.IgnoreUnknown, 0})
	if err != nil {
		return err
	}
	if err := s.axis(false); err != nil {
		return err
	}
	for s.next(t) {
		before := len(t.errs)
		j, reason := s.openbRow(t)
		switch {
		case len(t.errs) > before:
		case reason != "":
			s.exclude(reason)
		case s.idOf(t, "name"):
			s.keep(j)
		}
	}
	return t.Err()
}

// openbRow is a row as a job, and why it cannot be replayed, or "".
func (s *Stream) openbRow(t *Table) (cluster.Job, string) {
	j, reason := openbPod(t, s.names)
	j.Submit = t.instant("creation_time")
	start, started := t.seconds("scheduled_time")
	end, ended := t.seconds("deletion_time")
	switch {
	case reason != "":
	case !started:
		reason = reasonNoStart
	case !ended:
		reason = reasonRunning
	case end < start:
		reason = reasonReversed
	default:
		j.Duration = seconds(end - start)
	}
	return j, reason
}

// openbPod is what a pod asks for. A bad share is a reason to leave the pod out, not a fault: the published lists
// have such rows.
func openbPod(t *Table, names interner) (cluster.Job, string) {
	j := cluster.Job{
		ID:         strings.Clone(t.Text("name")),
		CPU:        unit.MilliCPU(t.Int("cpu_milli", 0, maxMilliCPU, 0)),
		HostMemory: unit.FromMiB(t.Float("memory_mib", 0, maxHostMemoryMiB, 0)),
		Workers:    t.Int("num_gpu", 0, maxWorkers, 0),
		Share:      unit.MilliGPU(t.Int("gpu_milli", 0, 1<<40, 0)),
	}
	switch t.Text("qos") {
	case "BE":
		j.Class = cluster.BestEffort
	case "Guaranteed":
		j.Class = cluster.Guaranteed
	}
	if spec := t.Text("gpu_spec"); spec != "" {
		for model := range strings.SplitSeq(spec, "|") {
			j.Models = append(j.Models, names.text(strings.TrimSpace(model)))
		}
	}
	switch {
	case j.Workers == 0:
		j.Share = 0
		return j, reasonNoGPU
	case j.Share < 1 || j.Share > unit.WholeGPU:
		return j, "gpu_milli outside 1 to 1000"
	}
	return j, ""
}

// ReadOpenbPods is every pod of a pod list in file order, times left out: what a fill-up of the cluster draws from.
// A pod without a GPU has 0 Workers. Every fault is an error: nothing is left out.
func ReadOpenbPods(file string, r io.Reader) ([]cluster.Job, error) {
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	t, err := NewTable(file, in, Columns{Required: openbColumns[:6], Optional: openbColumns[6:]})
	if err != nil {
		return nil, err
	}
	var pods []cluster.Job
	names := interner{}
	for t.Next() {
		pod, reason := openbPod(t, names)
		if reason != "" && reason != reasonNoGPU {
			t.Fault("gpu_milli", "out_of_range", fmt.Sprintf("gpu_milli %s is outside [1, 1000]", clean(t.Text("gpu_milli"))), "",
				"write thousandths of one GPU")
		}
		pod.Floor = StandardFloor
		pods = append(pods, pod)
	}
	return pods, t.Err()
}

// ReadOpenbNodes is a node list of the same trace as a cluster, in file order.
func ReadOpenbNodes(file string, r io.Reader) (cluster.Cluster, error) {
	return ReadCluster(file, r, 0)
}
