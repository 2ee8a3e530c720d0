// Package claim is the durable record of a placement: a ResourceClaim of one worker, pinned to its GPUs. It is pure: claims are
// built from what was decided and read back into that, and nothing that this package would not have written is taken for its own.
package claim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

// Share is what one worker, a container of a Pod, has of its GPUs: the same of each.
type Share struct {
	Claim     string // its name, in the namespace of the Pod
	Pod       types.NamespacedName
	UID       types.UID // of the Pod
	Container string
	GPUs      []string // UUIDs, in the order of the container's GPUs

	Class      cluster.Class
	Floor      float64    // in (0, 1]
	Reserved   unit.Bytes // always there for the worker; see Round
	Peak       unit.Bytes // at least Reserved
	Cooperates bool
	Part       int  // of kube.WholeShare: what it leaves to others of the number of residents
	Whole      bool // it takes all memory of each GPU: how much it needs is not known
}

// Step is the unit of reserved memory, in bytes: devices hand their capacity out in such steps.
const Step = unit.MiB

// Round is memory in whole steps, at least as much as asked.
func Round(b unit.Bytes) unit.Bytes {
	if b <= 0 {
		return 0
	}
	return (b + Step - 1) / Step * Step
}

// Part is what a worker takes of the number of residents of a GPU: an equal part, or all of it where it shares with nobody.
func Part(residents int, alone bool) int {
	if alone || residents <= 1 {
		return kube.WholeShare
	}
	return max(1, kube.WholeShare/residents)
}

// New is the claim of a worker. Its finalizer is the one that the scheduler adds, by a write of its own, to every claim that it gives devices
// for; Kubernetes takes it away from a claim that is deleted as soon as no Pod uses it, given devices or not.
func New(s Share) *resourcev1.ResourceClaim {
	yes := true
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: s.Claim, Namespace: s.Pod.Namespace, Labels: map[string]string{kube.LabelManaged: "true"}, Finalizers: []string{resourcev1.Finalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: s.Pod.Name, UID: s.UID, Controller: &yes,
			BlockOwnerDeletion: &yes}},
	}}
	capacity := map[resourcev1.QualifiedName]resource.Quantity{capacityShare: *resource.NewQuantity(int64(s.Part), resource.DecimalSI)}
	if !s.Whole {
		capacity[capacityMemory] = quantity(s.Reserved)
	}
	for i, uuid := range s.GPUs {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: requestName(i), Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: kube.ShareClass, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector(uuid)}}},
			Capacity:  &resourcev1.CapacityRequirements{Requests: capacity},
		}})
	}
	c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
		Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: kube.Driver, Parameters: runtime.RawExtension{Raw: parameters(s)}},
	}}}
	return c
}

// The capacities of a device, in the driver's own domain.
const (
	capacityMemory = resourcev1.QualifiedName(kube.CapacityMemory)
	capacityShare  = resourcev1.QualifiedName(kube.CapacityShare)
)

func requestName(i int) string { return "gpu" + strconv.Itoa(i) }

func quantity(b unit.Bytes) resource.Quantity {
	return *resource.NewQuantity(int64(b), resource.BinarySI)
}

// parameters tell the driver of the worker. They are in the order in which the API server writes JSON by itself: a status that is applied
// to a claim would otherwise change them, and be refused.
func parameters(s Share) []byte {
	w := v1alpha1.Worker{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Worker"},
		Pod:      s.Pod.String(), Container: s.Container, Class: s.Class.String(), Floor: s.Floor, Reserved: quantity(s.Reserved), Peak: quantity(s.Peak),
		Cooperates: s.Cooperates,
	}
	raw, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("claim: a floor of %v has no JSON", s.Floor)) // the only value that could
	}
	return canonical(raw)
}

// Ends of the expression that pins a device.
const (
	selectorHead = `device.attributes["` + kube.Driver + `"].` + kube.AttributeUUID + ` == `
)

// selector is true for one device.
func selector(uuid string) string { return selectorHead + strconv.Quote(uuid) }

// pinned is the UUID that a selector is true for.
func pinned(expression string) (string, bool) {
	quoted, ok := strings.CutPrefix(expression, selectorHead)
	if !ok {
		return "", false
	}
	uuid, err := strconv.Unquote(quoted)
	return uuid, err == nil && uuid != "" && selector(uuid) == expression
}

// Managed says whether a claim says of itself that weft wrote it.
func Managed(c *resourcev1.ResourceClaim) bool { return kube.Managed(c.Labels) }

// Owner is the Pod that a claim belongs to; false where it belongs to none.
func Owner(c *resourcev1.ResourceClaim) (metav1.OwnerReference, bool) {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return metav1.OwnerReference{}, false
	}
	return *owner, true
}

