package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/test/cluster/image"
)

// long skips a test of many seconds in short runs.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; skipped with -short")
	}
}

// quick is how long something may take. Others may use the machine: without WEFT_STRICT a test is to find what became slow.
func quick(promised time.Duration) time.Duration {
	if os.Getenv("WEFT_STRICT") != "" {
		return promised
	}
	return 10 * promised
}

// state is what a cluster changes on a machine.
type state struct {
	Mounts, Links, Folders, Groups, Sockets []string
	Kernel                                  map[string]string
	Marked                                  []process
}

func stateNow(t *testing.T) state {
	t.Helper()
	all, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	s := state{Kernel: kernelNow(), Marked: marked(Folder)}
	for _, m := range all {
		s.Mounts = append(s.Mounts, m.at)
	}
	list := func(pattern string) []string {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	s.Links = list("/sys/class/net/*")
	s.Groups = append(list(cgroups+"/"+cgroup), list(cgroups+"/*/"+cgroup)...)
	s.Sockets = list("/run/containerd/s/*")
	s.Folders = append(absentNow(), list(Folder)...)
	return s
}

// sameState waits for a moment until the machine is as it was: interfaces of a container's go a moment after it.
func sameState(t *testing.T, before state) {
	t.Helper()
	var diff string
	for range 200 {
		if diff = cmp.Diff(before, stateNow(t)); diff == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("the machine is not as it was (- before, + now):\n%s", diff)
}

// eventually waits until something holds.
func eventually(t *testing.T, within time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s, not within %s: %v", what, within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pod is a Pod of the probe.
func pod(name, node string, labels object, arguments ...string) object {
	container := object{"name": "probe", "image": ProbeImage, "imagePullPolicy": "Never", "args": arguments}
	spec := object{"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": []object{container}}
	if node != "" {
		spec["nodeSelector"] = object{"kubernetes.io/hostname": node}
	}
	return object{"metadata": object{"name": name, "labels": labels}, "spec": spec}
}

const podsPath = "/api/v1/namespaces/default/pods"

// run creates a Pod and waits for its phase.
func run(t *testing.T, c *Cluster, p object, phase string) {
	t.Helper()
	name := p["metadata"].(object)["name"].(string)
	eventually(t, time.Minute, "creating "+name, func() error { return c.client.call(t.Context(), http.MethodPost, podsPath, p, nil) })
	eventually(t, time.Minute, name+" is "+phase, func() error {
		s, err := status(t.Context(), c, name)
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("%+v, log %q", s, logOf(t.Context(), c, name))
		}
		return err
	})
}

type podStatus struct {
	Phase, PodIP      string
	ContainerStatuses []struct{ RestartCount int }
}

func status(ctx context.Context, c *Cluster, name string) (podStatus, error) {
	var p struct{ Status podStatus }
	err := c.client.call(ctx, http.MethodGet, podsPath+"/"+name, nil, &p)
	return p.Status, err
}

func logOf(ctx context.Context, c *Cluster, name string) string {
	var text []byte
	if err := c.client.call(ctx, http.MethodGet, podsPath+"/"+name+"/log", nil, &text); err != nil {
		return err.Error()
	}
	return string(text)
}

// up brings up the machine's cluster, or skips the test. It is ended with the test.
func up(t *testing.T, o Options) *Cluster {
	t.Helper()
	o.Progress = func(line string) { t.Log(line) }
	c, err := Up(t.Context(), o)
	SkipOr(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			for _, name := range c.Components() {
				t.Logf("%s says:\n%s", name, c.Component(name).last())
			}
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("the cluster does not end: %v", err)
		}
	})
	return c
}

// TestCluster brings up the real cluster once and does everything with it that the tests of weft rely on, in order.
func TestCluster(t *testing.T) {
	needNode(t)
	before := stateNow(t)
	began := time.Now()
	c := up(t, Options{})
	took := time.Since(began)
	for _, name := range c.Components() {
		t.Logf("%-19s %4d MiB", name, c.Component(name).Memory()>>20)
	}
	if t.Logf("up in %.1f s", took.Seconds()); took > quick(15*time.Second) {
		t.Errorf("it took %s to come up", took)
	}
	t.Run("pod", func(t *testing.T) { testPod(t, c) })
	t.Run("image", func(t *testing.T) { testImage(t, c) })
	t.Run("webhook", func(t *testing.T) { testWebhook(t, c) })
	t.Run("crashes", func(t *testing.T) { testCrashes(t, c) })
	t.Run("reboot", func(t *testing.T) { testReboot(t, c) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, c) })
	t.Run("second", func(t *testing.T) {
		if _, err := Up(t.Context(), Options{}); !errors.Is(err, ErrUp) || !strings.Contains(err.Error(), "make cluster-down") {
			t.Errorf("a second cluster: %v", err)
		}
		opened, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Components(), opened.Components()); diff != "" || opened.Component(Kubelet).PID() != c.Component(Kubelet).PID() {
			t.Errorf("opened, it is another: %s", diff)
		}
	})
	began = time.Now()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > quick(6*time.Second) {
		t.Errorf("it took %s to go down", took)
	}
	sameState(t, before)
	if _, err := Open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it can be opened still: %v", err)
	}
}

