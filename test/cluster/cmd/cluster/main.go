// Command cluster builds and runs the real Kubernetes cluster of the tests. docs/cluster.md says what it needs and makes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weft.dev/weft/test/cluster"
)

const usage = `usage: cluster build    build etcd, Kubernetes, containerd and kwok into the user's cache, once
       cluster check    say why this machine cannot have a cluster; it succeeds when nothing keeps it from that
       cluster up       bring up one node with its control plane, to stay until cluster down
       cluster down     end it, and remove all of it; also what is left of one that was killed
       cluster status   say what runs
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var u *cluster.Unavailable
	switch {
	case errors.As(err, &u):
		fmt.Fprintln(os.Stderr, "note: no real cluster on this machine; tests that want one are SKIPPED:")
		for _, reason := range u.Reasons {
			fmt.Fprintln(os.Stderr, "      -", reason)
		}
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 1 {
		switch arguments[0] {
		case "build":
			return build(ctx)
		case "check":
			return check(ctx)
		case "up":
			return up(ctx)
		case "down":
			return down(ctx)
		case "status":
			return status(ctx)
		}
	}
	fmt.Fprint(os.Stderr, usage)
	return errors.New("one of these words is wanted")
}

func say(line string) { fmt.Fprintln(os.Stderr, line) }

func build(ctx context.Context) error {
	dir, err := cluster.Build(ctx, say)
	if err == nil {
		fmt.Println(dir)
	}
	return err
}

func check(ctx context.Context) error {
	if err := cluster.Check(); err != nil {
		return err
	}
	if _, err := cluster.Find(ctx); err != nil {
		return err
	}
	fmt.Println("This machine can have the real cluster that tests want.")
	return nil
}

func up(ctx context.Context) error {
	began := time.Now()
	c, err := cluster.Up(ctx, cluster.Options{Detach: true, Progress: say})
	if err != nil {
		return err
	}
	fmt.Printf("The cluster is up after %.1f s. To use it:\n\n", time.Since(began).Seconds())
	fmt.Printf("  export KUBECONFIG=%s PATH=%s:$PATH\n  kubectl get nodes\n\n", c.Kubeconfig(), c.Binaries())
	return nil
}

// down is not to be interrupted half way: a second interrupt ends it.
func down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	was, err := cluster.Down(ctx)
	switch {
	case err != nil:
		return err
	case was:
		fmt.Println("The cluster is gone.")
	default:
		fmt.Println("There was no cluster.")
	}
	return nil
}

func status(ctx context.Context) error {
	c, err := cluster.Open()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("No cluster is up.")
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range c.Components() {
		component := c.Component(name)
		state := "serves"
		if !component.Running() {
			state = "has ended: see " + component.Log()
		} else if err := component.Serves(ctx); err != nil {
			state = "does not serve: " + err.Error()
		}
		fmt.Printf("%-19s process %-8d %4d MiB  %s\n", name, component.PID(), component.Memory()>>20, state)
	}
	fmt.Printf("\nKUBECONFIG=%s\n", c.Kubeconfig())
	return nil
}
