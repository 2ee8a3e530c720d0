package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroup is the group, in every hierarchy, below which all Pods are.
const cgroup = "weft-cluster"

const (
	cgroups     = "/sys/fs/cgroup"
	kubeletRoot = "/var/lib/kubelet" // a constant for device plugins and DRA drivers
	cdiFolder   = "/var/run/cdi"
)

// pluginFolders are where distributions put the CNI plugins.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// outside are folders that components make beside the cluster's own, whatever they are told.
var outside = []string{
	kubeletRoot, "/var/lib/cni", "/run/containerd", "/run/cdi", "/run/nri", "/var/log/containers", "/var/log/pods",
	"/usr/libexec/kubernetes", "/opt/containerd", "/etc/cni",
}

// kernelSettings are what the kubelet and the CNI plugins change.
var kernelSettings = []string{
	"net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// Check says, as an Unavailable with every reason, why a cluster with a node cannot come up on this machine.
func Check() error {
	var reasons []string
	if os.Geteuid() != 0 {
		return &Unavailable{[]string{"not root: containers, interfaces and control groups take root"}}
	}
	for program, of := range map[string]string{"runc": "runc", "ip": "iproute2"} {
		if _, err := findProgram(program); err != nil {
			reasons = append(reasons, "no "+program+": install "+of)
		}
	}
	if pluginFolder() == "" {
		reasons = append(reasons,
			"no CNI plugins bridge, host-local and loopback in "+strings.Join(pluginFolders, ", ")+": install containernetworking-plugins")
	}
	reasons = append(reasons, checkGroups(cgroups)...)
	if links, err := net.Interfaces(); err == nil {
		for _, link := range links {
			if addresses, err := link.Addrs(); err == nil && link.Name != apiBridge && link.Name != podBridge {
				reasons = append(reasons, checkAddresses(link.Name, addresses)...)
			}
		}
	}
	if err := checkOverlay(); err != nil {
		reasons = append(reasons, fmt.Sprintf("no overlay file system: %v", err))
	}
	own, err := load(Folder)
	if err != nil {
		return err
	}
	if names, err := os.ReadDir(kubeletRoot); err == nil && len(names) > 0 && own == nil {
		reasons = append(reasons, "a kubelet keeps its state in "+kubeletRoot+" already: there can be one on a machine")
	}
	slices.Sort(reasons)
	if len(reasons) > 0 {
		return &Unavailable{reasons}
	}
	return nil
}

// findProgram looks where components will.
func findProgram(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// pluginFolder is the folder with all CNI plugins that are used; "" when there is none.
func pluginFolder() string {
	for _, dir := range pluginFolders {
		whole := true
		for _, name := range []string{"bridge", "host-local", "loopback"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				whole = false
			}
		}
		if whole {
			return dir
		}
	}
	return ""
}

// checkGroups says what is missing below the folder of control groups, of either version.
func checkGroups(root string) []string {
	if text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		have := strings.Fields(string(text))
		var reasons []string
		for _, name := range []string{"cpu", "cpuset", "memory", "pids"} {
			if !slices.Contains(have, name) {
				reasons = append(reasons, "no control group "+name+" in "+root+"/cgroup.controllers")
			}
		}
		return reasons
	}
	var reasons []string
	for _, name := range []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join(root, name, "tasks")); err != nil {
			reasons = append(reasons, "no control group "+name+": mount it on "+filepath.Join(root, name))
		}
	}
	return reasons
}

// checkAddresses says which addresses of an interface are what the cluster needs. Networks may overlap: the cluster's own are
// the smaller ones, and hide a part of the other for as long as it is up.
func checkAddresses(link string, addresses []net.Addr) []string {
	var reasons []string
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		for _, own := range []string{services, nodeAddress + "/32", pods} {
			if netip.MustParsePrefix(own).Contains(prefix.Addr().Unmap()) {
				reasons = append(reasons, fmt.Sprintf("%s has the address %s: the cluster needs %s", link, prefix.Addr(), own))
			}
		}
	}
	return reasons
}

// checkOverlay mounts one.
func checkOverlay() error {
	dir, err := os.MkdirTemp("", "weft-overlay-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"lower", "upper", "work", "all"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", filepath.Join(dir, "all"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return unix.Unmount(filepath.Join(dir, "all"), unix.MNT_DETACH)
}

// hierarchies are the folders of control groups: one in version 2, one for each controller in version 1.
func hierarchies() ([]string, error) {
	mounts, err := mounts()
	if err != nil {
		return nil, err
	}
	var list []string
	for _, m := range mounts {
		if (m.kind == "cgroup" || m.kind == "cgroup2") && (m.at == cgroups || filepath.Dir(m.at) == cgroups) {
			list = append(list, m.at)
		}
	}
	return list, nil
}

// makeGroups makes the group of all Pods, which the kubelet wants to find.
func makeGroups() error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range list {
		if err := os.MkdirAll(filepath.Join(dir, cgroup), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mount is a line of the table of mounts.
type mount struct{ at, kind string }

// mounts are the mounts that this process sees, in the order in which they were made.
func mounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

// parseMounts reads /proc/PID/mountinfo: the fifth field is where, and after a lone hyphen is what.
func parseMounts(text string) []mount {
	var list []mount
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		before, after, found := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if found && len(fields) > 4 && len(kind) > 0 {
			list = append(list, mount{unescape.Replace(fields[4]), kind[0]})
		}
	}
	return list
}

// makeLinks makes the bridge that has the addresses of the API server and of the node. It has no ports: what is sent there
// stays on this machine.
func makeLinks(ctx context.Context) error {
	for _, arguments := range [][]string{
		{"link", "add", apiBridge, "type", "bridge"},
		{"address", "add", apiAddress + "/32", "dev", apiBridge},
		{"address", "add", nodeAddress + "/32", "dev", apiBridge},
		{"link", "set", apiBridge, "up"},
	} {
		if err := ip(ctx, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// ip runs the program of that name. What the kernel cannot do makes a cluster unavailable.
func ip(ctx context.Context, arguments ...string) error {
	program, err := findProgram("ip")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, arguments...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := string(bytes.TrimSpace(out))
	for _, sign := range []string{"Unknown device type", "Operation not supported", "Operation not permitted"} {
		if strings.Contains(text, sign) {
			return &Unavailable{[]string{fmt.Sprintf("ip %s: %s", strings.Join(arguments, " "), text)}}
		}
	}
	return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, text)
}

// kernelNow are the kernel's settings that will change, by path; those that this kernel lacks are left out.
func kernelNow() map[string]string {
	values := map[string]string{}
	for _, name := range kernelSettings {
		path := "/proc/sys/" + name
		if text, err := os.ReadFile(path); err == nil {
			values[path] = strings.TrimSpace(string(text))
		}
	}
	return values
}

// absentNow are the folders outside of the cluster's own that are not there.
func absentNow() []string {
	var list []string
	for _, dir := range outside {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			list = append(list, dir)
		}
	}
	return list
}

// gone makes an error of nothing when it says that something is not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
