package driver

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/kube/driver/portion"
)

// faultOf is what a GPU's state says of its health.
func faultOf(g *agent.GPUState) Fault {
	switch {
	case g.XID != nil:
		return Fault(fmt.Sprintf("xid-%d", *g.XID))
	case g.Blind != "":
		return "lost"
	}
	return ""
}

// text is a fault as people read it.
func (f Fault) text() string {
	var xid uint64
	if n, err := fmt.Sscanf(string(f), "xid-%d", &xid); n == 1 && err == nil {
		return fmt.Sprintf("XID %d", xid)
	}
	return "is lost: the driver does not answer for it"
}

// readGPUs asks the agent how the GPUs are, and says which of them changed.
func (d *Driver) readGPUs(ctx context.Context) (changed []int) {
	answer, err := d.claims.agent.Ask(ctx, agent.Request{Op: agent.OpGPUs})
	if err != nil {
		return nil // the agent ends, and the driver with it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range answer.GPUs {
		if f := faultOf(&answer.GPUs[i]); i < len(d.faults) && d.faults[i] != f {
			d.faults[i] = f
			changed = append(changed, i)
		}
	}
	if len(changed) > 0 || !d.looked {
		d.looked = true
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return changed
}

// lookAtGPUs publishes anew what changed, and tells the node and the Pods of a GPU that broke. Who gave it back since the last look is
// told as well: a program that the fault ends may have its claim taken back before the fault is seen.
func (d *Driver) lookAtGPUs(ctx context.Context) {
	changed := d.readGPUs(ctx)
	had := d.had
	d.had = d.holders()
	if len(changed) == 0 {
		return
	}
	d.publish(ctx)
	for _, i := range changed {
		d.tellHealth(i, had)
	}
}

// tellHealth tells of one GPU; had are who had GPUs at the last look.
func (d *Driver) tellHealth(gpu int, had []holder) {
	d.mu.Lock()
	fault := d.faults[gpu]
	d.mu.Unlock()
	place := fmt.Sprintf("%s/gpu%d", d.o.Node, gpu)
	if fault == "" {
		d.log.Info("the GPU is well again", "gpu", gpu)
		d.tell.node(corev1.EventTypeNormal, "GPURecovered", place+" is well again: its taint is gone")
		return
	}
	text := fmt.Sprintf("%s %s: tainted, others go on", place, fault.text())
	d.log.Error(text, "gpu", gpu)
	d.tell.node(corev1.EventTypeWarning, "GPUUnhealthy", text)
	for _, p := range podsOn(d.o.GPUs[gpu].UUID.String(), slices.Concat(had, d.had)) {
		d.tell.pod(p, corev1.EventTypeWarning, "GPUUnhealthy", text)
	}
}

// holder is a Pod with the GPUs that it has.
type holder struct {
	pod  portion.Object
	gpus []string // UUIDs
}

// holders are the Pods that have GPUs now.
func (d *Driver) holders() []holder {
	var list []holder
	for _, e := range d.claims.store.Entries() {
		if e.Portion.Pod.UID != "" {
			list = append(list, holder{e.Portion.Pod, e.Portion.UUIDs("")})
		}
	}
	return list
}

// podsOn are those of holders that have a GPU, each once.
func podsOn(uuid string, holders []holder) []portion.Object {
	var list []portion.Object
	for _, h := range holders {
		if slices.Contains(h.gpus, uuid) && !slices.Contains(list, h.pod) {
			list = append(list, h.pod)
		}
	}
	return list
}
