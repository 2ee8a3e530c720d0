package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube/driver"
)

// agentNodeFlags are those of an agent that serves a node of a cluster.
type agentNodeFlags struct {
	Node       string        `placeholder:"NAME" help:"Serve the containers of this Kubernetes node."`
	Kubeconfig string        `env:"KUBECONFIG" placeholder:"FILE" help:"How to reach the cluster. Default: the account of the Pod that this runs in."`
	Window     time.Duration `default:"20s" help:"The least that a report on a worker in its claim's status is of; reports become rarer while nothing changes."`
	Kubelet    string        `default:"/var/lib/kubelet" placeholder:"DIR" help:"The kubelet's folder: where it finds drivers, and where this one keeps its checkpoint."`
	CDI        string        `name:"cdi" default:"/var/run/cdi" placeholder:"DIR" help:"Where the container runtime looks for CDI files."`
	Metrics    string        `placeholder:"ADDRESS" help:"Where to serve /metrics, /healthz and /readyz. Default: nowhere."`
}

// Bounds of --window: less is no average, and more is as good as no report.
const (
	leastWindow = 100 * time.Millisecond
	mostWindow  = time.Hour
)

// makeDir makes the agent's folder. In a cluster nobody else may pass through it: any user of a container may connect to its socket.
func (c *agentServeCommand) makeDir() error {
	if c.Node == "" {
		return os.MkdirAll(c.Dir, 0o711)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(c.Dir, 0o700)
}

// openDriver serves the agent's GPUs to the kubelet.
func (c *agentServeCommand) openDriver(ctx context.Context, a *agent.Agent, o *agent.Options) (*driver.Driver, error) {
	config, err := clusterConfig(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.QPS, config.Burst = "weft-agent/"+version(), 50, 100 // a node's Pods may all start at once
	klog.SetSlogLogger(o.Log.With("from", "client"))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	folder, err := libraries()
	if err != nil {
		return nil, err
	}
	d := driver.Options{Node: c.Node, Libraries: folder, Emulated: o.Env["WEFT_EMU_SOCKET"], GPUs: o.Machine.GPUs(), Client: client, Log: o.Log, Window: c.Window}
	if v, ok := o.Machine.(device.Versioned); ok {
		if d.Version, err = v.DriverVersion(); err != nil {
			return nil, err
		}
	}
	if d.Kubelet, err = filepath.Abs(c.Kubelet); err != nil {
		return nil, err
	}
	if d.CDI, err = filepath.Abs(c.CDI); err != nil {
		return nil, err
	}
	return driver.Open(ctx, a, d)
}

// failing ends with the first failure.
func failing(failed <-chan error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// agentHandler answers those who watch over an agent.
func agentHandler(a *agent.Agent, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		answer, err := a.Ask(r.Context(), agent.Request{Op: agent.OpMetrics})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, answer.Metrics) // it may have hung up
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := a.Ask(r.Context(), agent.Request{Op: agent.OpGPUs}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
