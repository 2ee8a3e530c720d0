// Package portion decides what a claim has of a node's GPUs: which, how much of their memory, and whether its containers run under
// weft. It is pure: a claim as the scheduler allocated it goes in, and what is to be done comes out, or why nothing may be.
package portion

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

// Portion is what a claim has on its node.
type Portion struct {
	Claim     Object   `json:"claim"`
	Pod       Object   `json:"pod"`                 // the first that the claim is reserved for
	Container string   `json:"container,omitempty"` // "" where it is not known
	Devices   []Device `json:"devices"`             // in the order of the claim's results
	Extended  bool     `json:"extended,omitempty"`  // the scheduler made the claim of nvidia.com/gpu: one request for each container
	Share     *Share   `json:"share,omitempty"`     // nil for a native claim: whole GPUs, without weft
}

// Object names something of the API.
type Object struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Device is a GPU of a claim.
type Device struct {
	Request string `json:"request"` // of the claim, that it answers
	Pool    string `json:"pool"`
	Name    string `json:"name"` // in its pool
	ShareID string `json:"share_id,omitempty"`
	UUID    string `json:"uuid"`
}

// Share is what a worker has of each of its GPUs.
type Share struct {
	Class      string     `json:"class"`          // guaranteed, burstable or besteffort
	Weight     int        `json:"weight"`         // 0 for 1
	Reserved   unit.Bytes `json:"reserved_bytes"` // always its own
	Peak       unit.Bytes `json:"peak_bytes"`     // the most that it may hold, Reserved included
	Cooperates bool       `json:"cooperates"`
}

// Equal says whether two portions are the same.
func (p *Portion) Equal(o *Portion) bool { return reflect.DeepEqual(p, o) }

// UUIDs are the GPUs of a request, or of the whole claim for "", in order.
func (p *Portion) UUIDs(request string) []string {
	var list []string
	for _, d := range p.Devices {
		if request == "" || d.Request == request {
			list = append(list, d.UUID)
		}
	}
	return list
}

// DeviceName is the name of a GPU in its node's pool, by its index.
func DeviceName(index int) string { return "gpu-" + strconv.Itoa(index) }

// Of is what a claim has of the GPUs of a node, whose pool has the node's name. The claim is allocated.
func Of(c *resourcev1.ResourceClaim, node string, gpus []device.GPU) (*Portion, error) {
	p := &Portion{Claim: Object{c.Namespace, c.Name, string(c.UID)}, Extended: c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"}
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			p.Pod = Object{c.Namespace, r.Name, string(r.UID)}
			break
		}
	}
	if c.Status.Allocation == nil {
		return nil, errors.New("it is not allocated")
	}
	had, err := p.take(c.Status.Allocation.Devices.Results, node, gpus)
	if err != nil {
		return nil, err
	}
	w, err := parameters(c.Status.Allocation.Devices.Config)
	if err != nil {
		return nil, err
	}
	if w == nil {
		if err := had.whole(); err != nil {
			return nil, err
		}
		return p, nil
	}
	p.Container = w.Container
	if p.Share, err = had.share(w); err != nil {
		return nil, err
	}
	return p, nil
}

// part is what the scheduler gave of one GPU.
type part struct {
	name          string
	usable        unit.Bytes
	memory, share int64
}

type parts []part

// take finds the GPUs of a claim's results, and what it has of each.
func (p *Portion) take(results []resourcev1.DeviceRequestAllocationResult, node string, gpus []device.GPU) (parts, error) {
	var had parts
	for i := range results {
		r := &results[i]
		if r.Driver != kube.Driver || r.Pool != node {
			continue
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %s asks for administrative access, which %s does not serve", r.Request, kube.Driver)
		}
		gpu, err := indexOf(r.Device, len(gpus))
		if err != nil {
			return nil, fmt.Errorf("%w on node %s", err, node)
		}
		d := Device{Request: r.Request, Pool: r.Pool, Name: r.Device, UUID: gpus[gpu].UUID.String()}
		if r.ShareID != nil {
			d.ShareID = string(*r.ShareID)
		}
		if slices.ContainsFunc(p.Devices, func(o Device) bool { return o.UUID == d.UUID }) {
			return nil, fmt.Errorf("it has two parts of %s: ask for one with both amounts", r.Device)
		}
		p.Devices = append(p.Devices, d)
		had = append(had, part{r.Device, gpus[gpu].Usable, consumed(r, kube.CapacityMemory, int64(gpus[gpu].Usable)), consumed(r, kube.CapacityShare, kube.WholeShare)})
	}
	if len(p.Devices) == 0 {
		return nil, fmt.Errorf("it has no device of %s on node %s", kube.Driver, node)
	}
	return had, nil
}

