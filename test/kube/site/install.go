package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// manifest is what the chart installs, with the images of the site and emulated GPUs.
func (s *Site) manifest(ctx context.Context) (string, error) {
	chart := exec.CommandContext(ctx, "go", "run", ".", filepath.Join("..", "..", "charts", "weft"), "image.repository=weft.local/weft", "image.tag=test",
		"image.pullPolicy=Never", "agent.emulated="+s.folder, "agent.extraArgs={"+strings.Join(s.o.Agent, ",")+"}")
	chart.Dir = filepath.Join(s.o.Source, "test", "chart")
	text, err := chart.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("the chart: %w: %s", err, exit.Stderr)
	}
	return string(text), err
}

// Install applies the manifest and waits until weft serves.
func (s *Site) Install(ctx context.Context) error {
	text, err := s.manifest(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, text, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	return s.ready(ctx)
}

// ready waits until weft serves.
func (s *Site) ready(ctx context.Context) error {
	for _, part := range []string{"deployment/weft-controller", "daemonset/weft-agent"} {
		if _, err := s.Kubectl(ctx, "", "rollout", "status", "-n", Namespace, part, "--timeout=90s"); err != nil {
			logs, _ := s.Kubectl(ctx, "", "logs", "-n", Namespace, part, "--tail=40") // it may not have begun
			pods, _ := s.Kubectl(ctx, "", "describe", "pods", "-n", Namespace)        // shown beside the fault
			return fmt.Errorf("%w\n%s\n%s", err, logs, pods)
		}
	}
	return nil
}

// Helm installs weft with Helm, or uninstalls it: "install", "uninstall". It returns what Helm prints.
func (s *Site) Helm(ctx context.Context, what string) (string, error) {
	arguments := []string{"run", "-buildvcs=false", "./helm", what, "weft", Namespace}
	if what == "install" {
		arguments = append(arguments, filepath.Join("..", "..", "charts", "weft"))
	}
	helm := exec.CommandContext(ctx, "go", arguments...)
	helm.Dir, helm.Env = filepath.Join(s.o.Source, "test", "chart"), append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	helm.Stdin = strings.NewReader(fmt.Sprintf("{image: {repository: weft.local/weft, tag: test, pullPolicy: Never}, agent: {emulated: %q, extraArgs: [%s]}}",
		s.folder, strings.Join(s.o.Agent, ", ")))
	out, err := helm.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s", what, err, out)
	}
	if what == "install" {
		err = s.ready(ctx)
	}
	return string(out), err
}

// Kubectl runs kubectl with a standard input, and returns what it prints.
func (s *Site) Kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.Binaries().Path("kubectl"), append([]string{"--kubeconfig", s.Kubeconfig()}, arguments...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}
