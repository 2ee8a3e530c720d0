// Package driver serves the GPUs of a node to Kubernetes: a DRA driver that publishes them, prepares the claims of containers and
// watches over their health. What it does with a GPU it asks of the node's agent.
package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/checkpoint"
)

// Options are what a driver is started with.
type Options struct {
	Node      string       // its name
	Kubelet   string       // the kubelet's folder; DefaultKubelet for ""
	CDI       string       // where the container runtime looks for CDI files; DefaultCDI for ""
	Libraries string       // folder of libweft.so, and of emu/ for emulated GPUs
	Emulated  string       // socket of the emulated GPUs; "" for real ones
	GPUs      []device.GPU // of the agent, in its order
	Version   string       // of the GPUs' driver; "" where it is not known
	Client    kubernetes.Interface
	Log       *slog.Logger

	Patience time.Duration      // for memory that containers hold which have not ended; 30 s for 0
	Health   time.Duration      // between looks at the GPUs; 1 s for 0
	Look     time.Duration      // between looks at the node and at claims that may be gone; 30 s for 0
	Trial    time.Duration      // between trials of GPUs with an XID; 30 s for 0
	Window   time.Duration      // the least that a report on a worker is of; 20 s for 0
	Faults   func(point string) // told at each point where a crash would be awkward; nil for none. For tests
}

// Where nothing else is said: folders, and the least that a report is of.
const (
	DefaultKubelet = "/var/lib/kubelet"
	DefaultCDI     = "/var/run/cdi"
	DefaultWindow  = 20 * time.Second
)

// Environment is what the processes of containers need to see emulated GPUs, for the agent to hand out.
func Environment(socket string) map[string]string {
	return map[string]string{"WEFT_EMU_SOCKET": socket, "LD_LIBRARY_PATH": inEmulated}
}

// Driver is a running driver.
type Driver struct {
	o       Options
	log     *slog.Logger
	claims  *claims
	sweeper sweeper
	tell    *teller
	helper  *kubeletplugin.Helper

	publishing sync.Mutex // held while the slices are set: the newest state is set last
	slices     *resourceslice.Controller

	mu      sync.Mutex
	faults  []Fault       // by GPU
	looked  bool          // they are known
	changed chan struct{} // closed, and replaced, when they change
	serving verdict       // whether the node is weft's to serve
	dropped *droppedError // what the API server did not take of the slices

	had []holder // of lookAtGPUs: who had GPUs when it last looked

	stop   context.CancelFunc
	ended  <-chan struct{} // closed by stop
	work   sync.WaitGroup
	failed chan error
}

// Open starts a driver over an agent: it makes true what the checkpoint of the last one says, registers with the kubelet and
// publishes the GPUs. It serves until Close, also beyond the end of ctx.
func Open(ctx context.Context, a *agent.Agent, o Options) (*Driver, error) {
	o.Kubelet, o.CDI = cmp.Or(o.Kubelet, DefaultKubelet), cmp.Or(o.CDI, DefaultCDI)
	o.Patience, o.Health, o.Look = cmp.Or(o.Patience, 30*time.Second), cmp.Or(o.Health, time.Second), cmp.Or(o.Look, 30*time.Second)
	o.Window = max(cmp.Or(o.Window, DefaultWindow), looks*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Faults == nil {
		o.Faults = func(string) {}
	}
	d := &Driver{o: o, log: o.Log, faults: make([]Fault, len(o.GPUs)), changed: make(chan struct{}), failed: make(chan error, 1)}
	if err := d.open(ctx, a); err != nil {
		return nil, err
	}
	ctx, d.stop = context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.FromSlogHandler(o.Log.Handler())))
	d.ended = ctx.Done()
	d.tell = newTeller(ctx, o.Client, o.Node)
	d.judge(ctx)
	if err := d.start(ctx); err != nil {
		d.stop()
		d.tell.close()
		return nil, err
	}
	d.work.Go(func() { every(ctx, o.Health, d.lookAtGPUs) })
	d.work.Go(func() {
		d.begin(ctx)
		every(ctx, o.Look, d.lookAtNode)
	})
	d.work.Go(func() { every(ctx, cmp.Or(o.Trial, 30*time.Second), d.tryGPUs) })
	d.work.Go(func() { every(ctx, o.Window/looks, newReporter(&o, d.claims, &d.work).look) })
	d.work.Go(func() { every(ctx, o.Look, func(ctx context.Context) { d.sweeper.sweep(ctx, d.trouble) }) })
	return d, nil
}

// open makes what the driver works with, and restores it.
func (d *Driver) open(ctx context.Context, a asker) error {
	if err := os.MkdirAll(d.dir(), 0o750); err != nil {
		return fmt.Errorf("folder of the driver: %w", err)
	}
	k, err := install(d.o.Libraries, filepath.Join(d.dir(), "lib"), d.o.Emulated != "")
	if err != nil {
		return err
	}
	k.socket = d.o.Emulated
	k.toolkit = func(uuid string) bool { return cdi.Offers([]string{"/etc/cdi", d.o.CDI}, nvidiaKind, uuid) }
	store, err := checkpoint.Open(filepath.Join(d.dir(), "checkpoint.json"))
	if err != nil {
		return err
	}
	d.claims = &claims{node: d.o.Node, gpus: d.o.GPUs, agent: a, folder: cdi.Folder(d.o.CDI), store: store, kit: k, patience: d.o.Patience, faults: d.o.Faults}
	d.sweeper = sweeper{claims: d.claims, exists: d.exists}
	if err := d.claims.restore(ctx, d.trouble); err != nil {
		return fmt.Errorf("restore what was prepared: %w", err)
	}
	return k.removeOthers()
}

