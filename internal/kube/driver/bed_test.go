package driver

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

const node = "node-1"

// bed is a node: emulated GPUs, the agent, the driver, and the test in the place of the kubelet. The API server is one in memory, or
// a real one.
type bed struct {
	*testing.T
	dir     string
	broker  *emugpu.Broker
	machine device.Machine
	audit   *emugpu.Audit
	client  kubernetes.Interface
	a       *agent.Agent
	d       *Driver
	kubelet drapb.DRAPluginClient
	conn    *grpc.ClientConn
	said    *logged
	o       Options
}

// logged is a log that the test shows if it fails.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func theNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid"}}
}

// newBed starts a node with two emulated GPUs and all on it.
func newBed(t *testing.T, client kubernetes.Interface, o Options) *bed {
	t.Helper()
	const libraries = "../../../bin/lib"
	if _, err := os.Stat(filepath.Join(libraries, "emu", "libnvidia-ml.so.1")); err != nil {
		t.Skip("libweft.so and the emulated driver are not built: make build")
	}
	dir, err := os.MkdirTemp("", "weft-driver-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, dir: dir, client: client, said: &logged{}, o: o}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(b.said.String())
		}
	})
	a10, _ := emugpu.Model("a10")
	socket := filepath.Join(dir, "gpus.sock")
	if b.broker, err = emugpu.Start(emugpu.Options{Socket: socket, GPUs: []emugpu.GPU{a10, a10}, Scale: 1, Slice: emugpu.DefaultSlice, Switch: 50 * time.Microsecond, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.broker.Close() }) // at the end, where nothing more is asked of it
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEFT_EMU_SOCKET", socket)
	if b.machine, err = device.Open(filepath.Join(libraries, "emu")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.machine.Close() })
	b.o.Node, b.o.Kubelet, b.o.CDI, b.o.Libraries, b.o.Emulated = node, filepath.Join(dir, "kubelet"), filepath.Join(dir, "cdi"), libraries, socket
	b.o.GPUs, b.o.Client, b.o.Log = b.machine.GPUs(), client, slog.New(slog.NewTextHandler(b.said, nil))
	if b.o.Version, err = b.machine.(device.Versioned).DriverVersion(); err != nil {
		t.Fatal(err)
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

// open starts agent and driver, and registers as the kubelet does.
func (b *bed) open() {
	b.Helper()
	home := filepath.Join(b.dir, "agent")
	audit, err := emugpu.OpenAudit(b.o.Emulated)
	if err != nil {
		b.Fatal(err)
	}
	b.audit = audit
	if err := os.MkdirAll(home, 0o700); err != nil {
		b.Fatal(err)
	}
	b.a, err = agent.Open(context.Background(), agent.Options{Dir: home, Machine: b.machine, Locks: filepath.Join(b.dir, "locks"), Audit: audit, Log: b.o.Log,
		Poll: 50 * time.Millisecond, Env: Environment(b.o.Emulated)})
	if err != nil {
		b.Fatal(err)
	}
	if b.d, err = Open(context.Background(), b.a, b.o); err != nil {
		_ = b.a.Close()
		b.a = nil
		audit.Close()
		b.Fatal(err)
	}
	b.register()
}

// register asks the driver for its socket, as the kubelet's plugin watcher does.
func (b *bed) register() {
	b.Helper()
	registry := dial(b, filepath.Join(b.o.Kubelet, "plugins_registry", kube.Driver+"-reg.sock"))
	defer func() { _ = registry.Close() }()
	client := registerapi.NewRegistrationClient(registry)
	info, err := client.GetInfo(b.Context(), &registerapi.InfoRequest{})
	if err != nil {
		b.Fatal(err)
	}
	if info.Type != registerapi.DRAPlugin || info.Name != kube.Driver || len(info.SupportedVersions) == 0 {
		b.Errorf("registered as %+v", info)
	}
	if _, err := client.NotifyRegistrationStatus(b.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		b.Fatal(err)
	}
	b.conn = dial(b, info.Endpoint)
	b.kubelet = drapb.NewDRAPluginClient(b.conn)
}

func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// close ends driver and agent.
func (b *bed) close() {
	b.Helper()
	if b.a == nil {
		return
	}
	_ = b.conn.Close()
	b.d.Close()
	b.closeAgent()
}

func (b *bed) closeAgent() {
	b.Helper()
	if err := b.a.Close(); err != nil {
		b.Error(err)
	}
	b.a = nil
	b.audit.Close()
}

// uuid is a GPU of the node.
func (b *bed) uuid(gpu int) string { return b.machine.GPUs()[gpu].UUID.String() }

// give makes a claim that the scheduler has allocated: each result is "REQUEST GPU"; of memory so much, or all for 0. parameters
// may be "".
func (b *bed) give(name string, memory unit.Bytes, parameters string, results ...[2]string) *resourcev1.ResourceClaim {
	b.Helper()
	c := allocated(name, b.machine.GPUs()[0].Usable, memory, parameters, results...)
	out, err := b.client.ResourceV1().ResourceClaims("ml").Create(b.Context(), c, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// allocated is such a claim.
func allocated(name string, usable, memory unit.Bytes, parameters string, results ...[2]string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + name, UID: types.UID("pod-uid-" + name)}}
	share := int64(kube.WholeShare)
	if memory == 0 {
		memory = usable
	} else {
		share = 250
	}
	var devices resourcev1.DeviceAllocationResult
	for _, r := range results {
		devices.Results = append(devices.Results, resourcev1.DeviceRequestAllocationResult{Request: r[0], Driver: kube.Driver, Pool: node, Device: r[1],
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
				kube.CapacityMemory: *resource.NewQuantity(int64(memory), resource.BinarySI), kube.CapacityShare: *resource.NewQuantity(share, resource.DecimalSI)}})
	}
	if parameters != "" {
		devices.Config = []resourcev1.DeviceAllocationConfiguration{{Source: resourcev1.AllocationConfigSourceClaim, DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: kube.Driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}}}}
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: devices}
	return c
}

