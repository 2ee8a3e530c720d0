package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Version is the Kubernetes release that is built.
const Version = "v1.36.3"

// module is a folder below build/ with a go.mod, and what is built from it.
type module struct {
	name     string
	programs []program
	stamp    []string // -X of the linker: the version that the programs tell
}

// program is one command of a module.
type program struct {
	name string
	pkg  string
}

// recipe is everything that is built, in this order: first what suites on the API server alone need.
var recipe = []module{
	{"etcd", []program{{"etcd", "go.etcd.io/etcd/server/v3"}}, nil},
	{"kubernetes", kubernetes("kube-apiserver", "kubectl", "kube-scheduler", "kube-controller-manager", "kubelet"), kubernetesStamp()},
	{"containerd", []program{
		{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
		{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
		{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"},
	}, []string{"github.com/containerd/containerd/v2/version.Version=2.2.9"}},
	{"kwok", []program{{"kwok", "sigs.k8s.io/kwok/cmd/kwok"}}, nil},
}

func kubernetes(names ...string) []program {
	list := make([]program, len(names))
	for i, name := range names {
		list[i] = program{name, "k8s.io/kubernetes/cmd/" + name}
	}
	return list
}

// kubernetesStamp is what Kubernetes' own build stamps. Clients and kubelets compare these versions.
func kubernetesStamp() []string {
	number := strings.Split(strings.TrimPrefix(Version, "v"), ".")
	var list []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		list = append(list,
			pkg+".gitVersion="+Version, pkg+".gitMajor="+number[0], pkg+".gitMinor="+number[1],
			pkg+".gitTreeState=clean", pkg+".gitCommit=unknown")
	}
	return list
}

// flags are the arguments of go build for the programs of a module. They decide which compiled packages can be used again: all
// programs are built with the same ones.
func (m module) flags() []string {
	link := "-s -w"
	for _, x := range m.stamp {
		link += " -X " + x
	}
	return []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", link}
}

// environment is what go build sees besides the user's environment.
func environment() []string {
	return []string{"CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on"}
}

// key names what the recipe makes of the modules below a folder with a Go release: 16 hexadecimal digits.
func key(build, goVersion string) (string, error) {
	h := sha256.New()
	line := func(words ...string) { _, _ = fmt.Fprintf(h, "%q\n", words) }
	line(slices.Concat([]string{goVersion}, environment())...)
	for _, m := range recipe {
		line(slices.Concat([]string{m.name}, m.flags())...)
		for _, p := range m.programs {
			line(p.name, p.pkg)
		}
		for _, name := range []string{"go.mod", "go.sum"} {
			if err := addFile(h, filepath.Join(build, m.name, name)); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// addFile writes a file's length and content, so that no two lists of files look alike.
func addFile(w io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d\n%s", len(text), text)
	return err
}
