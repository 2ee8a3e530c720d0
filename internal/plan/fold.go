package plan

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
)

// Fold applies a plan to a snapshot of workers 0..workers-1 and returns the snapshot that results. It refuses a plan
// that was decided on another revision, names a GPU or worker that is not there, or moves a worker that is not where
// the plan believes; the snapshot given is never changed. GPUs beyond the snapshot's are refused as well.
func Fold(s *cluster.Snapshot, p *Plan, workers int) (*cluster.Snapshot, error) {
	if p.BasedOn != s.Revision() {
		return nil, fmt.Errorf("plan is based on revision %d, the state is at %d", p.BasedOn, s.Revision())
	}
	o := cluster.NewOverlay(s, workers)
	for i, op := range p.Operations {
		if err := apply(o, op); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return o.Snapshot(), nil
}

func apply(o *cluster.Overlay, op Operation) error {
	if op.Worker < 0 || int(op.Worker) >= o.Workers() {
		return fmt.Errorf("no worker %d", op.Worker)
	}
	if op.To < 0 || int(op.To) >= o.GPUs() {
		return fmt.Errorf("no GPU %d", op.To)
	}
	if at := o.Place(op.Worker); at != op.From {
		return fmt.Errorf("worker %d is on GPU %d, not %d", op.Worker, at, op.From)
	}
	if op.From != cluster.NoGPU {
		o.Remove(op.Worker)
	}
	o.Add(op.Worker, op.To)
	return nil
}
