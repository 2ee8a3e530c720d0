package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clean ends what is left of a cluster with a node, whoever brought it up, and removes everything it made. The record goes
// last, so that what did not succeed is tried again by the next one who calls.
func clean(ctx context.Context, r *record) error {
	if err := endProcesses(ctx, r); err != nil {
		return err // what is in use cannot be removed
	}
	if err := unmount(r.Settings.Dir, kubeletRoot); err != nil {
		return err // what is mounted is somebody's, and must not be removed with the folder that it is mounted in
	}
	sockets := shimSockets(r.Settings.Dir)
	errs := []error{removeLinks(ctx), removeGroups(ctx)}
	if r.Boot == boot() {
		errs = append(errs, restoreKernel(r.Kernel))
	}
	for _, socket := range sockets {
		errs = append(errs, gone(os.Remove(socket)))
	}
	errs = append(errs, removeOutside(r))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(r.Settings.Dir)
}

// endProcesses kills the kubelet first, which would start containers again, and then what was written down, every process of
// a container, and every process that has the cluster's mark.
func endProcesses(ctx context.Context, r *record) error {
	if r.Boot == boot() {
		if err := r.Processes[Kubelet].signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		left := remaining(r)
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			if err := p.signal(syscall.SIGKILL); err != nil {
				return err
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d processes of the cluster do not end, the first is %d: %w", len(left), left[0].PID, err)
		}
	}
}

// remaining are the processes that run of a cluster. A container's process may be in any hierarchy's group.
func remaining(r *record) []process {
	list := marked(r.Settings.Dir)
	if r.Boot == boot() {
		for _, p := range r.Processes {
			if p.alive() {
				list = append(list, p)
			}
		}
	}
	dirs, err := hierarchies()
	if err != nil {
		return list
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(filepath.Join(dir, cgroup), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				list = append(list, members(path)...)
			}
			return nil // groups go while they are read
		})
	}
	return list
}

// members are the processes in a control group.
func members(path string) []process {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var list []process
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		if p, err := identify(pid); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// unmount unmounts everything on and below some folders, the last first.
func unmount(dirs ...string) error {
	for try := 0; ; try++ {
		all, err := mounts()
		if err != nil {
			return err
		}
		var left []string
		for _, m := range slices.Backward(all) {
			for _, dir := range dirs {
				if m.at == dir || strings.HasPrefix(m.at, dir+"/") {
					left = append(left, m.at)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		var errs []error
		for _, at := range left {
			if err := gone(unix.Unmount(at, unix.MNT_DETACH)); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", at, err))
			}
		}
		if try == 10 {
			return fmt.Errorf("%d mounts stay, the first is %s: %w", len(left), left[0], errors.Join(errs...))
		}
	}
}

// removeLinks removes the bridges. The other ends of what is on them went with the containers.
func removeLinks(ctx context.Context) error {
	return errors.Join(removeLink(ctx, podBridge), removeLink(ctx, apiBridge))
}

// removeLink removes an interface, which may not be there.
func removeLink(ctx context.Context, name string) error {
	if _, err := os.Stat("/sys/class/net/" + name); err != nil {
		return gone(err)
	}
	return ip(ctx, "link", "delete", name)
}

// removeGroups removes the control groups, the inner first. The kernel needs a moment after the last process.
func removeGroups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		for {
			err := removeTree(filepath.Join(dir, cgroup))
			if err == nil {
				break
			}
			if pause(ctx, 50*time.Millisecond) != nil {
				return err
			}
		}
	}
	return nil
}

// removeTree removes a folder of folders. The files in a control group are not files and go with it.
func removeTree(root string) error {
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			list = append(list, path)
		}
		return gone(err)
	})
	for _, path := range slices.Backward(list) {
		if err := gone(os.Remove(path)); err != nil {
			return err
		}
	}
	return err
}

func restoreKernel(values map[string]string) error {
	var errs []error
	for path, value := range values {
		errs = append(errs, os.WriteFile(path, []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// shimSockets are the sockets of containers' shims, which are outside of the cluster's folder. Each shim leaves its address.
func shimSockets(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "bootstrap.json"))
	var list []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		var shim struct {
			Address string `json:"address"`
		}
		if json.Unmarshal(text, &shim) != nil {
			continue
		}
		if path, found := strings.CutPrefix(shim.Address, "unix://"); found && filepath.Dir(path) == "/run/containerd/s" && filepath.Clean(path) == path {
			list = append(list, path)
		}
	}
	return list
}

// removeOutside removes the folders that were not there before, and from those that were what bears the cluster's name.
func removeOutside(r *record) error {
	var errs []error
	for _, dir := range outside {
		if err := unmounted(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.Contains(r.Absent, dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	names, _ := filepath.Glob(kubeletRoot + "/*") // it was empty when the cluster came up
	for _, pattern := range []string{cdiFolder + "/*weft*", "/var/lib/cni/results/" + network + "-*"} {
		more, _ := filepath.Glob(pattern)
		names = append(names, more...)
	}
	links, _ := filepath.Glob("/var/log/containers/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, r.Settings.Dir+"/") {
			names = append(names, link)
		}
	}
	for _, name := range names {
		errs = append(errs, os.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// unmounted is an error when something is mounted on or below a folder.
func unmounted(dir string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.at == dir || strings.HasPrefix(m.at, dir+"/") {
			return fmt.Errorf("%s stays, since something is mounted on %s", dir, m.at)
		}
	}
	return nil
}
