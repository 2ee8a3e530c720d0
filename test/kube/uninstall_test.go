package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/test/kube/site"
)

// order is a command line of weft that runs.
type order struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

// order starts weft about the cluster.
func (s *bed) order(t *testing.T, arguments ...string) *order {
	t.Helper()
	o := &order{ended: make(chan struct{})}
	o.cmd = exec.CommandContext(t.Context(), built.Weft, append(arguments, "--kubeconfig", s.Kubeconfig())...)
	o.cmd.Stdout, o.cmd.Stderr = &o.stdout, &o.stderr
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(o.ended)
		_ = o.cmd.Wait() // its exit code is looked at
	}()
	return o
}

// exits waits until it ends with a code, and returns what it wrote.
func (o *order) exits(t *testing.T, code int) (stdout, stderr string) {
	t.Helper()
	select {
	case <-o.ended:
	case <-time.After(patience):
		t.Fatalf("%v does not end", o.cmd.Args)
	}
	if got := o.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%v exits %d, want %d:\n%s%s", o.cmd.Args, got, code, o.stdout.String(), o.stderr.String())
	}
	return o.stdout.String(), o.stderr.String()
}

// reinstall puts weft back for the tests that follow.
func (s *bed) reinstall(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Install(ctx); err != nil {
		t.Error(err)
	}
}

