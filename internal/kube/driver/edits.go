package driver

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/portion"
)

// Where containers see what is mounted into them.
const (
	inLibrary  = "/opt/weft/libweft.so"
	inPreload  = "/etc/ld.so.preload" // read by the loader of glibc alone: programs of another C library run without weft
	inEmulated = "/opt/weft/emu"
)

// kit is what the driver gives containers: files of the node, and which device of NVIDIA's toolkit describes a GPU.
type kit struct {
	library  string // libweft.so
	preload  string // a file that names it, as containers see it
	emulated string // folder of the emulated driver; "" on real GPUs
	socket   string // of the emulated GPUs
	toolkit  func(uuid string) bool
}

// nvidiaKind is the kind of the devices that the NVIDIA container toolkit describes. They are named by index and by UUID.
const nvidiaKind = "nvidia.com/gpu"

// spec is what the containers of a claim get. folder is that of its allocation's socket, and env what that asks for; a native
// claim has neither.
//
// A container of a worker has all GPUs of its claim. The scheduler makes one claim for all containers of a Pod that ask for
// nvidia.com/gpu, with a request for each: there each request has its own. A variable has one value in a container, so what
// concerns the whole claim is set once for it.
func (k *kit) spec(p *portion.Portion, folder string, env map[string]string) cdi.Spec {
	s := cdi.Spec{Claim: p.Claim.UID}
	if p.Share != nil {
		s.Edits.Mounts = append(s.Edits.Mounts, file(k.library, inLibrary), file(k.preload, inPreload), socketFolder(folder))
		for _, name := range slices.Sorted(maps.Keys(env)) {
			s.Edits.Env = append(s.Edits.Env, name+"="+env[name])
		}
	}
	if k.emulated != "" {
		s.Edits.Mounts = append(s.Edits.Mounts, file(k.emulated, inEmulated), file(k.socket, k.socket))
		if p.Share == nil {
			s.Edits.Env = append(s.Edits.Env, k.emulation()...)
		}
	}
	for i, request := range requests(p) {
		uuids := p.UUIDs(request)
		d := cdi.Device{Name: named(request), Edits: cdi.Edits{Env: []string{"WEFT_GPUS_" + strconv.Itoa(i) + "=" + strings.Join(uuids, ",")}}}
		if p.Extended {
			d.Edits.Env = append(d.Edits.Env, k.visible(p, uuids))
		}
		s.Devices = append(s.Devices, d)
	}
	if !p.Extended {
		s.Edits.Env = append(s.Edits.Env, k.visible(p, p.UUIDs("")))
	}
	return s
}

// emulation is what a program needs to see emulated GPUs.
func (k *kit) emulation() []string {
	return []string{"LD_LIBRARY_PATH=" + inEmulated, "WEFT_EMU_SOCKET=" + k.socket}
}

// visible says which GPUs a container sees. Where the toolkit describes them, its devices bring their files, and this forbids the
// toolkit's other way, by a variable, to bring more.
func (k *kit) visible(p *portion.Portion, uuids []string) string {
	switch {
	case k.emulated != "":
		return "CUDA_VISIBLE_DEVICES=" + strings.Join(uuids, ",")
	case k.described(p):
		return "NVIDIA_VISIBLE_DEVICES=void"
	}
	return "NVIDIA_VISIBLE_DEVICES=" + strings.Join(uuids, ",")
}

// described says whether the toolkit has a device for each GPU of a claim: files come all in one way.
func (k *kit) described(p *portion.Portion) bool {
	return k.emulated == "" && !slices.ContainsFunc(p.Devices, func(d portion.Device) bool { return !k.toolkit(d.UUID) })
}

// ids are the CDI devices of one device of a claim.
func (k *kit) ids(p *portion.Portion, d portion.Device) []string {
	list := []string{cdi.ID(p.Claim.UID, named(d.Request))}
	if k.described(p) {
		list = append(list, nvidiaKind+"="+d.UUID)
	}
	return list
}

// named is the CDI device of a request. That of an alternative is called REQUEST/ALTERNATIVE, and no name of a device has a slash.
func named(request string) string { return strings.ReplaceAll(request, "/", ".") }

// requests are those of a claim, each once, in order.
func requests(p *portion.Portion) []string {
	var list []string
	for _, d := range p.Devices {
		if !slices.Contains(list, d.Request) {
			list = append(list, d.Request)
		}
	}
	return list
}

func file(host, container string) cdi.Mount {
	return cdi.Mount{Host: host, Container: container, Options: []string{"ro", "nosuid", "nodev", "bind"}}
}

// socketFolder has the path in the container that it has on the node, so that one path names a socket everywhere.
func socketFolder(folder string) cdi.Mount {
	return cdi.Mount{Host: filepath.Clean(folder), Container: filepath.Clean(folder), Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind"}}
}