// Read is what a claim of weft's says. It is an error for a claim that New does not write.
func Read(c *resourcev1.ResourceClaim) (Share, error) {
	owner, ok := Owner(c)
	if !ok || !Managed(c) {
		return Share{}, fmt.Errorf("resource claim %s/%s is not weft's: it has no label %s, or no Pod owns it", c.Namespace, c.Name, kube.LabelManaged)
	}
	s, err := read(c)
	if err != nil {
		return Share{}, fmt.Errorf("resource claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	s.Claim, s.UID = c.Name, owner.UID
	if s.Pod != (types.NamespacedName{Namespace: c.Namespace, Name: owner.Name}) {
		return Share{}, fmt.Errorf("resource claim %s/%s belongs to Pod %s and is configured for %s", c.Namespace, c.Name, owner.Name, s.Pod)
	}
	if want := New(s); !sameSpec(c, want) {
		return Share{}, fmt.Errorf("resource claim %s/%s has a spec that weft does not write", c.Namespace, c.Name)
	}
	return s, nil
}

// read takes what the spec says, without a check that it says nothing else.
func read(c *resourcev1.ResourceClaim) (Share, error) {
	d := &c.Spec.Devices
	if len(d.Config) != 1 || d.Config[0].Opaque == nil || d.Config[0].Opaque.Driver != kube.Driver || len(d.Requests) == 0 {
		return Share{}, fmt.Errorf("it has %d requests and no configuration for %s alone", len(d.Requests), kube.Driver)
	}
	s, err := worker(d.Config[0].Opaque.Parameters.Raw)
	if err != nil {
		return Share{}, err
	}
	for _, r := range d.Requests {
		if r.Exactly == nil || len(r.Exactly.Selectors) != 1 || r.Exactly.Selectors[0].CEL == nil || r.Exactly.Capacity == nil {
			return Share{}, fmt.Errorf("request %s is not pinned to a GPU", r.Name)
		}
		uuid, ok := pinned(r.Exactly.Selectors[0].CEL.Expression)
		if !ok {
			return Share{}, fmt.Errorf("request %s is not pinned to a GPU", r.Name)
		}
		s.GPUs = append(s.GPUs, uuid)
		part := r.Exactly.Capacity.Requests[capacityShare]
		_, some := r.Exactly.Capacity.Requests[capacityMemory]
		s.Part, s.Whole = int(part.Value()), !some
	}
	return s, nil
}

// worker reads the configuration.
func worker(raw []byte) (Share, error) {
	var w v1alpha1.Worker
	if err := json.Unmarshal(raw, &w); err != nil {
		return Share{}, fmt.Errorf("its configuration: %w", err)
	}
	if w.Kind != "Worker" || w.APIVersion != v1alpha1.GroupVersion.String() {
		return Share{}, fmt.Errorf("its configuration is a %s %s, known is %s Worker", w.APIVersion, w.Kind, v1alpha1.GroupVersion)
	}
	class, ok := cluster.ParseClass(w.Class)
	if !ok {
		return Share{}, fmt.Errorf("its configuration names a class %q", w.Class)
	}
	namespace, name, ok := strings.Cut(w.Pod, "/")
	if !ok {
		return Share{}, fmt.Errorf("its configuration names a Pod %q", w.Pod)
	}
	s := Share{Pod: types.NamespacedName{Namespace: namespace, Name: name}, Container: w.Container, Class: class, Floor: w.Floor,
		Reserved: unit.Bytes(w.Reserved.Value()), Peak: unit.Bytes(w.Peak.Value()), Cooperates: w.Cooperates}
	if !(s.Floor > 0 && s.Floor <= 1) || s.Reserved < 0 || s.Peak < s.Reserved {
		return Share{}, fmt.Errorf("its configuration has a floor of %v, %v reserved and a peak of %v", s.Floor, s.Reserved, s.Peak)
	}
	return s, nil
}

// Same says whether two claims have the same owner and ask for the same.
func Same(a, b *resourcev1.ResourceClaim) bool {
	x, ok := Owner(a)
	y, also := Owner(b)
	return ok && also && x.UID == y.UID && sameSpec(a, b)
}

// sameSpec compares the requests as the API does, and the configuration by what it says.
func sameSpec(a, b *resourcev1.ResourceClaim) bool {
	x, y := a.Spec.DeepCopy(), b.Spec.DeepCopy()
	for _, s := range []*resourcev1.ResourceClaimSpec{x, y} {
		for i := range s.Devices.Config {
			if o := s.Devices.Config[i].Opaque; o != nil {
				o.Parameters.Raw = canonical(o.Parameters.Raw)
			}
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

// canonical is JSON as it is written here, whoever wrote it.
func canonical(raw []byte) []byte {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