// open says what is missing of what lets Pods come; "" for nothing.
func (s *bed) open(ctx context.Context) string {
	_, err := s.api.AppsV1().Deployments(site.Namespace).Get(ctx, "weft-controller", metav1.GetOptions{})
	for _, class := range []string{kube.NativeClass, kube.ShareClass} {
		_, err2 := s.api.ResourceV1().DeviceClasses().Get(ctx, class, metav1.GetOptions{})
		err = errors.Join(err, err2)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// closed says what is left of it.
func (s *bed) closed(ctx context.Context) string {
	_, err := s.api.AppsV1().Deployments(site.Namespace).Get(ctx, "weft-controller", metav1.GetOptions{})
	for _, class := range []string{kube.NativeClass, kube.ShareClass} {
		if _, err2 := s.api.ResourceV1().DeviceClasses().Get(ctx, class, metav1.GetOptions{}); !apierrors.IsNotFound(err2) {
			return class + " is there"
		}
	}
	if !apierrors.IsNotFound(err) {
		return "the controller is there"
	}
	return ""
}

// training is a Job that shares a GPU.
func training(name string) string {
	return job{name: name, floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}.yaml()
}

// TestUninstall: weft is not removed from under Pods, whether they share or not. It waits for them, while they go on and no new one comes, and
// an interrupted wait leaves all as it was. Then nothing of it is left, nothing hangs, and Pods are created as if it had never been there.
func TestUninstall(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	n.apply(t, training("a"), training("b"))
	plain.apply(t, job{name: "native", seconds: 3600}.yaml())
	holders := []*corev1.Pod{n.running(t, "a"), n.running(t, "b"), plain.running(t, "native")}
	t.Cleanup(func() { s.reinstall(t) }) // before the namespaces end, so that their Pods can

	out, fault := s.order(t, "uninstall").exits(t, 1)
	s.named(t, out, holders)
	if !strings.Contains(fault, "3 Pods hold GPUs of weft") {
		t.Errorf("it refuses without a reason: %s", fault)
	}
	if missing := s.open(t.Context()); missing != "" {
		t.Fatal("refused, and yet ", missing)
	}

	wait := s.order(t, "uninstall", "--wait")
	eventually(t, "the door is closed", s.closed)
	if err := wait.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, fault = wait.exits(t, 130); !strings.Contains(fault, "nothing is changed") {
		t.Errorf("interrupted: %s", fault)
	}
	if missing := s.open(t.Context()); missing != "" {
		t.Fatal("interrupted, and ", missing)
	}
	eventually(t, "Jobs are taken again", func(ctx context.Context) string {
		if _, err := n.Kubectl(ctx, training("c"), "apply", "-n", n.name, "-f", "-"); err != nil {
			return err.Error()
		}
		return ""
	})
	n.running(t, "c")
	n.remove(t, "c")

	wait = s.order(t, "uninstall", "--wait")
	eventually(t, "the door is closed", s.closed)
	plain.apply(t, job{name: "late", seconds: 3600}.yaml())
	if out, err := n.Kubectl(t.Context(), shared("late"), "create", "-n", n.name, "-f", "-"); err == nil || !strings.Contains(out, "weft") {
		t.Errorf("an opted-in Pod while weft goes: %v %s", err, out)
	}
	plain.remove(t, "native")
	n.remove(t, "a")
	time.Sleep(4 * time.Second) // it looks at least once
	select {
	case <-wait.ended:
		t.Fatalf("it did not wait for the last one: %s", wait.stderr.String())
	default:
	}
	for _, p := range plain.pods(t, "late") {
		if p.Spec.NodeName != "" {
			t.Errorf("%s got a GPU while weft goes", p.Name)
		}
	}
	if len(processes(holders[1], "weft-train")) == 0 {
		t.Error("b ended while it was waited for")
	}
	n.remove(t, "b")
	began := time.Now()
	out, _ = wait.exits(t, 0)
	t.Logf("removed %.1f s after the last Pod was gone: %s", time.Since(began).Seconds(), out)
	if out, _ = s.order(t, "uninstall").exits(t, 0); !strings.Contains(out, "Nothing of weft") {
		t.Errorf("once more: %s", out)
	}
	s.gone(t)
	for _, in := range []*namespace{n, plain} {
		in.likeBefore(t)
	}
}

// TestHelmUninstall: helm uninstall refuses, too, while Pods hold GPUs, and names them; all goes on. Then it removes all of weft.
func TestHelmUninstall(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	t.Cleanup(func() { s.reinstall(t) })
	s.order(t, "uninstall").exits(t, 0)
	if _, err := s.Helm(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	n.apply(t, training("a"))
	plain.apply(t, job{name: "native", seconds: 3600}.yaml())
	holders := []*corev1.Pod{n.running(t, "a"), plain.running(t, "native")}
	out, err := s.Helm(t.Context(), "uninstall")
	if err == nil {
		t.Fatalf("helm uninstall did not refuse: %s", out)
	}
	s.named(t, out, holders)
	if missing := s.open(t.Context()); missing != "" {
		t.Error("refused, and yet ", missing)
	}
	n.apply(t, training("b"))
	n.running(t, "b")
	n.remove(t, "a", "b")
	plain.remove(t, "native")
	if out, _ = s.order(t, "uninstall", "--dry-run", "--json").exits(t, 0); !strings.Contains(out, `"name": "weft"`) {
		t.Errorf("it does not see that Helm installed it: %s", out)
	}
	began := time.Now()
	if _, err = s.Helm(t.Context(), "uninstall"); err != nil {
		t.Fatal(err)
	}
	t.Logf("helm uninstall took %.1f s", time.Since(began).Seconds())
	s.gone(t)
}

// shared is a Pod that opts in by its namespace.
func shared(name string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {containers: [{name: train, image: ` + site.TrainImage + `, imagePullPolicy: Never, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
}

// named holds an answer to name Pods with their GPUs.
func (s *bed) named(t *testing.T, out string, holders []*corev1.Pod) {
	t.Helper()
	for _, p := range holders {
		mode := "native"
		if kube.Managed(p.Labels) {
			mode = "shared"
		}
		line := slices.IndexFunc(strings.Split(out, "\n"), func(l string) bool {
			f := strings.Fields(l)
			return len(f) > 4 && f[0] == p.Namespace+"/"+p.Name && f[1] == mode && f[2] == "running" && f[3] == strings.Replace(s.device(t, p), "gpu-", "gpu", 1) &&
				f[4] == "Job/"+p.Labels["batch.kubernetes.io/job-name"]
		})
		if line < 0 {
			t.Errorf("%s/%s, %s on %s, is not named:\n%s", p.Namespace, p.Name, mode, s.device(t, p), out)
		}
	}
}

// gone looks for weft in all kinds of objects that the cluster has, and for what is on its way out and does not get there.
func (s *bed) gone(t *testing.T) {
	t.Helper()
	eventually(t, "no kind and no object of weft's is there", s.left)
	eventually(t, "nothing hangs in Terminating", s.terminating)
	left, err := s.Kubectl(t.Context(), "", "get", "resourceslices,leases,resourceclaims", "-A", "-o", "name")
	if err != nil || strings.Contains(left, "weft") || strings.Contains(left, "resourceslice") {
		t.Errorf("left: %v %s", err, left)
	}
	node, err := s.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range node.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return strings.HasPrefix(string(c.Type), "weft.dev/") }) {
			t.Errorf("%s has a condition of weft's", n.Name)
		}
	}
	if files, _ := filepath.Glob("/var/run/cdi/" + kube.Driver + "-claim-*"); len(files) > 0 {
		t.Errorf("left on the node: %v", files)
	}
}

// left says which kinds and objects of weft's are there; "" for none. What Kubernetes made of them, such as the endpoints of a Service and the
// Pod of Helm's Job, and what it says of kinds, goes a moment after them.
func (s *bed) left(ctx context.Context) string {
	kinds, err := s.Kubectl(ctx, "", "api-resources", "--verbs=list", "-o", "name")
	if err != nil || strings.Contains(kinds, "weft.dev") {
		return fmt.Sprintf("kinds %s %v", kinds, err)
	}
	objects, err := s.Kubectl(ctx, "", "get", strings.Join(strings.Fields(kinds), ","), "-A", "-l", "app.kubernetes.io/name=weft", "-o", "name")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(objects) {
		if !strings.HasPrefix(line, "Warning: ") { // of kinds that are deprecated
			return line
		}
	}
	return ""
}

// terminating says what is on its way out, of earlier tests as well; "" for nothing.
func (s *bed) terminating(ctx context.Context) string {
	text, err := s.Kubectl(ctx, "", "get", "pods,namespaces,customresourcedefinitions", "-A", "-o", "json")
	if err != nil {
		return err.Error()
	}
	var objects struct {
		Items []struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}
	}
	if err := json.Unmarshal([]byte(text), &objects); err != nil {
		return err.Error()
	}
	for _, o := range objects.Items {
		if o.Metadata.DeletionTimestamp != nil {
			return o.Kind + " " + o.Metadata.Name
		}
	}
	return ""
}

// likeBefore holds Pods to be created as if weft had never been there: one without a GPU runs, and one with a GPU is not changed.
func (n *namespace) likeBefore(t *testing.T) {
	t.Helper()
	cpu := strings.Replace(strings.Replace(shared("cpu"), "nvidia.com/gpu: 1", `cpu: "1m"`, 1), site.TrainImage, site.TrainImage+", command: [/usr/bin/weft-train, --help]", 1)
	for _, p := range []string{cpu, shared("gpu")} {
		if out, err := n.Kubectl(t.Context(), p, "create", "-n", n.name, "-f", "-"); err != nil {
			t.Fatal(out, err)
		}
	}
	eventually(t, "a Pod without a GPU runs", func(ctx context.Context) string {
		p, err := n.api.CoreV1().Pods(n.name).Get(ctx, "cpu", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].State.Terminated == nil && s[0].State.Running == nil {
			return string(p.Status.Phase)
		}
		return ""
	})
	p, err := n.api.CoreV1().Pods(n.name).Get(t.Context(), "gpu", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Labels) > 0 || len(p.Spec.SchedulingGates) > 0 || len(p.Spec.Containers[0].Resources.Limits) == 0 {
		t.Errorf("a Pod with a GPU is changed: %+v", p.Spec)
	}
	if out, err := n.Kubectl(t.Context(), "", "delete", "pods", "cpu", "gpu", "-n", n.name, "--grace-period=1"); err != nil {
		t.Error(out, err)
	}
}

// TestRippedOut: without their driver, Pods that had GPUs cannot be deleted, native ones neither. weft says so and how to help, and once it is
// installed again they end; also where its files of the node are gone.
func TestRippedOut(t *testing.T) {
	s := at(t)
	for _, c := range []struct {
		what  string
		files []string // of the node, that are removed with it
	}{
		{"files left", nil},
		{"files gone", []string{"/var/lib/kubelet/plugins/" + kube.Driver, "/run/weft", "/var/run/cdi/" + kube.Driver + "*"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			n, plain := s.namespace(t, shares), s.namespace(t)
			n.apply(t, training("a"))
			plain.apply(t, job{name: "native", seconds: 3600}.yaml())
			holders := []*corev1.Pod{n.running(t, "a"), plain.running(t, "native")}
			t.Cleanup(func() {
				if t.Failed() {
					s.reinstall(t)
				}
			})
			s.ripOut(t, c.files)
			if out, fault := s.order(t, "uninstall", "--wait").exits(t, 1); !strings.Contains(fault, "driver is gone") || !strings.Contains(fault, "install weft again") {
				t.Errorf("it does not say how to help: %s%s", out, fault)
			}
			for _, p := range holders {
				if out, err := s.Kubectl(t.Context(), "", "delete", "pod", p.Name, "-n", p.Namespace, "--wait=false"); err != nil {
					t.Fatal(out, err)
				}
			}
			eventually(t, "their containers end", func(context.Context) string {
				return strings.Trim(fmt.Sprint(processes(holders[0], "weft-train"), processes(holders[1], "weft-train")), "[] ")
			})
			time.Sleep(5 * time.Second)
			for _, p := range holders {
				if now, err := s.api.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil || now.DeletionTimestamp == nil {
					t.Errorf("%s does not hang without its driver, so this shows nothing: %v", p.Name, err)
				}
			}
			s.reinstall(t)
			began := time.Now()
			eventually(t, "the Pods end", func(ctx context.Context) string {
				for _, p := range holders {
					if now, err := s.api.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{}); err == nil && now.UID == p.UID {
						return p.Name + " is there"
					}
				}
				return ""
			})
			t.Logf("%.1f s after the agent was ready", time.Since(began).Seconds())
			n.remove(t, "a")
			plain.remove(t, "native")
		})
	}
}

// ripOut removes the driver as somebody would who does not know better.
func (s *bed) ripOut(t *testing.T, files []string) {
	t.Helper()
	for _, what := range [][]string{{"delete", "daemonset", "weft-agent", "-n", site.Namespace, "--cascade=foreground"},
		{"delete", "resourceslices", "--field-selector", "spec.driver=" + kube.Driver}} {
		if out, err := s.Kubectl(t.Context(), "", what...); err != nil {
			t.Fatal(out, err)
		}
	}
	for _, pattern := range files {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if sockets, _ := filepath.Glob("/var/lib/kubelet/plugins*/*" + kube.Driver + "*.sock"); len(sockets) > 0 {
		t.Fatalf("the driver is still there: %v", sockets)
	}
}
