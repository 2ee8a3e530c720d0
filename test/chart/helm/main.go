// Command helm installs and removes charts/weft in a cluster as `helm install` and `helm uninstall` do, hooks among it, by Helm's own library.
// The cluster is that of KUBECONFIG.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	"sigs.k8s.io/yaml"
)

const usage = "usage: helm install NAME NAMESPACE CHART | helm uninstall NAME NAMESPACE   values of the chart in YAML from stdin"

// patience is how long a hook, or what is waited for, may take.
const patience = 2 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New(usage)
	}
	settings := cli.New()
	settings.SetNamespace(args[2])
	config := action.NewConfiguration()
	if err := config.Init(settings.RESTClientGetter(), args[2], "secret"); err != nil {
		return err
	}
	config.HookOutputFunc = func(_, pod, container string) io.Writer { return os.Stderr }
	switch {
	case args[0] == "install" && len(args) == 4:
		return install(config, args[1], args[2], args[3])
	case args[0] == "uninstall" && len(args) == 3:
		u := action.NewUninstall(config)
		u.Timeout, u.WaitStrategy = patience, kube.StatusWatcherStrategy
		answer, err := u.Run(args[1])
		if answer != nil && answer.Info != "" {
			fmt.Println(strings.TrimSpace(answer.Info))
		}
		return err
	}
	return errors.New(usage)
}

func install(config *action.Configuration, name, namespace, folder string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	c, err := loader.Load(folder)
	if err != nil {
		return err
	}
	i := action.NewInstall(config)
	i.ReleaseName, i.Namespace, i.CreateNamespace, i.Timeout, i.WaitStrategy = name, namespace, true, patience, kube.StatusWatcherStrategy
	_, err = i.RunWithContext(context.Background(), c, values)
	return err
}
