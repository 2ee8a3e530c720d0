package driver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	weft "weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/cluster"
)

// controlPlane is a real API server and scheduler, with the node, weft's classes and a namespace; the test is skipped where there can
// be none. client may do all, and own what the driver's role allows.
func controlPlane(t *testing.T) (client, own kubernetes.Interface, plane *cluster.Cluster) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a control plane; skipped with -short")
	}
	c, err := cluster.UpControlPlane(t.Context(), cluster.ControlPlane{Scheduler: true})
	cluster.SkipOr(t, err)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := `{"status":{"capacity":{"cpu":"64","memory":"256Gi","pods":"110"},"allocatable":{"cpu":"64","memory":"256Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{kube.NativeClass, kube.ShareClass} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + kube.Driver + `"`}}}}}
		if name == kube.NativeClass {
			extended := kube.ExtendedResource
			class.Spec.ExtendedResourceName = &extended
		}
		if _, err := client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []error{
		create(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml"}}, metav1.CreateOptions{})),
		create(client.CoreV1().ServiceAccounts("ml").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})),
	} {
		if o != nil {
			t.Fatal(o)
		}
	}
	return client, restricted(t, client, config), c
}

// restricted is the driver's own account, on the node.
func restricted(t *testing.T, client kubernetes.Interface, config *rest.Config) kubernetes.Interface {
	t.Helper()
	const name = "weft-agent"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: Rules()}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}}
	if err := errors.Join(create(client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})),
		create(client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})),
		create(client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))); err != nil {
		t.Fatal(err)
	}
	return accountOn(t, client, config, node)
}

// accountOn is the driver's account as the kubelet of a node gives it to a Pod: its token names the node, if it is not "".
func accountOn(t *testing.T, client kubernetes.Interface, config *rest.Config, node string) kubernetes.Interface {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID}
	}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "weft-agent", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(config)
	own.BearerToken, own.QPS = token.Status.Token, -1
	limited, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	return limited
}

func create[T any](_ T, err error) error { return err }

// devices are those of all slices of weft's driver, and whether the slices are one whole generation of one pool.
func devices(t *testing.T, client kubernetes.Interface) (list []resourcev1.Device, whole bool) {
	t.Helper()
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + kube.Driver})
	if err != nil {
		t.Fatal(err)
	}
	whole = len(slices.Items) > 0
	for _, s := range slices.Items {
		p := s.Spec.Pool
		whole = whole && p.Name == node && s.Spec.NodeName != nil && *s.Spec.NodeName == node && p.ResourceSliceCount == int64(len(slices.Items)) && p.Generation == slices.Items[0].Spec.Pool.Generation
		list = append(list, s.Spec.Devices...)
	}
	return list, whole
}

// pod is a Pod that does nothing, with or without the claim of one worker.
func pod(name string, own *claim.Share) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "trainer", Image: "none"}}}}
	if own == nil {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{kube.ExtendedResource: resource.MustParse("1")}
		return p
	}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "weft-trainer", ResourceClaimName: &own.Claim}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "weft-trainer"}}
	return p
}

