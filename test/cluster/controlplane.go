package cluster

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"
)

// ControlPlane says what is to run beside etcd and the API server.
type ControlPlane struct {
	Scheduler         bool
	ControllerManager bool
	Kwok              bool                // nodes by Nodes
	Extra             map[string][]string // further arguments by component
}

// UpControlPlane brings up a control plane without a real node, on ports of 127.0.0.1 that nothing else uses. Several may run
// at the same time, and it takes no rights. It ends with this process if Close was not called.
func UpControlPlane(ctx context.Context, o ControlPlane) (*Cluster, error) {
	binaries, err := Find(ctx, o.programs()...)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weft-api-")
	if err != nil {
		return nil, err
	}
	s, free, err := newSettings(dir, binaries, o.Extra)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.Address = loopback
	c := &Cluster{settings: s, spawner: newSpawner(), ports: free}
	c.close = func(ctx context.Context) error {
		if err := c.endAll(ctx); err != nil {
			return err
		}
		return os.RemoveAll(dir)
	}
	if err := c.upControlPlane(ctx, o); err != nil {
		return nil, abandon(ctx, c, err)
	}
	return c, nil
}

// programs are the programs that it takes.
func (o ControlPlane) programs() []string {
	list := []string{"etcd", "kube-apiserver"}
	if o.Scheduler {
		list = append(list, "kube-scheduler")
	}
	if o.ControllerManager {
		list = append(list, "kube-controller-manager")
	}
	if o.Kwok {
		list = append(list, "kwok", stages)
	}
	return list
}

func (c *Cluster) upControlPlane(ctx context.Context, o ControlPlane) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.startAll(ctx, Etcd, APIServer); err != nil {
		return err
	}
	if !o.ControllerManager { // who else makes the account that every Pod has
		account := object{"metadata": object{"name": "default"}}
		if err := c.createWhenServed(ctx, "/api/v1/namespaces/default/serviceaccounts", account); err != nil {
			return err
		}
	}
	var rest []string
	if o.ControllerManager {
		rest = append(rest, ControllerManager)
	}
	if o.Scheduler {
		rest = append(rest, Scheduler)
	}
	if err := c.startAll(ctx, rest...); err != nil {
		return err
	}
	if o.Kwok {
		return c.startKwok(ctx)
	}
	return nil
}

// createWhenServed creates an object in a namespace that the API server is about to make.
func (c *Cluster) createWhenServed(ctx context.Context, path string, o object) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := c.client.create(ctx, path, o, nil)
		var r *refusal
		if !errors.As(err, &r) || r.code != http.StatusNotFound {
			return err
		}
		if waited := pause(ctx, 50*time.Millisecond); waited != nil {
			return err
		}
	}
}
