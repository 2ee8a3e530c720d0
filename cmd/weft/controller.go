package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/controller"
	"weft.dev/weft/internal/kube/verdict"
	"weft.dev/weft/internal/kube/webhook"
	"weft.dev/weft/internal/kube/webhook/certificate"
	"weft.dev/weft/internal/trace"
)

// controllerCommand places the Pods of a cluster that share GPUs.
type controllerCommand struct {
	Kubeconfig    string        `env:"KUBECONFIG" placeholder:"FILE" help:"How to reach the cluster. Default: the account of the Pod that this runs in."`
	Namespace     string        `default:"weft-system" help:"Where its lease, and the Secret and the Service of its webhook are."`
	ListenWebhook string        `name:"listen-webhook" default:":9443" help:"Where the API server asks about new Pods; empty for nowhere."`
	Metrics       string        `default:":8080" help:"Where to serve /metrics, /healthz and /readyz; empty for nowhere."`
	LeaderElect   bool          `name:"leader-elect" help:"Of several replicas, only the one that holds the lease acts; all answer the webhook."`
	Lifetime      time.Duration `name:"certificate-lifetime" default:"2160h" help:"Of the webhook's certificates; they are renewed in its last third."`
	JSON          bool          `name:"json" help:"Write the log as JSON."`
}

// Help is what weft controller --help adds.
func (controllerCommand) Help() string {
	return `Pods that opt in are placed on GPUs that they share: a claim pins each to its GPU, then the cluster's own scheduler binds it.
Others are left alone. The log goes to stderr. What is placed is kept in the cluster: the controller may end, or be replaced, at
any time.

Examples:
  weft controller --kubeconfig ~/.kube/config --listen-webhook "" --metrics 127.0.0.1:8080
  weft controller --namespace weft-system --leader-elect`
}

// Run implements the command.
func (c *controllerCommand) Run(ctx context.Context, s *session) error {
	config, err := clusterConfig(c.Kubeconfig)
	if err != nil {
		return asInput(err, c.JSON)
	}
	log := newLogger(s.stderr, c.JSON)
	klog.SetSlogLogger(log.With("from", "client"))
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	control, err := controller.New(controller.Options{Config: config, Namespace: c.Namespace, Identity: fmt.Sprintf("%s-%d", host, os.Getpid()),
		Elect: c.LeaderElect,
		Log:   log, Version: version(), Estimate: estimate.Options{}, Check: webhook.CheckPolicy})
	if err != nil {
		return err
	}
	direct, err := directClient(config)
	if err != nil {
		return err
	}
	judge := &verdict.Keeper{Client: direct, Log: log}
	tasks := []func(context.Context) error{judge.Run}
	ready := []func() error{control.Ready}
	if c.ListenWebhook != "" {
		more, certified, err := c.webhook(direct, control, log)
		if err != nil {
			return asInput(err, c.JSON)
		}
		tasks, ready = append(tasks, more...), append(ready, certified)
	}
	if c.Metrics != "" {
		ln, err := net.Listen("tcp", c.Metrics)
		if err != nil {
			return asInput(flagError("--metrics", c.Metrics, err.Error(), "", "another address, or none"), c.JSON)
		}
		tasks = append(tasks, func(ctx context.Context) error { return serveHTTP(ctx, ln, control.Handler(ready...)) })
	}
	return together(ctx, append(tasks, control.Run))
}

// clusterConfig is how to reach the cluster: by a file, or by the account of the Pod that this runs in.
func clusterConfig(file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, flagError("--kubeconfig", "", "which cluster?", "this is no Pod", "--kubeconfig ~/.kube/config")
		}
		return config, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, trace.Errors{{Code: "bad_kubeconfig", File: file, Message: err.Error(), Why: "it says how to reach the cluster",
			Fix: "kubectl config view shows what kubectl uses"}}
	}
	return config, nil
}

// directClient reads and writes the few objects that are not watched.
func directClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// webhook is what answers the API server, and keeps the certificate for it.
func (c *controllerCommand) webhook(direct client.Client, source webhook.Source, log *slog.Logger) (tasks []func(context.Context) error,
	ready func() error, err error) {
	const name = "weft-webhook" // of the Service and of the Secret
	service := name + "." + c.Namespace + ".svc"
	keeper := &certificate.Keeper{Client: direct, Secret: types.NamespacedName{Namespace: c.Namespace, Name: name}, Configuration: "weft",
		Names: []string{service, service + ".cluster.local"}, Lifetime: c.Lifetime, Log: log}
	ln, err := net.Listen("tcp", c.ListenWebhook)
	if err != nil {
		return nil, nil, flagError("--listen-webhook", c.ListenWebhook, err.Error(), "", "another address")
	}
	answer := func(ctx context.Context) error {
		return webhook.Serve(ctx, ln, webhook.Handler(source), keeper.Certificate)
	}
	return []func(context.Context) error{keeper.Run, answer}, keeper.Ready, nil
}

// serveHTTP answers until the context ends.
func serveHTTP(ctx context.Context, ln net.Listener, h http.Handler) error {
	const patience = 10 * time.Second
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience, WriteTimeout: patience}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // whoever still asks gets no answer
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// together runs tasks until one of them ends or the context does; then all end. The first error counts.
func together(ctx context.Context, tasks []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { ends <- task(ctx) }()
	}
	var first error
	for range tasks {
		err := <-ends
		cancel()
		first = cmp.Or(first, err)
	}
	return first
}
