package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"k8s.io/apimachinery/pkg/util/rand"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/test/cluster"
)

// here is the control plane of this test binary: real etcd, API server, controller manager and scheduler, and nodes that exist in
// the API only.
var here struct {
	once   sync.Once
	plane  *cluster.Cluster
	config *rest.Config
	client kubernetes.Interface
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if here.plane != nil {
		if err := here.plane.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// patience is how long things may take on a machine that others use as well.
const patience = time.Minute

// site is what one test has of the control plane: a namespace for Pods that share, one for others, and nodes of its own.
type site struct {
	t      *testing.T
	client kubernetes.Interface
	ns     string
	plain  string
	nodes  []string
}

// at is the site of a test. The test is skipped, and says why, where there can be no control plane.
func at(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED under -short: brings up a control plane")
	}
	here.once.Do(func() { here.err = open() })
	cluster.SkipOr(t, here.err)
	s := &site{t: t, client: here.client}
	s.ns, s.plain = s.namespace("ml"), s.namespace("plain")
	t.Cleanup(s.close)
	return s
}

func open() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	here.plane, err = cluster.UpControlPlane(ctx, cluster.ControlPlane{Scheduler: true, ControllerManager: true, Kwok: true})
	if err != nil {
		return err
	}
	if here.config, err = clientcmd.BuildConfigFromFlags("", here.plane.Kubeconfig()); err != nil {
		return err
	}
	config := rest.CopyConfig(here.config)
	config.QPS = -1
	if here.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	root, err := cluster.Source()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, here.plane.Binaries().Path("kubectl"), "--kubeconfig", here.plane.Kubeconfig(), "apply", "-f",
		filepath.Join(root, "charts", "weft", "files", "crds")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("custom resources: %w: %s", err, out)
	}
	extended := kube.ExtendedResource
	for name, of := range map[string]*string{kube.NativeClass: &extended, kube.ShareClass: nil} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: of,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.weft.dev"`}}}}}
		if _, err := here.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) context() context.Context { return context.Background() }

func (s *site) namespace(prefix string) string {
	s.t.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(s.context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}},
		metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the namespace has its account", func() string {
		_, err := s.client.CoreV1().ServiceAccounts(ns.Name).Get(s.context(), "default", metav1.GetOptions{})
		return text(err)
	})
	return ns.Name
}

// close takes away all that the test made, and fails where a claim outlives its Pod.
func (s *site) close() {
	now := int64(0)
	s.within(10*time.Minute, "nothing is left", func() string {
		left := 0
		for _, ns := range []string{s.ns, s.plain} {
			// asked again while something is left: a server with much to do gives up in between
			_ = s.client.CoreV1().Pods(ns).DeleteCollection(s.context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
			pods, err := s.client.CoreV1().Pods(ns).List(s.context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			claims, err := s.client.ResourceV1().ResourceClaims(ns).List(s.context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			left += len(pods.Items) + len(claims.Items)
		}
		if left > 0 {
			return fmt.Sprintf("%d Pods and claims", left)
		}
		return ""
	})
	for _, n := range s.nodes {
		if err := errors.Join(s.client.ResourceV1().ResourceSlices().Delete(s.context(), n, metav1.DeleteOptions{}),
			s.client.CoreV1().Nodes().Delete(s.context(), n, metav1.DeleteOptions{})); err != nil {
			s.t.Error(err)
		}
	}
	for _, ns := range []string{s.ns, s.plain} {
		if err := s.client.CoreV1().Namespaces().Delete(s.context(), ns, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	}
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// eventually waits until done says "", and fails with what it says last.
func (s *site) eventually(what string, done func() string) {
	s.t.Helper()
	s.within(patience, what, done)
}

func (s *site) within(limit time.Duration, what string, done func() string) {
	s.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		missing := done()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within %v: %s", what, limit, missing)
		}
	}
}

// node makes a node with GPUs of 80 GiB.
func (s *site) node(gpus int) string {
	s.t.Helper()
	name := fmt.Sprintf("%s-%d", s.ns, len(s.nodes))
	s.nodes = append(s.nodes, name)
	s.makeNode(name, gpus)
	s.ready(name)
	return name
}

// makeNode makes a node that kwok keeps ready.
func (s *site) makeNode(name string, gpus int, change ...func(*corev1.Node)) {
	s.t.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("250")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels: map[string]string{"type": "kwok", "kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	for _, f := range change {
		f(n)
	}
	if _, err := s.client.CoreV1().Nodes().Create(s.context(), n, metav1.CreateOptions{}); err != nil {
		s.t.Error(err)
		return
	}
	s.slice(name, gpus)
}

// ready waits until a node takes Pods.
func (s *site) ready(name string) {
	s.t.Helper()
	s.eventually("node "+name+" is ready", func() string {
		n, err := s.client.CoreV1().Nodes().Get(s.context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !ready(n) || len(n.Spec.Taints) > 0 {
			return fmt.Sprintf("taints %v", n.Spec.Taints)
		}
		return ""
	})
}

func (s *site) slice(node string, gpus int) {
	s.t.Helper()
	yes, model, whole := true, "NVIDIA H100 80GB HBM3", resource.MustParse("80Gi")
	all, one, step := resource.MustParse("1000"), resource.MustParse("1"), resource.MustParse("1Mi")
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{Driver: kube.Driver,
		NodeName: &node,
		Pool:     resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
	for g := range gpus {
		uuid, index := fmt.Sprintf("GPU-%s-%d", node, g), int64(g)
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", g), AllowMultipleAllocations: &yes,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				kube.AttributeUUID: {StringValue: &uuid}, kube.AttributeModel: {StringValue: &model}, kube.AttributeIndex: {IntValue: &index}},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				kube.CapacityMemory: {Value: whole, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &whole,
					ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &step, Step: &step, Max: &whole}}},
				kube.CapacityShare: {Value: all, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &all,
					ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &one, Step: &one, Max: &all}}},
			}})
	}
	if _, err := s.client.ResourceV1().ResourceSlices().Create(s.context(), slice, metav1.CreateOptions{}); err != nil {
		s.t.Error(err)
	}
}