// indexOf is the index of a device of a pool with so many.
func indexOf(name string, count int) (int, error) {
	for i := range count {
		if DeviceName(i) == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("device %s is not one of the %d GPUs", name, count)
}

// consumed is how much of a capacity a result has. Without a word of it, it is all.
func consumed(r *resourcev1.DeviceRequestAllocationResult, name string, all int64) int64 {
	for _, key := range []string{name, kube.Driver + "/" + name} {
		if q, ok := r.ConsumedCapacity[resourcev1.QualifiedName(key)]; ok {
			return q.Value()
		}
	}
	return all
}

// whole says why a claim without parameters may not have its GPUs: it would use all of what it has a part of.
func (p parts) whole() error {
	for _, d := range p {
		if d.memory < int64(d.usable) || d.share < kube.WholeShare {
			return fmt.Errorf("it asks for a part of %s (%v of memory, %d of %d) without parameters for %s: ask for the whole, or let Pod annotations share it",
				d.name, unit.Bytes(d.memory), d.share, kube.WholeShare, kube.Driver)
		}
	}
	return nil
}

// parameters are those of a claim; nil where it has none. A claim has one container, and so one set of them for all its requests.
func parameters(configs []resourcev1.DeviceAllocationConfiguration) (*v1alpha1.Worker, error) {
	var found *v1alpha1.Worker
	for _, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != kube.Driver {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("it has several sets of parameters for %s: one is for all requests", kube.Driver)
		}
		w, err := parse(c.Opaque.Parameters.Raw)
		if err != nil {
			return nil, fmt.Errorf("its parameters for %s: %w", kube.Driver, err)
		}
		found = w
	}
	return found, nil
}

func parse(raw []byte) (*v1alpha1.Worker, error) {
	var w v1alpha1.Worker
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, err
	}
	if w.Kind != "Worker" || w.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("kind %q of %q is unknown, known is Worker of %q", w.Kind, w.APIVersion, v1alpha1.GroupVersion.String())
	}
	return &w, nil
}

// mostWeight is the arbiter's.
const mostWeight = 1000

// share is what the parameters say, held against what the scheduler gave: a worker has no more reserved than its claim was charged.
func (p parts) share(w *v1alpha1.Worker) (*Share, error) {
	class, ok := cluster.ParseClass(w.Class)
	if !ok {
		return nil, fmt.Errorf("class %q is unknown: guaranteed, burstable or besteffort", w.Class)
	}
	s := &Share{Class: class.String(), Weight: w.Weight, Reserved: bytesOf(w.Reserved), Peak: bytesOf(w.Peak), Cooperates: w.Cooperates}
	least, usable := p[0].memory, p[0].usable
	for _, d := range p {
		least, usable = min(least, d.memory), min(usable, d.usable)
	}
	if s.Peak == 0 && s.Reserved == 0 { // it is not known what it needs, and it has all that its claim was charged
		s.Reserved, s.Peak = unit.Bytes(least), unit.Bytes(least)
	}
	switch {
	case s.Weight < 0 || s.Weight > mostWeight:
		return nil, fmt.Errorf("weight %d is outside [0, %d]", s.Weight, mostWeight)
	case s.Reserved < 0 || s.Peak < s.Reserved:
		return nil, fmt.Errorf("%v reserved and a peak of %v: the peak includes what is reserved", s.Reserved, s.Peak)
	case int64(s.Reserved) > least:
		return nil, fmt.Errorf("%v are to be reserved and the claim was charged %v: its capacity request and its parameters differ", s.Reserved, unit.Bytes(least))
	case s.Peak > usable:
		return nil, fmt.Errorf("a peak of %v and the GPU has %v", s.Peak, usable)
	}
	return s, nil
}

func bytesOf(q resource.Quantity) unit.Bytes { return unit.Bytes(q.Value()) }

// JobName is what the agent calls the claim's job.
func (p *Portion) JobName() string {
	return strings.TrimSuffix(p.Pod.String()+"/"+p.Container, "/")
}