// parameters of a worker.
func parameters(class, reserved, peak string) string {
	return `{"apiVersion":"weft.dev/v1alpha1","kind":"Worker","pod":"ml/p","container":"trainer","class":"` + class + `","floor":0.9,"reserved":"` + reserved + `","peak":"` + peak + `"}`
}

// prepare asks for a claim as the kubelet does, and returns its CDI devices.
func (b *bed) prepare(c *resourcev1.ResourceClaim) []string {
	b.Helper()
	answer, err := b.ask(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if answer.Error != "" {
		b.Fatal(answer.Error)
	}
	var ids []string
	for _, d := range answer.Devices {
		ids = append(ids, d.CdiDeviceIds...)
	}
	return ids
}

func (b *bed) ask(ctx context.Context, c *resourcev1.ResourceClaim) (*drapb.NodePrepareResourceResponse, error) {
	answer, err := b.kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
	if err != nil {
		return nil, err
	}
	return answer.Claims[string(c.UID)], nil
}

func (b *bed) unprepare(c *resourcev1.ResourceClaim) {
	b.Helper()
	answer, err := b.kubelet.NodeUnprepareResources(b.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
	if err != nil {
		b.Fatal(err)
	}
	if text := answer.Claims[string(c.UID)].GetError(); text != "" {
		b.Fatal(text)
	}
}

// jobs are the agent's, by claim.
func (b *bed) jobs() map[string]agent.Job {
	b.Helper()
	return jobsOf(b, b.a)
}

func jobsOf(t testing.TB, a asker) map[string]agent.Job {
	t.Helper()
	answer, err := a.Ask(t.Context(), agent.Request{Op: agent.OpList})
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]agent.Job{}
	for _, j := range answer.Jobs {
		jobs[claimOf(j)] = j
	}
	if len(jobs) != len(answer.Jobs) {
		t.Errorf("a claim has two allocations: %+v", answer.Jobs)
	}
	return jobs
}

// nothing holds that no claim is prepared.
func (b *bed) nothing() {
	b.Helper()
	files, err := b.d.claims.folder.Claims()
	if err != nil {
		b.Fatal(err)
	}
	if jobs, entries := b.jobs(), b.d.claims.store.Entries(); len(jobs)+len(files)+len(entries) > 0 {
		b.Errorf("left: allocations %v, CDI files %v, entries %v", jobs, files, entries)
	}
}

// patience is how long a test waits for what takes moments: others may use the machine.
const patience = 20 * time.Second

// eventually waits at most so long for something.
func eventually(t testing.TB, what string, most time.Duration, is func() bool) {
	t.Helper()
	for until := time.Now().Add(most); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in %v: %s", most, what)
		}
	}
}

// inMemory is an API server in memory, with the node.
func inMemory() kubernetes.Interface { return fake.NewClientset(theNode()) }
