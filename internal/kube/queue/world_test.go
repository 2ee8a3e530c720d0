package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
)

// epoch is when worlds begin.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fataler is a test, or one case of a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a cluster whose API, scheduler and garbage collector are played by the test: the scheduler by the rules of consumable
// capacity, and nothing else.
type world struct {
	t    fataler
	c    Cluster
	book *estimate.Book
	next int
	torn map[types.UID]bool // owners that lost a Pod
}

func newWorld(t fataler) *world {
	return &world{t: t, c: Cluster{Now: epoch}, book: estimate.New(estimate.Options{}), torn: map[types.UID]bool{}}
}

// node adds a node with so many GPUs of so much memory.
func (w *world) node(name string, gpus int, memory string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	w.c.Nodes = append(w.c.Nodes, n)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: kube.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for i := range gpus {
		s.Spec.Devices = append(s.Spec.Devices, device(name, i, memory))
	}
	w.c.Slices = append(w.c.Slices, s)
	return n
}

func device(node string, i int, memory string) resourcev1.Device {
	uuid, model, index, yes := fmt.Sprintf("GPU-%s-%d", node, i), "NVIDIA A10", int64(i), true
	return resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &yes,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			kube.AttributeUUID: {StringValue: &uuid}, kube.AttributeModel: {StringValue: &model}, kube.AttributeIndex: {IntValue: &index}},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			kube.CapacityMemory: {Value: resource.MustParse(memory)}, kube.CapacityShare: {Value: resource.MustParse("1000")}},
	}
}

// add creates a Pod. With annotations it opts in and is rewritten; without, it is native.
func (w *world) add(name string, gpus int, annotations map[string]string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	w.next++
	ns, base, _ := strings.Cut(name, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: base, UID: types.UID(fmt.Sprintf("uid-%05d", w.next)),
		CreationTimestamp: metav1.NewTime(w.c.Now), Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "train"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if gpus > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{kube.ExtendedResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	for _, f := range change {
		f(p)
	}
	n := 0
	if _, faults := pod.Rewrite(p, pod.In(nil, ns, false), func() string { n++; return fmt.Sprintf("weft-%s-%d", p.UID, n) }); len(faults) > 0 {
		w.t.Fatalf("Pod %s is refused: %v", name, faults)
	}
	w.c.Pods = append(w.c.Pods, p)
	return p
}

// ask are annotations: "memory=8Gi floor=0.5".
func ask(text string) map[string]string {
	m := map[string]string{}
	for _, part := range strings.Fields(text) {
		key, value, _ := strings.Cut(part, "=")
		m["weft.dev/"+key] = value
	}
	return m
}

// owned makes a Pod one of a controller.
func owned(kind, name string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: name, UID: types.UID(kind + name), Controller: &yes}}
	}
}

func (w *world) build() *Queue { return Build(&w.c, w.book) }

// plan decides once.
func (w *world) plan() (*Queue, dispatch.Decision) {
	q := w.build()
	return q, dispatch.Plan(&q.State)
}

// turn decides and does all that follows, as the controller does.
func (w *world) turn() (*Queue, dispatch.Decision) {
	w.t.Helper()
	q, d := w.plan()
	for _, c := range q.Undo {
		w.dropClaim(c)
	}
	for _, m := range q.Lift {
		w.lift(m.Pod, q.On(m.Shares)[0].Node)
	}
	for _, s := range d.Starts {
		if !q.Jobs[s.Job].Native {
			w.claims(q, s)
			w.release(q, s)
		}
	}
	for _, e := range append(q.Evict, q.Stuck(&d)...) {
		w.remove(e.Pod)
	}
	return q, d
}

// claims writes the claims of a job that starts, each for the first time.
func (w *world) claims(q *Queue, s dispatch.Start) {
	w.t.Helper()
	before := len(w.c.Claims)
	w.claimsUnchecked(q, s)
	for _, c := range w.c.Claims[before:] {
		if slices.ContainsFunc(w.c.Claims[:before], func(o *resourcev1.ResourceClaim) bool { return o.Namespace == c.Namespace && o.Name == c.Name }) {
			w.t.Fatalf("claim %s is written twice", c.Name)
		}
	}
}

func (w *world) claimsUnchecked(q *Queue, s dispatch.Start) {
	w.t.Helper()
	places, err := q.Place(s)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	for _, shares := range places {
		for _, share := range shares {
			c := claim.New(share)
			w.next++
			c.UID, c.CreationTimestamp = types.UID(fmt.Sprintf("claim-%05d", w.next)), metav1.NewTime(w.c.Now)
			w.c.Claims = append(w.c.Claims, c)
		}
	}
}

// release lets the Pods of a job go.
func (w *world) release(q *Queue, s dispatch.Start) {
	places, _ := q.Place(s)
	for i, m := range q.Jobs[s.Job].Members {
		w.lift(m.Pod, q.On(places[i])[0].Node)
	}
}

func (w *world) lift(p *corev1.Pod, node string) {
	if !Gated(p) {
		return
	}
	p.Spec.SchedulingGates = nil
	p.Annotations[kube.AnnotationGPU] = node
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
			Values: []string{node}}}}}}}}
}

func (w *world) dropClaim(c *resourcev1.ResourceClaim) {
	w.c.Claims = slices.DeleteFunc(w.c.Claims, func(o *resourcev1.ResourceClaim) bool { return o == c })
}