// testPod has the probe say what it sees, and ask the API server from inside.
func testPod(t *testing.T, c *Cluster) {
	t.Helper()
	run(t, c, pod("asks", "", nil, "get", "/api"), "Succeeded")
	text := logOf(t.Context(), c, "asks")
	for _, want := range []string{
		`arguments ["get" "/api"]`, "env HOSTNAME=asks", "env KUBERNETES_SERVICE_HOST=10.96.0.1", "env KUBERNETES_SERVICE_PORT=443",
		"device null", "mount /etc/hosts", "answer 200",
	} {
		if !strings.Contains(text, want+"\n") && !strings.Contains(text, want+" ") {
			t.Errorf("the log has no %q:\n%s", want, text)
		}
	}
	run(t, c, pod("waits", NodeName, nil), "Running")
	s, err := status(t.Context(), c, "waits")
	if err != nil || !strings.HasPrefix(s.PodIP, "10.88.0.") {
		t.Errorf("%+v, %v", s, err)
	}
	began := time.Now()
	if err := c.client.call(t.Context(), http.MethodDelete, podsPath+"/waits", nil, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the Pod goes", func() error {
		var r *refusal
		if _, err := status(t.Context(), c, "waits"); !errors.As(err, &r) || r.code != http.StatusNotFound {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if took := time.Since(began); took > 4*time.Second && os.Getenv("WEFT_STRICT") != "" {
		t.Errorf("on SIGTERM it took %s to end", took)
	}
}

// testImage makes an image of a program of this machine, with the libraries that it needs, for a user who is not root.
func testImage(t *testing.T, c *Cluster) {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("SKIPPED: there is no cat")
	}
	files, err := image.Program(t.Context(), cat, "/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	const name = "weft.local/cat:1"
	if err := c.ImportImage(t.Context(), image.Image{Name: name, Files: files, Entrypoint: []string{"/bin/cat"}, User: "65532:65532"}); err != nil {
		t.Fatal(err)
	}
	p := pod("cat", NodeName, nil, "/etc/passwd", "/proc/self/status")
	container := p["spec"].(object)["containers"].([]object)[0]
	container["image"], container["securityContext"] = name, object{"runAsNonRoot": true}
	run(t, c, p, "Succeeded")
	if text := logOf(t.Context(), c, "cat"); !strings.Contains(text, "nonroot:x:65532") || !strings.Contains(text, "Uid:\t65532") {
		t.Errorf("it prints %q", text)
	}
	if err := c.Import(t.Context(), filepath.Join(t.TempDir(), "none.tar")); err == nil || !strings.Contains(err.Error(), "none.tar") {
		t.Errorf("an image that is not there: %v", err)
	}
}

// testWebhook registers a Pod behind a Service as a webhook: the API server reaches it, though nothing serves addresses of
// Services.
func testWebhook(t *testing.T, c *Cluster) {
	t.Helper()
	ctx := t.Context()
	run(t, c, pod("hook", NodeName, object{"app": "hook"}, "webhook", "hook.default.svc"), "Running")
	var bundle string
	eventually(t, 20*time.Second, "the webhook serves", func() error {
		for line := range strings.Lines(logOf(ctx, c, "hook")) {
			if text, found := strings.CutPrefix(line, "certificate "); found {
				bundle = strings.TrimSpace(text)
				return nil
			}
		}
		return errors.New("no certificate in its log")
	})
	if _, err := base64.StdEncoding.DecodeString(bundle); err != nil {
		t.Fatal(err)
	}
	create := func(path string, o object) {
		t.Helper()
		if err := c.client.call(ctx, http.MethodPost, path, o, nil); err != nil {
			t.Fatal(err)
		}
	}
	create("/api/v1/namespaces/default/services", object{
		"metadata": object{"name": "hook"},
		"spec":     object{"selector": object{"app": "hook"}, "ports": []object{{"port": 443, "targetPort": 8443}}},
	})
	const configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	create(configurations, object{
		"metadata": object{"name": "hook"},
		"webhooks": []object{{
			"name": "hook.example.org", "sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "failurePolicy": "Ignore",
			"clientConfig": object{"caBundle": bundle, "service": object{"namespace": "default", "name": "hook", "path": "/"}},
			"rules": []object{{
				"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"},
			}},
		}},
	})
	n := 0
	eventually(t, 30*time.Second, "the webhook refuses", func() error {
		n++
		err := c.client.call(ctx, http.MethodPost, "/api/v1/namespaces/default/configmaps", object{"metadata": object{"name": fmt.Sprint("c", n)}}, nil)
		if err == nil || !strings.Contains(err.Error(), "the probe refuses") {
			return fmt.Errorf("creating a ConfigMap: %w", err)
		}
		return nil
	})
	for _, path := range []string{configurations + "/hook", "/api/v1/namespaces/default/services/hook", podsPath + "/hook"} {
		if err := c.client.call(ctx, http.MethodDelete, path, nil, nil); err != nil {
			t.Error(err)
		}
	}
}

// testCrashes kills each component of the real node, starts it again, and wants a new Pod to run after each, while one that
// ran before goes on.
func testCrashes(t *testing.T, c *Cluster) {
	t.Helper()
	run(t, c, pod("stays", NodeName, nil), "Running")
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler, Containerd, Kubelet} {
		component := c.Component(name)
		pid := component.PID()
		if err := component.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("%s, started twice: %v", name, err)
		}
		if err := component.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if component.Running() || component.Serves(t.Context()) == nil {
			t.Errorf("%s is killed, and serves", name)
		}
		if err := component.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if component.PID() == pid {
			t.Errorf("%s has the number of the killed one", name)
		}
		run(t, c, pod("after-"+name, NodeName, nil, "once"), "Succeeded")
	}
	if s, err := status(t.Context(), c, "stays"); err != nil || s.Phase != "Running" || s.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod from before is %+v, %v", s, err)
	}
	if err := c.Component(Scheduler).Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

