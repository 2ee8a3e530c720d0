package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"weft.dev/weft/internal/kube"
)

// What kwok knows its nodes by.
const (
	fakeKey    = "kwok.x-k8s.io/node"
	fakeValue  = "fake"
	fakePrefix = "kwok-" // of their names
)

// What each GPU of the nodes of Nodes is.
const (
	GPUModel  = "NVIDIA H100 80GB HBM3"
	GPUMemory = "80Gi"
)

// FakeNode is the name of one of the nodes that Nodes makes, counted from 0.
func FakeNode(i int) string { return fmt.Sprintf(fakePrefix+"%04d", i) }

// FakeUUID is the uuid of a GPU of one of those nodes.
func FakeUUID(node, gpu int) string { return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", node, gpu) }

// Nodes makes n nodes that exist in the API only, FakeNode(0) and so on, each with that many GPUs in a ResourceSlice as
// weft's node agent publishes it. kwok keeps them ready and has their Pods run. It returns when all are ready.
func (c *Cluster) Nodes(ctx context.Context, n, gpus int) error {
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	if err := inParallel(n, func(i int) error { return c.node(ctx, i, gpus) }); err != nil {
		return err
	}
	return pause(ctx, settle)
}

// startKwok starts kwok, unless it runs.
func (c *Cluster) startKwok(ctx context.Context) error {
	s := c.settings
	c.add(Kwok)
	if c.Component(Kwok).Running() {
		return nil
	}
	text, err := os.ReadFile(s.Binaries.Path(stages))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("kwok.yaml"), s.kwokFile(text), 0o600); err != nil {
		return err
	}
	return c.Component(Kwok).Start(ctx)
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

// freeLeases takes the nodes from a kwok that was killed, and returns their names: the next one has another identity, and
// would wait for the end of their leases.
func (c *Cluster) freeLeases(ctx context.Context) ([]string, error) {
	leases, err := c.names(ctx, leasesPath)
	if err != nil {
		return nil, err
	}
	err = inParallel(len(leases), func(i int) error {
		err := c.client.call(ctx, http.MethodDelete, leasesPath+"/"+leases[i], nil, nil)
		var r *refusal
		if errors.As(err, &r) && r.code == http.StatusNotFound { // it went with its node
			return nil
		}
		return err
	})
	return leases, err
}

// waitLeases waits until kwok holds its nodes: it overlooks a Pod that comes to a node before.
func (c *Cluster) waitLeases(ctx context.Context, free []string) error {
	bounded, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		held, err := c.names(bounded, leasesPath)
		if err != nil {
			return err
		}
		nodes, err := c.names(bounded, "/api/v1/nodes")
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(nodes, func(name string) bool { return !slices.Contains(free, name) || slices.Contains(held, name) })
		if len(left) == 0 {
			return pause(ctx, settle)
		}
		if err := pause(bounded, pollNodes); err != nil {
			return fmt.Errorf("kwok does not take %d nodes, the first is %s: %w", len(left), left[0], err)
		}
	}
}

// names are the names of the objects of kwok's nodes in a list.
func (c *Cluster) names(ctx context.Context, path string) ([]string, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := c.client.call(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		if strings.HasPrefix(item.Metadata.Name, fakePrefix) {
			names = append(names, item.Metadata.Name)
		}
	}
	return names, nil
}

// node makes one node, waits until it is ready, and publishes its GPUs.
func (c *Cluster) node(ctx context.Context, i, gpus int) error {
	name := FakeNode(i)
	resources := object{"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti"}
	var made struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err := c.client.create(ctx, "/api/v1/nodes", object{
		"metadata": object{
			"name": name, "annotations": object{fakeKey: fakeValue},
			"labels": object{"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
		},
		"status": object{"capacity": resources, "allocatable": resources},
	}, &made)
	if err != nil {
		return err
	}
	if err := c.waitNode(ctx, name); err != nil {
		return err
	}
	if !c.has(ControllerManager) { // who else takes off what every new node is tainted with
		if err := c.client.call(ctx, http.MethodPatch, "/api/v1/nodes/"+name, object{"spec": object{"taints": nil}}, nil); err != nil {
			return err
		}
	}
	if gpus == 0 || made.Metadata.UID == "" { // the second: it was there already, with its GPUs
		return nil
	}
	return c.client.create(ctx, "/apis/resource.k8s.io/v1/resourceslices", slice(i, gpus, made.Metadata.UID), nil)
}

func (c *Cluster) waitNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := c.nodeReady(ctx, name)
		if err == nil {
			return nil
		}
		if waited := pause(ctx, pollNodes); waited != nil {
			return fmt.Errorf("%w: %w", waited, err)
		}
	}
}

// slice is the ResourceSlice of a node, which goes with the node.
func slice(node, gpus int, uid string) object {
	name := FakeNode(node)
	devices := make([]object, gpus)
	for g := range devices {
		devices[g] = object{
			"name": fmt.Sprintf("gpu-%d", g), "allowMultipleAllocations": true,
			"attributes": object{
				kube.AttributeUUID: object{"string": FakeUUID(node, g)}, kube.AttributeModel: object{"string": GPUModel},
				kube.AttributeIndex: object{"int": g}, kube.AttributeVersion: object{"version": "580.0.0"},
			},
			"capacity": object{
				kube.CapacityMemory: capacity(GPUMemory, "1Mi"), kube.CapacityShare: capacity(fmt.Sprint(kube.WholeShare), "1"),
			},
		}
	}
	return object{
		"metadata": object{
			"name":            name + "-gpus",
			"ownerReferences": []object{{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}},
		},
		"spec": object{
			"driver": kube.Driver, "nodeName": name, "devices": devices,
			"pool": object{"name": name, "generation": 1, "resourceSliceCount": 1},
		},
	}
}

// capacity is one of which a claim gets all when it does not ask for less.
func capacity(whole, step string) object {
	return object{
		"value":         whole,
		"requestPolicy": object{"default": whole, "validRange": object{"min": step, "step": step, "max": whole}},
	}
}

// inParallel calls f for 0 to n-1, several at a time, and returns all errors.
func inParallel(n int, f func(int) error) error {
	errs := make([]error, n)
	var workers sync.WaitGroup
	next := make(chan int)
	for range min(n, 16) {
		workers.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}
