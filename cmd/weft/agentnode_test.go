package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/test/cluster"
)

// TestAgentServesOneKind refuses an agent that serves nobody, or two kinds of jobs, or no cluster that it can reach.
func TestAgentServesOneKind(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("WEFT_EMU_SOCKET", "")
	t.Setenv("WEFT_LIB", library(t))
	dir, err := os.MkdirTemp("", "weft-node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, c := range []struct{ args, want string }{
		{"agent", "weft agent --node NAME"},
		{"agent --local --node n", "weft agent --node NAME"},
		{"agent --node n --emulate --gpus 1 --dir " + dir, "which cluster?"},
		{"agent --node n --emulate --gpus 1 --kubeconfig /nowhere --dir " + dir, "/nowhere"},
	} {
		code, _, errs := invoke(t, strings.Fields(c.args)...)
		if code != exitBadInput || !strings.Contains(errs, c.want) {
			t.Errorf("weft %s: exit %d: %s", c.args, code, errs)
		}
	}
}

// library is the folder that make build leaves.
func library(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "libweft.so")); err != nil {
		t.Skip("libweft.so is not built: make build")
	}
	return folder
}

// TestAgentNode serves a node of a real API server with emulated GPUs: they are published with the condition, the metrics are there, the
// kubelet is awaited, and it ends on its signal with the devices left in place.
func TestAgentNode(t *testing.T) {
	if testing.Short() {
		t.Skip("brings up a control plane; skipped with -short")
	}
	t.Setenv("WEFT_EMU_SOCKET", "")
	t.Setenv("WEFT_LIB", library(t))
	plane, err := cluster.UpControlPlane(t.Context(), cluster.ControlPlane{})
	cluster.SkipOr(t, err)
	t.Cleanup(func() { _ = plane.Close(context.Background()) })
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "weft-node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address := freeAddress(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var out, errs strings.Builder
	go func() {
		ended <- run(ctx, []string{"agent", "--node", "n1", "--kubeconfig", plane.Kubeconfig(), "--emulate", "--gpus", "2", "--dir", filepath.Join(dir, "run"),
			"--kubelet", filepath.Join(dir, "kubelet"), "--cdi", filepath.Join(dir, "cdi"), "--metrics", address}, strings.NewReader(""), &out, &errs)
	}()
	published := func() bool {
		slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + kube.Driver})
		return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Spec.Devices) == 2 && *slices.Items[0].Spec.NodeName == "n1"
	}
	within := func(what string, is func() bool) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	within("two devices", published)
	within("its address", func() bool { // which it opens after that
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	for path, want := range map[string]string{"/metrics": `weft_gpu_residents{gpu="1"} 0`, "/healthz": "ok", "/readyz": "the kubelet has not registered the driver yet"} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(text), want) || (response.StatusCode == http.StatusOK) != (path != "/readyz") {
			t.Errorf("%s: %s %s %v", path, response.Status, text, err)
		}
		_ = response.Body.Close()
	}
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v %v", info, err)
	}
	end()
	select {
	case code := <-ended:
		if code != exitOK && code != exitInterrupted {
			t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if !published() {
		t.Error("its devices went with it")
	}
}

// freeAddress is a port of the loopback interface that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}
