package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"weft.dev/weft/test/cluster/image"
)

// Cluster is a running cluster.
type Cluster struct {
	settings settings
	detached bool
	spawner  *spawner
	client   *client
	prober   *client
	order    []*Component // as they are started

	mu     sync.Mutex
	record *record // nil when nothing but processes is to be cleaned up
	close  func(context.Context) error

	ports   func() // lets others have its ports; nil when another process keeps them
	release func() // lets others have the machine's cluster; nil when it was not kept from them
}

// Dir is the folder of everything that the cluster keeps. Close removes it.
func (c *Cluster) Dir() string { return c.settings.Dir }

// Binaries are the programs that it runs, kubectl included.
func (c *Cluster) Binaries() Binaries { return c.settings.Binaries }

// Kubeconfig is the path of the administrator's access.
func (c *Cluster) Kubeconfig() string { return c.settings.kubeconfig("admin") }

// Server is the API server's address: "https://10.96.0.1:443".
func (c *Cluster) Server() string { return c.settings.server() }

// Component is one of the cluster's processes: Etcd, APIServer, and so on. It panics for a name that this cluster has none of.
func (c *Cluster) Component(name string) *Component {
	for _, component := range c.order {
		if component.name == name {
			return component
		}
	}
	panic("this cluster has no component " + name)
}

// Components are the names of the cluster's components in the order in which they were started.
func (c *Cluster) Components() []string {
	names := make([]string, len(c.order))
	for i, component := range c.order {
		names[i] = component.name
	}
	return names
}

// Close ends the cluster and removes everything that it made: processes, containers, mounts, interfaces, control groups,
// files. It returns what could not be removed, and can be called again.
func (c *Cluster) Close(ctx context.Context) error {
	err := c.close(ctx)
	if err != nil {
		return err
	}
	if c.spawner != nil {
		c.spawner.close()
		c.spawner = nil
	}
	if c.ports != nil {
		c.ports()
	}
	if c.release != nil {
		c.release()
	}
	return nil
}

// note writes down the process of a component, so that another process can end it.
func (c *Cluster) note(name string, p process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record == nil {
		return nil
	}
	c.record.Processes[name], c.record.Order = p, c.Components()
	return c.record.save()
}

// Import makes an image from a tar file known to the node. Pods name it with imagePullPolicy Never or IfNotPresent.
func (c *Cluster) Import(ctx context.Context, tar string) error {
	return c.images(ctx, "import", "--snapshotter", "overlayfs", tar)
}

// ImportImage makes an image and imports it.
func (c *Cluster) ImportImage(ctx context.Context, i image.Image) error {
	f, err := os.CreateTemp(c.settings.Dir, "image-*.tar")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = i.Write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return c.Import(ctx, f.Name())
}

// prepare writes what the components read: certificates, tokens, access.
func (c *Cluster) prepare() error {
	s := c.settings
	for _, dir := range []string{"pki", "log"} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return err
		}
	}
	ca, err := newAuthority(s.path("pki"))
	if err != nil {
		return err
	}
	err = errors.Join(
		ca.issue("api", "kube-apiserver", nil, []string{
			loopback, apiAddress, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}),
		ca.issue("api-client", "apiserver-kubelet-client", []string{"system:masters"}, nil),
		ca.issue("local", "local", nil, []string{loopback, "localhost"}),
		ca.issue("kubelet", "system:node:"+NodeName, []string{"system:nodes"}, []string{nodeAddress, NodeName}),
		ca.saveAccounts(),
	)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("tokens.csv"), []byte(s.tokens()), 0o600); err != nil {
		return err
	}
	authority, err := os.ReadFile(s.pki("ca.crt"))
	if err != nil {
		return err
	}
	for _, u := range users {
		text, err := s.kubeconfigFile(u.name, authority)
		if err == nil {
			err = os.WriteFile(s.kubeconfig(u.name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	scheduler, err := s.schedulerFile()
	if err == nil {
		err = os.WriteFile(s.path("scheduler.json"), scheduler, 0o600)
	}
	if err != nil {
		return err
	}
	return c.connect()
}

// connect makes the clients, once the certificates are there.
func (c *Cluster) connect() (err error) {
	if c.client, err = newClient(c.settings); err != nil {
		return err
	}
	c.prober, err = newProber(c.settings)
	return err
}

func (c *Cluster) has(name string) bool {
	return slices.ContainsFunc(c.order, func(o *Component) bool { return o.name == name })
}

// add adds components to the cluster, without starting them.
func (c *Cluster) add(names ...string) {
	for _, name := range names {
		if !c.has(name) {
			c.order = append(c.order, &Component{name: name, cluster: c})
		}
	}
}

// startAll starts components at the same time and waits until all of them serve.
func (c *Cluster) startAll(ctx context.Context, names ...string) error {
	c.add(names...)
	for _, name := range names {
		if err := c.Component(name).launch(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.Component(name).Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endAll kills every component.
func (c *Cluster) endAll(ctx context.Context) error {
	var errs []error
	for _, component := range slices.Backward(c.order) {
		errs = append(errs, component.Kill(ctx))
	}
	return errors.Join(errs...)
}

// newSettings are the settings of a new cluster in a folder. Its ports are kept from others until free is called.
func newSettings(dir string, b Binaries, extra map[string][]string) (s settings, free func(), err error) {
	s = settings{Dir: dir, Binaries: b, Extra: extra, Tokens: map[string]string{}}
	for name := range extra {
		if _, err := s.command(name); err != nil {
			return s, nil, err
		}
	}
	for _, u := range users {
		s.Tokens[u.name] = secret()
	}
	p, free, err := freePorts(8)
	if err != nil {
		return s, nil, err
	}
	s.Ports = ports{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}
	return s, free, nil
}

// abandon ends what was begun of a cluster that does not come up, and says what else went wrong in doing so.
func abandon(ctx context.Context, c *Cluster, err error) error {
	if ctx.Err() != nil {
		err = fmt.Errorf("coming up: %w", ctx.Err()) // whatever it was that noticed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if e := c.Close(ctx); e != nil {
		return fmt.Errorf("%w; and then: %w", err, e)
	}
	return err
}
