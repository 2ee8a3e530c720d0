package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// CrashNode ends the node as a power cut does. The kubelet, containerd, shims and every process of a container are killed together, and
// what a reboot empties is emptied: mounts, network namespaces, the bridge of Pods, control groups, the run-time state of containerd and
// runc, and what is in the folders named, such as those below /run. What is on the disk stays: images and metadata of containers, and all
// of /var/lib/kubelet, stale sockets included. The control plane goes on, as that of another machine would. BootNode starts the node again.
//
// The kernel stays the same one: its boot_id does not change, nor are its interfaces and process numbers those of a new start.
func (c *Cluster) CrashNode(ctx context.Context, volatile ...string) error {
	if err := c.killNode(ctx); err != nil {
		return fmt.Errorf("crash of the node: %w", err)
	}
	s := c.settings
	sockets := shimSockets(s.Dir)
	if err := unmount(s.Dir, kubeletRoot); err != nil {
		return err // what is mounted must not be removed with the folder that it is mounted in
	}
	errs := []error{removeLink(ctx, podBridge), removeGroups(ctx), gone(os.Remove(s.socket()))}
	for _, socket := range sockets {
		errs = append(errs, gone(os.Remove(socket)))
	}
	for _, dir := range append([]string{s.path("containerd", "state"), s.path("runc")}, volatile...) {
		errs = append(errs, empty(dir))
	}
	return errors.Join(errs...)
}

// BootNode starts a node that has crashed, and waits until its kubelet serves. Its Pods come back after that.
func (c *Cluster) BootNode(ctx context.Context) error {
	if err := makeGroups(); err != nil {
		return err
	}
	for _, name := range []string{Containerd, Kubelet} {
		if err := c.Component(name).Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killNode kills all processes of the node at once, and those that they start meanwhile.
func (c *Cluster) killNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*endWithin)
	defer cancel()
	for {
		left := c.ofNode()
		if len(left) == 0 {
			break
		}
		for _, p := range left {
			if err := p.signal(syscall.SIGKILL); err != nil {
				return err
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d processes do not end, the first is %d: %w", len(left), left[0].PID, err)
		}
	}
	return errors.Join(c.Component(Kubelet).Kill(ctx), c.Component(Containerd).Kill(ctx)) // they have ended: it waits for that to be noted
}

// ofNode are the processes of the cluster that run and are not of its control plane.
func (c *Cluster) ofNode() []process {
	c.mu.Lock()
	r := *c.record
	r.Processes = maps.Clone(r.Processes)
	c.mu.Unlock()
	var plane []process
	for name, p := range r.Processes {
		if name != Kubelet && name != Containerd {
			plane = append(plane, p)
		}
	}
	return slices.DeleteFunc(remaining(&r), func(p process) bool { return slices.Contains(plane, p) })
}

// empty removes what is in a folder, which may not be there.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	errs := []error{gone(err)}
	for _, entry := range list {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return errors.Join(errs...)
}
