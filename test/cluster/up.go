package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Folder is where a cluster with a node keeps everything, unless Options say otherwise. Names of sockets must stay short.
const Folder = "/var/lib/weft-cluster"

// lockFile is held while a cluster comes up or is removed. It stays: removing a lock file while others wait for it breaks it.
const lockFile = "/run/weft-cluster.lock"

// ErrUp says that this machine has a cluster already.
var ErrUp = errors.New("a cluster is up already")

// Options of a cluster with a node.
type Options struct {
	Detach   bool                // it outlives this process, until somebody calls Down
	Kwok     bool                // kwok runs from the start, not from the first call of Nodes
	Wait     time.Duration       // how long to wait for another cluster on this machine to go away
	Extra    map[string][]string // further arguments by component
	Progress func(string)        // is told what happens; nil: nobody
}

// Up brings up the one real cluster of this machine: control plane, one node, network. It removes first what is left of one
// whose owner was killed. When it returns, the node is ready and knows PauseImage and ProbeImage. The error is an Unavailable
// where the machine cannot have a cluster, and ErrUp when it has one.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if os.Geteuid() != 0 {
		return nil, Check()
	}
	binaries, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	release, err := Turn(ctx, o.Wait)
	if err != nil {
		return nil, err
	}
	c, err := upInTurn(ctx, binaries, o)
	if err != nil || o.Detach {
		release()
		return c, err
	}
	c.release = release
	return c, nil
}

func upInTurn(ctx context.Context, b Binaries, o Options) (*Cluster, error) {
	unlock, err := lockFree(ctx, o)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := Check(); err != nil {
		return nil, err
	}
	c, err := begin(b, o)
	if err != nil {
		return nil, err
	}
	if err := c.up(ctx, o); err != nil {
		return nil, abandon(ctx, c, err)
	}
	c.close = c.down
	return c, nil
}

// lockFree locks, once there is no cluster: it removes a dead one, and waits for a live one as long as the options say.
func lockFree(ctx context.Context, o Options) (unlock func(), err error) {
	deadline := time.Now().Add(o.Wait)
	for first := true; ; first = false {
		unlock, err := lock(ctx, lockFile, func() { o.Progress("another cluster comes up or goes down: waiting for it") })
		if err != nil {
			return nil, err
		}
		r, err := load(Folder)
		switch {
		case err != nil:
			unlock()
			return nil, err
		case r == nil:
			return unlock, nil
		case !r.live():
			o.Progress("removing what is left of a cluster that was not ended")
			if err := clean(ctx, r); err != nil {
				unlock()
				return nil, fmt.Errorf("what is left of an earlier cluster cannot be removed: %w", err)
			}
			return unlock, nil
		}
		unlock()
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w, brought up by process %d: `make cluster-down` ends it", ErrUp, r.Owner.PID)
		}
		if first {
			o.Progress(fmt.Sprintf("a cluster of process %d is up: waiting until it goes away", r.Owner.PID))
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// begin writes down that there is a cluster before anything of it is made.
func begin(b Binaries, o Options) (c *Cluster, err error) {
	s, free, err := newSettings(Folder, b, o.Extra)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	s.Address, s.Ports.API, s.Node = apiAddress, 443, true
	owner, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := unmounted(s.Dir); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(s.Dir), os.MkdirAll(s.Dir, 0o755)); err != nil { // one without a record is half removed
		return nil, err
	}
	r := &record{
		ID: secret(), Boot: boot(), Owner: owner, Detached: o.Detach, Settings: s, Processes: map[string]process{},
		Kernel: kernelNow(), Absent: absentNow(),
	}
	c = &Cluster{settings: s, detached: o.Detach, spawner: newSpawner(), record: r, ports: free}
	c.close = func(ctx context.Context) error { return clean(ctx, r) } // under the lock of Up
	return c, r.save()
}

func (c *Cluster) up(ctx context.Context, o Options) error {
	o.Progress("interfaces, control groups, certificates")
	if err := errors.Join(makeLinks(ctx), makeGroups(), c.prepare(), c.prepareNode()); err != nil {
		return err
	}
	o.Progress("control plane")
	if err := c.startAll(ctx, Etcd, APIServer, Containerd); err != nil {
		return err
	}
	if err := c.ownImages(ctx); err != nil {
		return err
	}
	o.Progress("node")
	if err := c.startAll(ctx, ControllerManager, Scheduler, Kubelet); err != nil {
		return err
	}
	if o.Kwok {
		if err := c.startKwok(ctx); err != nil {
			return err
		}
	}
	if err := c.waitFor(ctx, "/api/v1/namespaces/default/serviceaccounts/default"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.Complete = true
	return c.record.save()
}

// prepareNode writes what containerd and the kubelet read.
func (c *Cluster) prepareNode() error {
	s := c.settings
	for _, dir := range []string{"cni", "podlogs", "volumeplugins", "kubelet"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	kubelet, err := s.kubeletFile()
	if err != nil {
		return err
	}
	network, err := s.networkFile()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.path("kubelet.json"), kubelet, 0o600),
		os.WriteFile(s.path("containerd.toml"), s.containerdFile(pluginFolder()), 0o600),
		os.WriteFile(s.path("cni", "10-weft.conflist"), network, 0o600),
	)
}

// waitFor waits until the API has an object.
func (c *Cluster) waitFor(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := c.client.call(ctx, "GET", path, nil, nil)
		if err == nil {
			return nil
		}
		if waited := pause(ctx, 50*time.Millisecond); waited != nil {
			return err
		}
	}
}

// images runs ctr's commands on images.
func (c *Cluster) images(ctx context.Context, arguments ...string) error {
	all := append([]string{"--address", c.settings.socket(), "--namespace", "k8s.io", "images"}, arguments...)
	out, err := exec.CommandContext(ctx, c.settings.Binaries.Path("ctr"), all...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr images %s: %w: %s", arguments[0], err, tail(out, 5))
	}
	return nil
}

// down is Close of a cluster with a node. When somebody else has ended it, and perhaps brought up another one, nothing is left
// to do.
func (c *Cluster) down(ctx context.Context) error {
	unlock, err := lock(ctx, lockFile, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	r, err := load(Folder)
	if err != nil || r == nil || r.ID != c.record.ID {
		return err
	}
	return clean(ctx, r)
}

// Down ends the cluster of this machine, whoever brought it up, and removes everything of it. It says whether there was one.
func Down(ctx context.Context) (was bool, err error) {
	if os.Geteuid() != 0 {
		return false, Check()
	}
	unlock, err := lock(ctx, lockFile, func() {})
	if err != nil {
		return false, err
	}
	defer unlock()
	r, err := load(Folder)
	if err != nil || r == nil {
		return false, err
	}
	return true, clean(ctx, r)
}

// Open is the cluster that is up on this machine, to be looked at and used. The error is fs.ErrNotExist when there is none.
func Open() (*Cluster, error) {
	r, err := load(Folder)
	if err != nil {
		return nil, err
	}
	if r == nil || !r.Complete || !r.live() {
		return nil, fmt.Errorf("no cluster is up (%s): %w", filepath.Base(Folder), fs.ErrNotExist)
	}
	c := &Cluster{settings: r.Settings, detached: true, spawner: newSpawner(), record: r}
	c.close = c.down
	c.add(r.Order...)
	for _, component := range c.order {
		component.process = r.Processes[component.name]
	}
	return c, c.connect()
}
