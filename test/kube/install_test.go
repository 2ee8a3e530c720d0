package kube

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// system is the namespace that weft is installed in.
const system = "weft-system"

// manifest is what the chart installs, with the images of the tests and emulated GPUs.
func manifest(ctx context.Context) (string, error) {
	chart := exec.CommandContext(ctx, "go", "run", ".", filepath.Join("..", "..", "charts", "weft"), "image.repository=weft.local/weft", "image.tag=test",
		"image.pullPolicy=Never", "agent.emulated="+socketFolder)
	chart.Dir = filepath.Join("..", "chart")
	text, err := chart.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("the chart: %w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("the chart: %w", err)
	}
	return string(text), nil
}

// install applies the manifest, as docs/kubernetes.md says, and waits until weft serves.
func (s *site) install(ctx context.Context) error {
	text, err := manifest(ctx)
	if err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, text, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, part := range []string{"deployment/weft-controller", "daemonset/weft-agent"} {
		if _, err := s.kubectl(ctx, "", "rollout", "status", "-n", system, part, "--timeout=90s"); err != nil {
			logs, _ := s.kubectl(ctx, "", "logs", "-n", system, part, "--tail=40") // it may not have begun
			pods, _ := s.kubectl(ctx, "", "describe", "pods", "-n", system)        // shown beside the fault
			return fmt.Errorf("%w\n%s\n%s", err, logs, pods)
		}
	}
	return nil
}
