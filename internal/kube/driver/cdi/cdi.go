// Package cdi writes what the container runtime adds to the containers of a claim: one file for each claim, in the format of the
// Container Device Interface (https://github.com/cncf-tags/container-device-interface, SPEC.md). A runtime reads the folder at any
// time: a file is there whole or not at all.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// version of the format: the first in which names may begin with a digit, as UIDs do.
const version = "0.5.0"

// Kind is the vendor and class of all devices of this package.
const Kind = "gpu.weft.dev/claim"

// Spec is what the containers of one claim get. Claim is part of its file's name and of the names of its devices.
type Spec struct {
	Claim   string // UID
	Devices []Device
	Edits   Edits // once for each container that has any of the devices
}

// Device is what a container gets for a part of the claim. Its edits may not be empty.
type Device struct {
	Name  string // within the claim
	Edits Edits
}

// Edits change a container.
type Edits struct {
	Env    []string `json:"env,omitempty"` // NAME=VALUE, in place of the container's own
	Mounts []Mount  `json:"mounts,omitempty"`
}

// Mount is a file or folder of the node in a container.
type Mount struct {
	Host      string   `json:"hostPath"`
	Container string   `json:"containerPath"`
	Options   []string `json:"options,omitempty"`
}

// ID is how the kubelet and the runtime name a device of a claim.
func ID(claim, device string) string { return Kind + "=" + claim + "-" + device }

// file is a Spec as it is written.
type file struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
	Edits   Edits    `json:"containerEdits"`
}

type device struct {
	Name  string `json:"name"`
	Edits Edits  `json:"containerEdits"`
}

// Folder holds the files.
type Folder string

// prefix and suffix of the files of claims. What has another is not touched: the folder belongs to the drivers of a node together.
const (
	prefix = "gpu.weft.dev-claim-"
	suffix = ".json"
)

// uid is what the API server makes of UIDs; nothing else becomes part of a path.
var uid = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,62}$`)

// Path is the file of a claim.
func (f Folder) Path(claim string) (string, error) {
	if !uid.MatchString(claim) {
		return "", fmt.Errorf("%q is no UID of a claim", claim)
	}
	return filepath.Join(string(f), prefix+claim+suffix), nil
}

// Write makes or replaces the file of a claim. After a crash there is the old one or the new one.
func (f Folder) Write(s Spec) error {
	path, err := f.Path(s.Claim)
	if err != nil {
		return err
	}
	out := file{Version: version, Kind: Kind, Edits: s.Edits}
	for _, d := range s.Devices {
		out.Devices = append(out.Devices, device{s.Claim + "-" + d.Name, d.Edits})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil // runtimes read the whole folder again at each change
	}
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	return replace(path, text)
}

// replace writes a file under a name that no runtime reads, and renames it.
func replace(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Remove removes the file of a claim, if there is one.
func (f Folder) Remove(claim string) error {
	path, err := f.Path(claim)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Claims are the UIDs of the claims that have a file. A folder that is not there has none.
func (f Folder) Claims() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		name, is := strings.CutPrefix(e.Name(), prefix)
		if claim, ends := strings.CutSuffix(name, suffix); is && ends && uid.MatchString(claim) {
			list = append(list, claim)
		}
	}
	return list, nil
}

// Offers says whether a file of a folder describes a device of another vendor, such as "nvidia.com/gpu" and a UUID: the NVIDIA
// container toolkit writes them, in JSON or YAML.
func Offers(folders []string, kind, name string) bool {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder) // one that is not there offers nothing
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".yaml" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err == nil && describes(text, kind, name) {
				return true
			}
		}
	}
	return false
}