// pod creates a Pod as the webhook rewrites it. Without annotations it is native. It can go to nodes of this test only.
func (s *site) pod(name string, gpus int, annotations string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	p := s.draft(name, gpus, annotations, change...)
	got, err := s.client.CoreV1().Pods(p.Namespace).Create(s.context(), p, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s *site) draft(name string, gpus int, annotations string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "train", Image: "train", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{kube.ExtendedResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}}}},
	}}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "In",
			Values: s.nodes}}}}}}}
	if annotations == "" {
		p.Namespace = s.plain
	}
	for part := range strings.FieldsSeq(annotations) {
		key, value, _ := strings.Cut(part, "=")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "weft.dev/"+key, value)
	}
	for _, f := range change {
		f(p)
	}
	if _, faults := pod.Rewrite(p, pod.Defaults{}, func() string { return pod.ClaimPrefix + rand.String(10) }); len(faults) > 0 {
		s.t.Fatal(faults.ToAggregate())
	}
	return p
}

// get is a Pod as it is now, nil for none.
func (s *site) get(p *corev1.Pod) *corev1.Pod {
	got, err := s.client.CoreV1().Pods(p.Namespace).Get(s.context(), p.Name, metav1.GetOptions{})
	if err != nil || got.UID != p.UID {
		return nil
	}
	return got
}

// bound waits until Pods are on nodes.
func (s *site) bound(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, p := range pods {
		s.eventually(p.Name+" is bound", func() string {
			now := s.get(p)
			switch {
			case now == nil:
				return "it is gone"
			case now.Spec.NodeName == "":
				return fmt.Sprintf("gates %v, conditions %v", now.Spec.SchedulingGates, now.Status.Conditions)
			}
			return ""
		})
	}
}

// said are the events of a Pod, "Reason text".
func (s *site) said(p *corev1.Pod) []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(p.Namespace).List(s.context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	if err != nil {
		s.t.Fatal(err)
	}
	var texts []string
	for _, e := range list.Items {
		if e.Source.Component == component {
			texts = append(texts, e.Type+" "+e.Reason+" "+e.Message)
		}
	}
	return texts
}

// hears waits until a Pod was told something.
func (s *site) hears(p *corev1.Pod, parts ...string) string {
	s.t.Helper()
	found := ""
	s.eventually(p.Name+" hears "+strings.Join(parts, " ... "), func() string {
		said := s.said(p)
		for _, line := range said {
			rest, all := line, true
			for _, part := range parts {
				_, after, ok := strings.Cut(rest, part)
				rest, all = after, all && ok
			}
			if all {
				found = line
				return ""
			}
		}
		return "it heard:\n" + strings.Join(said, "\n")
	})
	return found
}

// condition is the condition weft.dev/Placed of a Pod.
func (s *site) condition(p *corev1.Pod) (status corev1.ConditionStatus, reason string) {
	if now := s.get(p); now != nil {
		for _, c := range now.Status.Conditions {
			if c.Type == kube.ConditionPlaced {
				return c.Status, c.Reason
			}
		}
	}
	return "", ""
}

// claims are those of a namespace, by name.
func (s *site) claims(ns string) map[string]*resourcev1.ResourceClaim {
	s.t.Helper()
	list, err := s.client.ResourceV1().ResourceClaims(ns).List(s.context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	m := map[string]*resourcev1.ResourceClaim{}
	for i := range list.Items {
		m[list.Items[i].Name] = &list.Items[i]
	}
	return m
}

// running is a controller in this process.
type running struct {
	*Controller
	stop func() // it ends as if killed: nothing is finished
	done chan error
}

// transport changes what a controller's requests meet.
type transport func(http.RoundTripper) http.RoundTripper

// controller starts one. It ends with the test.
func (s *site) controller(wrap transport, change ...func(*Options)) *running {
	s.t.Helper()
	config := rest.CopyConfig(here.config)
	if wrap != nil {
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return wrap(rt) })
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if os.Getenv("WEFT_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o := Options{Config: config, Namespace: "kube-system", Identity: s.ns, Log: log, Version: "test"}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{c, cancel, make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.done:
			if err != nil {
				s.t.Errorf("the controller ended: %v", err)
			}
		case <-time.After(patience):
			s.t.Error("the controller does not end")
		}
	})
	return r
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// isGate says whether a request lifts a gate.
func isGate(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/pods/") && !strings.HasSuffix(r.URL.Path, "/status")
}

// gone says whether an object is not there.
func gone(err error) bool { return apierrors.IsNotFound(err) }
