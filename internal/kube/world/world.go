// Package world is a cluster as its API has it, made by hand for tests of what decides by it: nodes with GPUs, Pods that opted in and
// others, and the claims that they have their GPUs by.
package world

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/unit"
)

// Now is when a new world is looked at.
var Now = time.Date(2026, 11, 30, 14, 32, 7, 0, time.UTC)

// World is a cluster. What is made in it may be changed by the test.
type World struct {
	queue.Cluster
	t    testing.TB
	next int
}

// New is a cluster without nodes, with the namespaces ml, whose Pods share, and plain.
func New(tb testing.TB) *World {
	tb.Helper()
	w := &World{t: tb}
	w.Now = Now
	for _, name := range []string{"ml", "plain"} {
		w.Namespaces = append(w.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}})
	}
	w.Namespaces[0].Labels[kube.LabelShare] = "enabled"
	return w
}

// Node adds a node with so many GPUs of so much memory.
func (w *World) Node(name string, gpus int, memory string) (*corev1.Node, *resourcev1.ResourceSlice) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: kube.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for i := range gpus {
		uuid, model, index, yes := fmt.Sprintf("GPU-%s-%d", name, i), "NVIDIA A10", int64(i), true
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &yes,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				kube.AttributeUUID: {StringValue: &uuid}, kube.AttributeModel: {StringValue: &model}, kube.AttributeIndex: {IntValue: &index}},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				kube.CapacityMemory: {Value: resource.MustParse(memory)}, kube.CapacityShare: {Value: resource.MustParse("1000")}}})
	}
	w.Nodes, w.Slices = append(w.Nodes, n), append(w.Slices, s)
	return n, s
}

// Native adds a Pod that did not opt in.
func (w *World) Native(name string, gpus int, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	w.next++
	namespace, base, _ := strings.Cut(name, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: base, UID: types.UID(fmt.Sprintf("uid-%05d", w.next)),
		CreationTimestamp: metav1.NewTime(w.Now.Add(-age)), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "train"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if gpus > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{kube.ExtendedResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	for _, f := range change {
		f(p)
	}
	w.Pods = append(w.Pods, p)
	return p
}

// Shared adds a Pod that opted in: "memory=8Gi floor=0.5".
func (w *World) Shared(name string, gpus int, age time.Duration, asks string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.Native(name, gpus, age, change...)
	for _, part := range strings.Fields(asks) {
		key, value, _ := strings.Cut(part, "=")
		p.Annotations["weft.dev/"+key] = value
	}
	n := 0
	if changed, faults := pod.Rewrite(p, pod.In(nil, p.Namespace, true), func() string { n++; return fmt.Sprintf("weft-%s-%d", p.UID, n) }); !changed || len(faults) > 0 {
		w.t.Fatalf("Pod %s is not rewritten: %v", name, faults)
	}
	return p
}

// Place gives a Pod that shares its GPUs, "node-1/0 node-1/1", and binds it to their node, as the controller and the scheduler do.
func (w *World) Place(p *corev1.Pod, on string, memory string) *corev1.Pod {
	w.t.Helper()
	r, faults := pod.Read(p, pod.In(nil, p.Namespace, true))
	if len(faults) > 0 {
		w.t.Fatal(faults)
	}
	m := resource.MustParse(memory)
	s := claim.Share{Claim: r.Workers[0].Claim, Pod: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Container: "train", Class: r.Class, Floor: r.Floor,
		Reserved: unit.Bytes(m.Value()), Peak: unit.Bytes(m.Value()), Part: claim.Part(4, false)}
	for _, where := range strings.Fields(on) {
		node, index, _ := strings.Cut(where, "/")
		s.GPUs = append(s.GPUs, "GPU-"+node+"-"+index)
	}
	c := claim.New(s)
	w.give(c, on)
	p.Spec.SchedulingGates = nil
	w.bind(p, on)
	return p
}

// Take gives a native Pod its GPUs whole, by a claim of the scheduler's own.
func (w *World) Take(p *corev1.Pod, on string) *corev1.Pod {
	yes := true
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-extended-resources-x", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}}}
	w.give(c, on)
	w.bind(p, on)
	return p
}

func (w *World) give(c *resourcev1.ResourceClaim, on string) {
	w.next++
	c.UID, c.CreationTimestamp = types.UID(fmt.Sprintf("claim-%05d", w.next)), metav1.NewTime(w.Now)
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for i, where := range strings.Fields(on) {
		node, index, _ := strings.Cut(where, "/")
		r := &c.Status.Allocation.Devices.Results
		*r = append(*r, resourcev1.DeviceRequestAllocationResult{Request: fmt.Sprintf("gpu%d", i), Driver: kube.Driver, Pool: node, Device: "gpu-" + index})
	}
	w.Claims = append(w.Claims, c)
}

func (w *World) bind(p *corev1.Pod, on string) {
	p.Spec.NodeName, _, _ = strings.Cut(strings.Fields(on)[0], "/")
	started := metav1.NewTime(p.CreationTimestamp.Add(time.Second))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &started
}

// Owned makes a Pod one of a controller.
func Owned(kind, name string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: name, UID: types.UID(kind + name), Controller: &yes}}
	}
}

// ClaimOf is the claim that a Pod owns.
func (w *World) ClaimOf(p *corev1.Pod) *resourcev1.ResourceClaim {
	w.t.Helper()
	for _, c := range w.Claims {
		if o, ok := claim.Owner(c); ok && o.UID == p.UID {
			return c
		}
	}
	w.t.Fatalf("no claim of %s", p.Name)
	return nil
}

// Tell has the agent of a Pod's node tell of it. The window ends now.
func (w *World) Tell(p *corev1.Pod, told v1alpha1.Window) {
	w.t.Helper()
	told.TypeMeta = metav1.TypeMeta{Kind: "Window", APIVersion: v1alpha1.GroupVersion.String()}
	told.End = metav1.NewMicroTime(w.Now)
	raw, err := json.Marshal(told)
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.ClaimOf(p)
	r := c.Status.Allocation.Devices.Results[0]
	c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Data: &runtime.RawExtension{Raw: raw}}}
	w.next++
	c.ResourceVersion = fmt.Sprint(w.next)
}