// dir is the driver's folder, which outlives the machine's uptime.
func (d *Driver) dir() string { return filepath.Join(d.o.Kubelet, "plugins", kube.Driver) }

// start registers with the kubelet.
func (d *Driver) start(ctx context.Context) error {
	registry := filepath.Join(d.o.Kubelet, "plugins_registry")
	if err := os.MkdirAll(registry, 0o750); err != nil {
		return fmt.Errorf("the kubelet's folder: %w", err)
	}
	helper, err := kubeletplugin.Start(ctx, plugin{d: d}, kubeletplugin.DriverName(kube.Driver), kubeletplugin.NodeName(d.o.Node), kubeletplugin.KubeClient(d.o.Client),
		kubeletplugin.PluginDataDirectoryPath(d.dir()), kubeletplugin.RegistrarDirectoryPath(registry),
		kubeletplugin.Serialize(false)) // a claim that waits for memory would keep out the one that frees it
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	d.helper = helper
	return nil
}

// Ready says why the kubelet does not ask yet; nil when it does.
func (d *Driver) Ready() error {
	switch s := d.helper.RegistrationStatus(); {
	case s == nil:
		return errors.New("the kubelet has not registered the driver yet")
	case !s.PluginRegistered:
		return fmt.Errorf("the kubelet does not register the driver: %s", s.Error)
	}
	return nil
}

// Failed is told once when the driver cannot go on.
func (d *Driver) Failed() <-chan error { return d.failed }

// Close ends the driver and waits for its goroutines. Claims stay prepared, and devices published.
func (d *Driver) Close() {
	d.stop()
	d.helper.Stop()
	d.work.Wait()
	d.slices.Stop() // nil has nothing to stop
	d.tell.close()
}

// begin publishes once it is known whether the node is weft's to serve.
func (d *Driver) begin(ctx context.Context) {
	d.readGPUs(ctx)
	for known := d.judged(); !known; known = d.judged() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
			d.judge(ctx)
		}
	}
	d.publish(ctx)
}

// exists says whether the API server has the claim of an entry still.
func (d *Driver) exists(ctx context.Context, e *checkpoint.Entry) (bool, error) {
	c, err := d.o.Client.ResourceV1().ResourceClaims(e.Portion.Claim.Namespace).Get(ctx, e.Portion.Claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the claim: %w", err)
	}
	return string(c.UID) == e.Portion.Claim.UID, nil
}

// trouble logs what is wrong with a claim.
func (d *Driver) trouble(claim string, err error) { d.log.Error(err.Error(), "claim", claim) }

// every calls f at once a while, until ctx ends.
func every(ctx context.Context, period time.Duration, f func(context.Context)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}

// plugin is what the kubelet asks, through the helper.
type plugin struct {
	drahealth.UnimplementedDRAResourceHealthServer
	d *Driver
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. Claims are prepared beside each other: one may wait for memory.
func (p plugin) PrepareResourceClaims(ctx context.Context, list []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(list))
	var wait sync.WaitGroup
	for i, c := range list {
		wait.Go(func() { results[i] = p.d.prepare(ctx, c) })
	}
	wait.Wait()
	answer := map[types.UID]kubeletplugin.PrepareResult{}
	for i, c := range list {
		answer[c.UID] = results[i]
	}
	return answer, nil
}

func (d *Driver) prepare(ctx context.Context, c *resourcev1.ResourceClaim) kubeletplugin.PrepareResult {
	p, err := d.claims.prepare(ctx, c, d.allowed)
	if err != nil {
		err = fmt.Errorf("claim %s/%s on node %s: %w", c.Namespace, c.Name, d.o.Node, err)
		d.trouble(string(c.UID), err)
		return kubeletplugin.PrepareResult{Err: err}
	}
	var r kubeletplugin.PrepareResult
	for _, own := range p.Devices {
		out := kubeletplugin.Device{Requests: []string{own.Request}, PoolName: own.Pool, DeviceName: own.Name, CDIDeviceIDs: d.claims.kit.ids(p, own)}
		if own.ShareID != "" {
			id := types.UID(own.ShareID)
			out.ShareID = &id
		}
		r.Devices = append(r.Devices, out)
	}
	return r
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p plugin) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answer := map[types.UID]error{}
	for _, c := range list {
		err := p.d.claims.unprepare(ctx, string(c.UID))
		if err != nil {
			err = fmt.Errorf("claim %s/%s on node %s: %w", c.Namespace, c.Name, p.d.o.Node, err)
			p.d.trouble(string(c.UID), err)
		}
		answer[c.UID] = err
	}
	return answer, nil
}

// HandleError implements kubeletplugin.DRAPlugin. What the helper cannot mend ends the driver.
func (p plugin) HandleError(_ context.Context, err error, msg string) {
	p.d.log.Error(msg, "fault", err)
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		return
	}
	select {
	case p.d.failed <- fmt.Errorf("%s: %w", msg, err):
	default: // it was told of another
	}
}
