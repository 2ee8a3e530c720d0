package queue

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// takeGPUs numbers the devices of all nodes: by node, then by index.
func (q *Queue) takeGPUs() {
	for _, s := range current(q.cluster.Slices) {
		for i := range s.Spec.Devices {
			if g, ok := gpuOf(s, &s.Spec.Devices[i]); ok {
				q.GPUs = append(q.GPUs, g)
			}
		}
	}
	slices.SortFunc(q.GPUs, func(a, b GPU) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index), strings.Compare(a.Device, b.Device))
	})
	for i := range q.GPUs {
		g := &q.GPUs[i]
		q.at[g.UUID] = i
		state := dispatch.GPU{Node: q.nodes.index(g.Node), Usable: g.Memory}
		if g.Fault != "" {
			state.Closed = plan.GPUUnhealthy
		} else if fault := q.nodes.fault(g.Node); fault != "" {
			state.Closed, g.Fault = plan.Drained, fault
		}
		q.State.GPUs = append(q.State.GPUs, state)
	}
}

// current are the slices of each pool's latest generation.
func current(list []*resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	latest := map[string]int64{}
	for _, s := range list {
		if s.Spec.Driver == kube.Driver {
			latest[s.Spec.Pool.Name] = max(latest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
		}
	}
	var now []*resourcev1.ResourceSlice
	for _, s := range list {
		if s.Spec.Driver == kube.Driver && s.Spec.NodeName != nil && s.Spec.Pool.Generation == latest[s.Spec.Pool.Name] {
			now = append(now, s)
		}
	}
	return now
}

// gpuOf reads a device. It is false for one that names no UUID or has no memory.
func gpuOf(s *resourcev1.ResourceSlice, d *resourcev1.Device) (GPU, bool) {
	g := GPU{Node: *s.Spec.NodeName, Device: d.Name}
	if a := d.Attributes[kube.AttributeUUID]; a.StringValue != nil {
		g.UUID = *a.StringValue
	}
	if a := d.Attributes[kube.AttributeModel]; a.StringValue != nil {
		g.Model = *a.StringValue
	}
	if a := d.Attributes[kube.AttributeIndex]; a.IntValue != nil {
		g.Index = *a.IntValue
	}
	if memory, ok := d.Capacity[kube.CapacityMemory]; ok {
		g.Memory = unit.Bytes(memory.Value.Value())
	}
	for _, t := range d.Taints {
		switch t.Effect {
		case resourcev1.DeviceTaintEffectNoExecute:
			g.Evict = true
			fallthrough
		case resourcev1.DeviceTaintEffectNoSchedule:
			g.Fault = strings.TrimSuffix(t.Key+"="+t.Value, "=")
		}
	}
	return g, g.UUID != "" && g.Memory > 0
}

// closeGPUs closes the GPUs that are held by claims of others than weft, or for their sake: a native Pod's is whole.
func (q *Queue) closeGPUs() {
	byName := map[claim.Device]int{}
	for i := range q.GPUs {
		byName[claim.Device{Pool: q.GPUs[i].Node, Name: q.GPUs[i].Device}] = i
	}
	for _, c := range q.cluster.Claims {
		if claim.Managed(c) {
			continue
		}
		for _, d := range claim.Devices(c) {
			g, ok := byName[d]
			if !ok {
				continue
			}
			for _, u := range claim.Users(c) {
				u.Name = c.Namespace + "/" + u.Name
				q.native[g] = append(q.native[g], u)
			}
			if len(q.native[g]) == 0 {
				q.native[g] = []claim.User{{Name: "resource claim " + c.Namespace + "/" + c.Name}}
			}
			if q.State.GPUs[g].Closed == "" {
				q.State.GPUs[g].Closed = plan.Native
			}
			if q.GPUs[g].Evict {
				q.evictNative(g, c)
			}
		}
	}
	for g := range q.native {
		slices.SortFunc(q.native[g], func(a, b claim.User) int { return strings.Compare(a.Name, b.Name) })
	}
}

// evictNative has the Pods of an extended resource leave a device that nobody may stay on: the cluster itself evicts only those
// that name a claim.
func (q *Queue) evictNative(g int, c *resourcev1.ResourceClaim) {
	for _, u := range claim.Users(c) {
		p := q.nodes.pods[u.UID]
		if p == nil || p.DeletionTimestamp != nil || Done(p) || p.Status.ExtendedResourceClaimStatus == nil {
			continue
		}
		q.Evict = append(q.Evict, Eviction{p, plan.GPUUnhealthy, "from " + q.GPUs[g].String() + ": " + q.GPUs[g].Fault})
	}
}

// Done says whether a Pod has ended.
func Done(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Use is what becomes of a GPU.
type Use struct {
	State     string // idle, shared, native, or the code that it is closed with
	Residents int
	Reserved  unit.Bytes
}

// Uses are the GPUs as they are used, by claims.
func (q *Queue) Uses() []Use {
	uses := make([]Use, len(q.GPUs))
	for g := range uses {
		u := &uses[g]
		for _, id := range q.reside[g] {
			u.Residents++
			u.Reserved = u.Reserved.Add(q.Jobs[id].reserved)
		}
		switch closed := q.State.GPUs[g].Closed; {
		case closed == plan.Native:
			u.State = "native"
		case closed != "":
			u.State = strings.ToLower(string(closed))
		case u.Residents > 0:
			u.State = "shared"
		default:
			u.State = "idle"
		}
	}
	return uses
}