// testReboot crashes the node and starts it again: nothing of it is left in between, what is to be started again comes back in the same
// Pod, and what is not has failed.
func testReboot(t *testing.T, c *Cluster) {
	t.Helper()
	again := pod("again", NodeName, nil)
	again["spec"].(object)["restartPolicy"] = "Always"
	run(t, c, again, "Running")
	run(t, c, pod("once", NodeName, nil), "Running")
	volatile := t.TempDir()
	if err := os.MkdirAll(filepath.Join(volatile, "folder", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.CrashNode(t.Context(), volatile, filepath.Join(volatile, "none")); err != nil {
		t.Fatal(err)
	}
	if left := c.ofNode(); len(left) > 0 {
		t.Errorf("%d processes of the node run", len(left))
	}
	all, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.at, c.Dir()+"/") || strings.HasPrefix(m.at, kubeletRoot) {
			t.Errorf("%s is mounted", m.at)
		}
	}
	if list, err := os.ReadDir(volatile); err != nil || len(list) > 0 {
		t.Errorf("the folder that a reboot empties has %v, %v", list, err)
	}
	if err := c.Component(APIServer).Ready(t.Context()); err != nil {
		t.Errorf("the control plane: %v", err)
	}
	if err := c.BootNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the Pods are as after a reboot", func() error {
		a, err := status(t.Context(), c, "again")
		o, err2 := status(t.Context(), c, "once")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if a.Phase != "Running" || len(a.ContainerStatuses) == 0 || a.ContainerStatuses[0].RestartCount != 1 || o.Phase != "Failed" {
			return fmt.Errorf("%+v, %+v", a, o)
		}
		return nil
	})
	run(t, c, pod("after-reboot", NodeName, nil, "once"), "Succeeded")
}

// testNodes makes nodes that exist in the API only, with GPUs, and has a Pod run there.
func testNodes(t *testing.T, c *Cluster) {
	t.Helper()
	const n, gpus = 20, 8
	for range 2 { // the second time all are there
		if err := c.Nodes(t.Context(), n, gpus); err != nil {
			t.Fatal(err)
		}
	}
	var list struct {
		Items []struct {
			Spec struct {
				Driver, NodeName string
				Devices          []struct {
					Name                     string
					AllowMultipleAllocations bool
					Attributes               map[string]struct{ String string }
				}
			}
		}
	}
	if err := c.client.call(t.Context(), http.MethodGet, "/apis/resource.k8s.io/v1/resourceslices", nil, &list); err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for _, slice := range list.Items {
		for g, d := range slice.Spec.Devices {
			uuids = append(uuids, d.Attributes["uuid"].String)
			if !d.AllowMultipleAllocations || d.Name != fmt.Sprint("gpu-", g) || slice.Spec.Driver != "gpu.weft.dev" {
				t.Errorf("%+v", slice)
			}
		}
	}
	slices.Sort(uuids)
	if len(slices.Compact(uuids)) != n*gpus {
		t.Errorf("%d slices with %d different GPUs, want %d", len(list.Items), len(slices.Compact(uuids)), n*gpus)
	}
	run(t, c, pod("far", FakeNode(7), nil), "Running")
}
