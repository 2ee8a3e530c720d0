package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// record is what is on the disk of a cluster with a node, so that any later process can end it.
type record struct {
	ID        string             `json:"id"`        // of this cluster and no other
	Boot      string             `json:"boot"`      // of the machine: after another one no process is left
	Owner     process            `json:"owner"`     // who brings or brought it up
	Detached  bool               `json:"detached"`  // it is to outlive its owner
	Complete  bool               `json:"complete"`  // it came up whole
	Settings  settings           `json:"settings"`  // with its folder, ports and tokens
	Order     []string           `json:"order"`     // of components
	Processes map[string]process `json:"processes"` // by component
	Kernel    map[string]string  `json:"kernel"`    // settings of the kernel before, by path
	Absent    []string           `json:"absent"`    // folders that were not there before
}

func recordPath(dir string) string { return filepath.Join(dir, "record.json") }

// save is called with the cluster's lock held.
func (r *record) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(recordPath(r.Settings.Dir), text, 0o600)
}

// load reads the record of a folder; nil when there is none.
func load(dir string) (*record, error) {
	text, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", recordPath(dir), err)
	}
	if r.Settings.Dir != dir {
		return nil, fmt.Errorf("%s is of a cluster in %s", recordPath(dir), r.Settings.Dir)
	}
	return r, nil
}

// live says whether the cluster is somebody's: its owner is there, or it was to outlive the owner and something of it runs.
func (r *record) live() bool {
	if r.Boot != boot() {
		return false
	}
	if r.Owner.alive() {
		return true
	}
	if !r.Detached || !r.Complete {
		return false
	}
	for _, p := range r.Processes {
		if p.alive() {
			return true
		}
	}
	return false
}

// boot names this run of the machine.
func boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
