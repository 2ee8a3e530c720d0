package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"weft.dev/weft/test/cluster/image"
)

// Images that every node has.
const (
	PauseImage = "weft.local/pause:1"
	// ProbeImage prints its environment and its devices, waits, and ends on SIGTERM; see cmd/probe.
	ProbeImage = "weft.local/probe:1"
)

// ownImages builds the programs of the own images, unless it has, and imports them as soon as containerd serves.
func (c *Cluster) ownImages(ctx context.Context) error {
	root, err := Source()
	if err != nil {
		return err
	}
	for name, program := range map[string]string{PauseImage: "pause", ProbeImage: "probe"} {
		path, err := buildOwn(ctx, c.settings.Binaries, filepath.Join(root, "test", "cluster", "cmd", program))
		if err != nil {
			return err
		}
		if err := c.Component(Containerd).Ready(ctx); err != nil {
			return err
		}
		i := image.Image{Name: name, Files: []image.File{{Path: "/" + program, From: path}}, Entrypoint: []string{"/" + program}}
		if err := c.ImportImage(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// buildOwn builds a static program of this module beside the others, under a name that its source gives.
func buildOwn(ctx context.Context, b Binaries, pkg string) (string, error) {
	h := sha256.New()
	names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("%s holds no program: %w", pkg, os.ErrNotExist)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := addFile(h, name); err != nil {
			return "", err
		}
	}
	path := b.Path(filepath.Base(pkg) + "-" + hex.EncodeToString(h.Sum(nil))[:16])
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	half, err := os.MkdirTemp(string(b), "own-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(half) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(half, "program"), ".")
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), environment()...)
	inGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, tail(out, 20))
	}
	return path, os.Rename(filepath.Join(half, "program"), path)
}