// submit creates a Pod and, with a share, its claim as the controller does.
func submit(t *testing.T, client kubernetes.Interface, name string, own *claim.Share) *corev1.Pod {
	t.Helper()
	p, err := client.CoreV1().Pods("ml").Create(t.Context(), pod(name, own), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if own != nil {
		own.Pod, own.UID, own.Container = types.NamespacedName{Namespace: "ml", Name: name}, p.UID, "trainer"
		if _, err := client.ResourceV1().ResourceClaims("ml").Create(t.Context(), claim.New(*own), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// bound waits until the scheduler has bound a Pod, and returns its claim.
func bound(t *testing.T, client kubernetes.Interface, name string) *resourcev1.ResourceClaim {
	t.Helper()
	var claimName string
	eventually(t, name+" is bound", 30*time.Second, func() bool {
		p, err := client.CoreV1().Pods("ml").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || p.Spec.NodeName != node {
			return false
		}
		if x := p.Status.ExtendedResourceClaimStatus; x != nil {
			claimName = x.ResourceClaimName
		} else if len(p.Spec.ResourceClaims) > 0 {
			claimName = *p.Spec.ResourceClaims[0].ResourceClaimName
		}
		return claimName != ""
	})
	c, err := client.ResourceV1().ResourceClaims("ml").Get(t.Context(), claimName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOnRealControlPlane publishes to a real API server, lets the real scheduler allocate claims as the controller writes them, and
// prepares what came of it: two Pods share one GPU, a native Pod has the other, a third share that does not fit waits, and an XID
// taints.
func TestOnRealControlPlane(t *testing.T) {
	client, own, plane := controlPlane(t)
	b := newBed(t, own, Options{Health: 100 * time.Millisecond})
	eventually(t, "two devices with all that was published", patience, func() bool {
		list, whole := devices(t, client)
		return whole && len(list) == 2 && *list[0].AllowMultipleAllocations && list[1].Capacity[kube.CapacityMemory].RequestPolicy != nil && list[0].Attributes[kube.AttributeVersion].VersionValue != nil
	})
	kubeletStarts(t, client)
	share := func(name string, reserved, peak unit.Bytes) *claim.Share {
		return &claim.Share{Claim: "weft-" + name, GPUs: []string{b.uuid(0)}, Class: weft.Guaranteed, Floor: 0.9, Reserved: reserved, Peak: peak, Part: 250}
	}
	submit(t, client, "first", share("first", 8*unit.GiB, 8*unit.GiB))
	submit(t, client, "second", share("second", 4*unit.GiB+1000, 6*unit.GiB)) // no whole step: the scheduler rounds it up
	bound(t, client, "first")
	bound(t, client, "second") // the third is to find both
	submit(t, client, "native", nil)
	submit(t, client, "third", share("third", 12*unit.GiB, 12*unit.GiB))
	for _, c := range []struct {
		name    string
		managed int
		limit   unit.Bytes
	}{{"first", 1, 8 * unit.GiB}, {"second", 1, 6 * unit.GiB}, {"native", 0, b.machine.GPUs()[1].Usable}} {
		own := bound(t, client, c.name)
		m := probeMemory(t, b.o.CDI, b.prepare(own), 1000)
		if m.Managed != c.managed || m.Total > int64(c.limit) || m.Total < int64(c.limit)-int64(2*unit.GiB) {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
	if p, err := client.CoreV1().Pods("ml").Get(t.Context(), "third", metav1.GetOptions{}); err != nil || p.Spec.NodeName != "" {
		t.Errorf("a share that does not fit is on %q, %v", p.Spec.NodeName, err)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serving := false
	for _, c := range n.Status.Conditions {
		serving = serving || c.Type == kube.ConditionServing && c.Status == corev1.ConditionTrue
	}
	if !serving {
		t.Errorf("conditions %+v", n.Status.Conditions)
	}
	fault(t, b, emugpu.Fault{Kind: emugpu.XID, GPU: 1, Number: 48})
	eventually(t, "a taint on that GPU alone, and Events", patience, func() bool {
		list, _ := devices(t, client)
		events, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=GPUUnhealthy"})
		return err == nil && len(list) == 2 && len(list[0].Taints) == 0 && len(list[1].Taints) == 1 && list[1].Taints[0].TimeAdded != nil && len(events.Items) == 2
	})
	t.Run("API server away", func(t *testing.T) { serverAway(t, b, plane, bound(t, client, "first")) })
}

// kubeletStarts deletes the slices of the node, as a kubelet does that starts: they are back soon, however short ago they were written.
func kubeletStarts(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for range 2 {
		if err := client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
			FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + node}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, "the devices are published again", patience, func() bool {
			list, whole := devices(t, client)
			return whole && len(list) == 2
		})
		t.Logf("published again after %v", time.Since(began))
	}
}

// serverAway: without an API server claims are taken back and running ones left alone; nothing new is prepared, and all is well when it
// is back.
func serverAway(t *testing.T, b *bed, plane *cluster.Cluster, c *resourcev1.ResourceClaim) {
	t.Helper()
	api := plane.Component(cluster.APIServer)
	if err := api.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // several looks
	if jobs := b.jobs(); len(jobs) != 3 {
		t.Errorf("%d allocations", len(jobs))
	}
	if _, err := b.ask(t.Context(), c); err == nil {
		t.Error("prepared without the claim")
	}
	b.T = t
	b.unprepare(c)
	if jobs := b.jobs(); len(jobs) != 2 {
		t.Errorf("%d allocations", len(jobs))
	}
	if err := api.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is prepared again", 30*time.Second, func() bool {
		answer, err := b.ask(t.Context(), c)
		return err == nil && answer.Error == ""
	})
}

// TestManyDevicesOnRealAPIServer is case C16 against the server's own validation: 130 devices, one of which gets a taint, and fewer
// later.
func TestManyDevicesOnRealAPIServer(t *testing.T) {
	client, own, _ := controlPlane(t)
	gpus := gpusOf(130, 22*unit.GiB)
	faults := make([]Fault, len(gpus))
	first := Resources(node, "550.54.15", gpus, faults)
	var said []string
	controller, err := resourceslice.StartController(t.Context(), resourceslice.Options{DriverName: kube.Driver, KubeClient: own,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node}, Resources: &first,
		ErrorHandler: func(_ context.Context, err error, msg string) { said = append(said, msg+": "+err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Stop()
	see := func(what string, devicesWanted, tainted int) {
		t.Helper()
		eventually(t, what, 30*time.Second, func() bool {
			list, whole := devices(t, client)
			n := 0
			for _, d := range list {
				n += len(d.Taints)
			}
			return whole && len(list) == devicesWanted && n == tainted
		})
	}
	see("130 devices", 130, 0)
	faults[129] = "xid-79"
	next := Resources(node, "550.54.15", gpus, faults)
	controller.Update(&next)
	see("a taint", 130, 1)
	odd := Resources(node, "", gpusOf(3, 22*unit.GiB+1), nil) // memory that no step divides
	controller.Update(&odd)
	see("three are left", 3, 0)
	none := Resources(node, "", nil, nil)
	controller.Update(&none)
	eventually(t, "an empty pool", 30*time.Second, func() bool {
		list, whole := devices(t, client)
		return whole && len(list) == 0
	})
	controller.Stop()
	for _, text := range said {
		if !strings.Contains(text, "context canceled") {
			t.Error(text)
		}
	}
}

// TestClaimsByHand prepares nothing of what users may write into claims themselves to get more than they were charged.
func TestClaimsByHand(t *testing.T) {
	client, account, _ := controlPlane(t)
	b := newBed(t, account, Options{})
	eventually(t, "devices", patience, func() bool { list, _ := devices(t, client); return len(list) == 2 })
	base := claim.Share{GPUs: []string{b.uuid(0)}, Class: weft.Guaranteed, Floor: 0.9, Reserved: unit.GiB, Peak: unit.GiB, Part: 100, Pod: types.NamespacedName{Namespace: "ml", Name: "x"}, UID: "x", Container: "trainer"}
	for name, c := range map[string]struct {
		change func(spec *resourcev1.DeviceClaim)
		fault  string
	}{
		"greedy": {func(d *resourcev1.DeviceClaim) {
			reconfigure(t, d, "reserved", "20Gi")
			reconfigure(t, d, "peak", "20Gi")
		}, "was charged 1.0 GiB"},
		"bare":  {func(d *resourcev1.DeviceClaim) { d.Config = nil }, "a part of gpu-0"},
		"twice": {func(d *resourcev1.DeviceClaim) { d.Config = append(d.Config, d.Config[0]) }, "several sets"},
	} {
		own := base
		own.Claim = "weft-" + name
		written := claim.New(own)
		written.OwnerReferences = nil
		c.change(&written.Spec.Devices)
		if _, err := client.ResourceV1().ResourceClaims("ml").Create(t.Context(), written, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Pods("ml").Create(t.Context(), pod(name, &own), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		answer, err := b.kubelet.NodePrepareResources(t.Context(), prepareRequest(bound(t, client, name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answer.Claims {
			if !strings.Contains(a.Error, c.fault) {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	b.nothing()
}

func prepareRequest(c *resourcev1.ResourceClaim) *drapb.NodePrepareResourcesRequest {
	return &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}}
}

// reconfigure changes a value of the parameters.
func reconfigure(t *testing.T, d *resourcev1.DeviceClaim, name, value string) {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(d.Config[0].Opaque.Parameters.Raw, &all); err != nil {
		t.Fatal(err)
	}
	all[name] = value
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	d.Config[0].Opaque.Parameters.Raw = raw
}
