package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/webhook"
	"weft.dev/weft/internal/kube/webhook/certificate"
	"weft.dev/weft/test/cluster"
)

// system is the namespace in which the manifest installs weft, and the accounts of its parts.
const (
	system     = "weft-system"
	controller = "system:serviceaccount:" + system + ":weft-controller"
	agent      = "system:serviceaccount:" + system + ":weft-agent"
)

// manifest is what people apply.
const manifest = "../../deploy/weft.yaml"

// site is an API server with weft's manifest and, while serving, its webhook on this machine.
type site struct {
	cluster *cluster.Cluster
	config  *rest.Config // of an administrator
	admin   client.Client
	stop    func() // the webhook
}

// here is the one of this test binary.
var here struct {
	once sync.Once
	site *site
	err  error
}

// at is the site, serving.
func at(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED under -short: brings up an API server")
	}
	here.once.Do(func() { here.site, here.err = open() })
	cluster.SkipOr(t, here.err)
	return here.site
}

func TestMain(m *testing.M) {
	code := m.Run()
	if s := here.site; s != nil {
		s.stop()
		if err := s.cluster.Close(context.Background()); err != nil {
			fmt.Println("close the API server:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func open() (*site, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := cluster.UpControlPlane(ctx, cluster.ControlPlane{})
	if err != nil {
		return nil, err
	}
	s := &site{cluster: c, stop: func() {}}
	if err := s.install(ctx); err != nil {
		s.stop()
		return nil, errors.Join(err, c.Close(ctx))
	}
	return s, nil
}

// install applies the manifest, makes namespaces, and serves the webhook.
func (s *site) install(ctx context.Context) error {
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig()); err != nil {
		return err
	}
	s.config.QPS = -1
	if text, err := s.kubectl(ctx, "apply", "--server-side", "-f", manifest); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if s.admin, err = s.as("admin", nil, "system:masters"); err != nil {
		return err
	}
	for _, ns := range []corev1.Namespace{named("plain", ""), named("shared", "enabled"), named("kube-system", "enabled")} {
		if err := client.IgnoreAlreadyExists(s.admin.Create(ctx, &ns)); err != nil {
			return err
		}
		patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{"weft.dev/share":%q}}}`, ns.Labels["weft.dev/share"])))
		if err := s.admin.Patch(ctx, &ns, patch); err != nil {
			return err
		}
		account := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns.Name}}
		if err := client.IgnoreAlreadyExists(s.admin.Create(ctx, &account)); err != nil {
			return err
		}
	}
	return s.serve(ctx, time.Hour)
}

func named(name, share string) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"weft.dev/share": share}}}
}

// kubectl runs kubectl as the administrator.
func (s *site) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.cluster.Binaries().Path("kubectl"), append([]string{"--kubeconfig", s.cluster.Kubeconfig()}, args...)...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// as is a client of somebody else.
func (s *site) as(user string, extra map[string][]string, groups ...string) (client.Client, error) {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated"), Extra: extra}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: known})
}

// serve starts the webhook with the rights of the controller, and waits until the API server asks it.
func (s *site) serve(ctx context.Context, lifetime time.Duration) error {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := s.point(ctx, ln.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	if s.stop, err = s.replica(ctx, ln, lifetime); err != nil {
		return err
	}
	return s.await(ctx)
}

// replica is one controller's webhook, and what ends it.
func (s *site) replica(ctx context.Context, ln net.Listener, lifetime time.Duration) (func(), error) {
	own, err := s.as(controller, nil, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		return nil, err
	}
	keeper := &certificate.Keeper{Client: own, Secret: client.ObjectKey{Namespace: system, Name: "weft-webhook"}, Configuration: "weft",
		Names: []string{"localhost"}, Lifetime: lifetime, Log: slog.New(slog.DiscardHandler)}
	if err := keeper.Look(ctx, time.Now()); err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	answers := webhook.Handler(cached{Reader: own})
	once := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that the API server looks at the certificate each time
		answers.ServeHTTP(w, r)
	})
	work.Go(func() { _ = webhook.Serve(serving, ln, once, keeper.Certificate) })
	work.Go(func() { _ = keeper.Run(serving) })
	return func() { cancel(); work.Wait() }, nil
}

// point has the webhook configurations name a port of this machine in place of the Service.
func (s *site) point(ctx context.Context, port int) error {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("admissionregistration.k8s.io/v1")
		o.SetKind(kind)
		if err := s.admin.Get(ctx, client.ObjectKey{Name: "weft"}, o); err != nil {
			return err
		}
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, h := range hooks {
			config := h.(map[string]any)["clientConfig"].(map[string]any)
			var path string
			if service, ok := config["service"].(map[string]any); ok {
				path = service["path"].(string)
			} else {
				u, err := url.Parse(config["url"].(string))
				if err != nil {
					return err
				}
				path = u.RequestURI()
			}
			delete(config, "service")
			config["url"] = fmt.Sprintf("https://localhost:%d%s", port, path)
		}
		if err := unstructured.SetNestedSlice(o.Object, hooks, "webhooks"); err != nil {
			return err
		}
		if err := s.admin.Update(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the API server knows the webhook and the admission policies.
func (s *site) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		p, err := s.dry(ctx, "shared", "{metadata: {name: probe}, spec: {containers: [{name: t, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}")
		if err == nil && p.Labels["weft.dev/managed"] == "true" {
			_, other := s.dry(ctx, "plain", "{metadata: {name: probe, labels: {weft.dev/managed: 'true'}}, spec: {containers: [{name: t, image: x}]}}")
			if other != nil && strings.Contains(other.Error(), "weft alone sets it") {
				return nil
			}
			err = fmt.Errorf("the policies are not in force: %w", other)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dry creates a Pod that is not kept, and is what it would be.
func (s *site) dry(ctx context.Context, namespace, text string) (*corev1.Pod, error) {
	p, err := pod(namespace, text)
	if err != nil {
		return nil, err
	}
	return p, s.admin.Create(ctx, p, client.DryRunAll)
}

// pod reads a Pod.
func pod(namespace, text string) (*corev1.Pod, error) {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		return nil, err
	}
	p.Namespace = namespace
	return &p, nil
}

// object reads an object of any kind.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(j, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// refused wants an error that says something.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("taken, though: %v", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refused with %v,\nwhich does not say %s", err, part)
		}
	}
}
