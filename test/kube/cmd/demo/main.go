// Command demo shows weft in the cluster of `make cluster-up`: two Jobs share an emulated GPU, and a Pod that did not opt in has the
// other one alone. What it made stays, to be looked at, until `make cluster-down`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/kube/site"
)

const patience = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, patience)
	err := show(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func say(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }

func show(ctx context.Context) error {
	root, err := cluster.Source()
	if err != nil {
		return err
	}
	c, err := cluster.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no cluster is up: make cluster-up")
	}
	if err != nil {
		return err
	}
	began := time.Now()
	say("installing weft from charts/weft, with two emulated GPUs of 16 GiB under the node")
	s, err := site.Open(ctx, c, site.Options{Weft: filepath.Join(root, "bin", "weft"), Lib: filepath.Join(root, "bin", "lib"), Source: root, GPUs: 2, Memory: "16GiB", Detach: true})
	if err != nil {
		return err
	}
	for _, name := range []string{"native.yaml", "shared.yaml"} {
		path := filepath.Join(root, "docs", "examples", "kubernetes", name)
		say("kubectl apply -f %s", path)
		if _, err := s.Kubectl(ctx, "", "apply", "-f", path); err != nil {
			return err
		}
	}
	for _, wait := range [][]string{
		{"wait", "--for=condition=Ready", "pod/native", "--timeout=120s"},
		{"wait", "--for=create", "pod", "-l", "batch.kubernetes.io/job-name", "-n", "ml", "--timeout=30s"},
		{"wait", "--for=condition=Ready", "pod", "-l", "batch.kubernetes.io/job-name", "-n", "ml", "--timeout=120s"},
	} {
		if _, err := s.Kubectl(ctx, "", wait...); err != nil {
			return err
		}
	}
	say("\nAfter %.0f s:", time.Since(began).Seconds())
	for _, look := range [][]string{{"top", "gpus", "--once"}, {"top", "pods", "--once"}, {"explain", "pod", "native"}} {
		if err := weft(ctx, s, root, look...); err != nil {
			return err
		}
	}
	kubectl := s.Binaries().Path("kubectl")
	say("\nTo look further, until `make cluster-down`:\n    export KUBECONFIG=%s\n    %s get pods -A; %s describe pods -n ml; bin/weft top pods", s.Kubeconfig(), kubectl, kubectl)
	return nil
}

// weft runs a command of weft against the cluster, as a user does.
func weft(ctx context.Context, s *site.Site, root string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "weft"), arguments...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	say("\n$ weft %s", strings.Join(arguments, " "))
	return cmd.Run()
}
