package look_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/unit"
)

// now is when clusters are looked at.
var now = time.Date(2026, 11, 30, 14, 32, 7, 0, time.UTC)

// world is a cluster as its API has it.
type world struct {
	t    testing.TB
	c    look.Cluster
	next int
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{t: tb}
	w.c.Now = now
	for _, name := range []string{"ml", "plain"} {
		w.c.Namespaces = append(w.c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}})
	}
	w.c.Namespaces[0].Labels[kube.LabelShare] = "enabled"
	return w
}

func (w *world) look() *look.Look { return look.New(&w.c, estimate.Options{}) }

// node adds a node with so many GPUs of so much memory.
func (w *world) node(name string, gpus int, memory string) (*corev1.Node, *resourcev1.ResourceSlice) {
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
	w.c.Nodes, w.c.Slices = append(w.c.Nodes, n), append(w.c.Slices, s)
	return n, s
}

// native adds a Pod that did not opt in.
func (w *world) native(name string, gpus int, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	w.next++
	namespace, base, _ := strings.Cut(name, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: base, UID: types.UID(fmt.Sprintf("uid-%05d", w.next)),
		CreationTimestamp: metav1.NewTime(now.Add(-age)), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "train"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if gpus > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{kube.ExtendedResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	for _, f := range change {
		f(p)
	}
	w.c.Pods = append(w.c.Pods, p)
	return p
}

// shared adds a Pod that opted in: "memory=8Gi floor=0.5".
func (w *world) shared(name string, gpus int, age time.Duration, asks string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.native(name, gpus, age, change...)
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

// place gives a Pod that shares its GPUs, "node-1/0 node-1/1", and binds it to their node, as the controller and the scheduler do.
func (w *world) place(p *corev1.Pod, on string, memory string) *corev1.Pod {
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

// take gives a native Pod its GPUs whole, by a claim of the scheduler's own.
func (w *world) take(p *corev1.Pod, on string) *corev1.Pod {
	yes := true
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-extended-resources-x", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}}}
	w.give(c, on)
	w.bind(p, on)
	return p
}

func (w *world) give(c *resourcev1.ResourceClaim, on string) {
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for i, where := range strings.Fields(on) {
		node, index, _ := strings.Cut(where, "/")
		r := &c.Status.Allocation.Devices.Results
		*r = append(*r, resourcev1.DeviceRequestAllocationResult{Request: fmt.Sprintf("gpu%d", i), Driver: kube.Driver, Pool: node, Device: "gpu-" + index})
	}
	w.c.Claims = append(w.c.Claims, c)
}

func (w *world) bind(p *corev1.Pod, on string) {
	p.Spec.NodeName, _, _ = strings.Cut(strings.Fields(on)[0], "/")
	started := metav1.NewTime(p.CreationTimestamp.Add(time.Second))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &started
}

// owned makes a Pod one of a controller.
func owned(kind, name string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: name, UID: types.UID(kind + name), Controller: &yes}}
	}
}