// remove deletes a Pod and what it owns.
func (w *world) remove(p *corev1.Pod) {
	w.tear(p)
	w.c.Pods = slices.DeleteFunc(w.c.Pods, func(o *corev1.Pod) bool { return o == p })
	w.c.Claims = slices.DeleteFunc(w.c.Claims, func(c *resourcev1.ResourceClaim) bool {
		owner, ok := claim.Owner(c)
		return ok && owner.UID == p.UID
	})
}

// tear notes that an owner lost a Pod.
func (w *world) tear(p *corev1.Pod) {
	for _, o := range p.OwnerReferences {
		w.torn[o.UID] = true
	}
}

// held is what is taken of a device by claims that were given it.
func (w *world) held(d claim.Device) (memory, share int64) {
	for _, c := range w.c.Claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Pool == d.Pool && r.Device == d.Name {
				m, s := r.ConsumedCapacity[kube.CapacityMemory], r.ConsumedCapacity[kube.CapacityShare]
				memory, share = memory+m.Value(), share+s.Value()
			}
		}
	}
	return memory, share
}

// schedule binds a Pod if its claims, or the whole GPUs that it asks, fit on one node. It is the scheduler's part.
func (w *world) schedule(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || Done(p) {
		return false
	}
	if p.Labels[kube.LabelManaged] != "true" {
		return w.scheduleWhole(p)
	}
	var mine []*resourcev1.ResourceClaim
	for _, r := range p.Spec.ResourceClaims {
		i := slices.IndexFunc(w.c.Claims, func(c *resourcev1.ResourceClaim) bool {
			return c.Namespace == p.Namespace && c.Name == *r.ResourceClaimName
		})
		if i < 0 {
			return false
		}
		mine = append(mine, w.c.Claims[i])
	}
	node := pinnedTo(p)
	for _, c := range mine {
		if !w.allocate(c, node) {
			for _, c := range mine {
				c.Status.Allocation = nil
			}
			return false
		}
	}
	w.bind(p, node)
	return true
}

func (w *world) bind(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	now := metav1.NewTime(w.c.Now)
	p.Status.StartTime = &now
}

// allocate gives a claim the devices that it is pinned to.
func (w *world) allocate(c *resourcev1.ResourceClaim, node string) bool {
	s, err := claim.Read(c)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for i, uuid := range s.GPUs {
		d, memory := w.find(uuid)
		if d.Pool != node {
			return false
		}
		ask := c.Spec.Devices.Requests[i].Exactly.Capacity.Requests
		wants, some := ask[kube.CapacityMemory]
		if !some {
			wants = *resource.NewQuantity(memory, resource.BinarySI)
		}
		part := ask[kube.CapacityShare]
		m, sh := w.held(d)
		if m+wants.Value() > memory || sh+part.Value() > kube.WholeShare {
			return false
		}
		w.give(c, d, wants.Value(), part.Value())
	}
	return true
}

func (w *world) give(c *resourcev1.ResourceClaim, d claim.Device, memory, share int64) {
	if c.Status.Allocation == nil {
		c.Status.Allocation = &resourcev1.AllocationResult{}
	}
	r := &c.Status.Allocation.Devices.Results
	*r = append(*r, resourcev1.DeviceRequestAllocationResult{Request: fmt.Sprintf("gpu%d", len(*r)), Driver: kube.Driver, Pool: d.Pool, Device: d.Name,
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
			kube.CapacityMemory: *resource.NewQuantity(memory, resource.BinarySI), kube.CapacityShare: *resource.NewQuantity(share, resource.DecimalSI)}})
}

// find is a device by its UUID, with its memory.
func (w *world) find(uuid string) (claim.Device, int64) {
	for _, s := range w.c.Slices {
		for _, d := range s.Spec.Devices {
			if *d.Attributes[kube.AttributeUUID].StringValue == uuid {
				memory := d.Capacity[kube.CapacityMemory].Value
				return claim.Device{Pool: s.Spec.Pool.Name, Name: d.Name}, memory.Value()
			}
		}
	}
	return claim.Device{}, 0
}

// scheduleWhole gives a native Pod free GPUs of one node by a claim of the scheduler's own.
func (w *world) scheduleWhole(p *corev1.Pod) bool {
	n := pod.WholeGPUs(p)
	for _, s := range w.c.Slices {
		var free []claim.Device
		for _, d := range s.Spec.Devices {
			name := claim.Device{Pool: s.Spec.Pool.Name, Name: d.Name}
			if m, sh := w.held(name); m == 0 && sh == 0 && len(d.Taints) == 0 {
				free = append(free, name)
			}
		}
		if len(free) < n {
			continue
		}
		w.next++
		yes := true
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-extended",
			UID:             types.UID(fmt.Sprintf("claim-%05d", w.next)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
		for _, d := range free[:n] {
			memory := int64(0)
			for _, x := range s.Spec.Devices {
				if x.Name == d.Name {
					q := x.Capacity[kube.CapacityMemory].Value
					memory = q.Value()
				}
			}
			w.give(c, d, memory, kube.WholeShare)
		}
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
		w.c.Claims = append(w.c.Claims, c)
		w.bind(p, s.Spec.Pool.Name)
		return true
	}
	return false
}

// scheduleAll lets the scheduler try every Pod.
func (w *world) scheduleAll() {
	for _, p := range inOrder(w.c.Pods) {
		w.schedule(p)
	}
}
