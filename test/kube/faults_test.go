package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/kube/site"
	"weft.dev/weft/test/suite"
)

// processes are those of a Pod whose command line has a text.
func processes(p *corev1.Pod, text string) []int {
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well
	for _, dir := range all {
		group, _ := os.ReadFile(filepath.Join(dir, "cgroup")) // it may have ended
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(group), string(p.UID)) && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern is of digits
			found = append(found, pid)
		}
	}
	return found
}

// killWeft kills all processes of weft's Pods with a label, as a crash would.
func (s *bed) killWeft(t *testing.T, component string) {
	t.Helper()
	list, err := s.api.CoreV1().Pods(site.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range list.Items {
		for _, pid := range processes(&list.Items[i], "/usr/bin/weft") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Fatalf("no process of %s was there to kill", component)
	}
}

// TestKills kills one part after the other. What runs goes on, in the same process; afterwards a new Pod starts, and nothing is left
// of those that ended.
func TestKills(t *testing.T) {
	s := at(t)
	n := s.namespace(t, shares)
	n.apply(t, job{name: "a", floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}.yaml(), job{name: "b", floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}.yaml())
	a, b := n.running(t, "a"), n.running(t, "b")
	n.says(t, a, "", `"type": "rate"`)
	n.says(t, b, "", `"type": "rate"`)
	before := map[string][]int{"a": processes(a, "weft-train"), "b": processes(b, "weft-train")}
	component := func(name string) func() error {
		return func() error {
			c := s.Component(name)
			if err := c.Kill(t.Context()); err != nil {
				return err
			}
			return c.Start(t.Context())
		}
	}
	for i, part := range []struct {
		name string
		kill func() error
	}{
		{"controller", func() error { s.killWeft(t, "controller"); return nil }},
		{"agent", func() error { s.killWeft(t, "agent"); return nil }},
		{"kubelet", component(cluster.Kubelet)},
		{"containerd", component(cluster.Containerd)},
		{"API server", component(cluster.APIServer)},
		{"etcd", component(cluster.Etcd)},
		{"scheduler", component(cluster.Scheduler)},
	} {
		began := time.Now()
		if err := part.kill(); err != nil {
			t.Fatalf("%s: %v", part.name, err)
		}
		name := fmt.Sprintf("after-%d", i)
		eventually(t, "a Job is taken after the death of "+part.name, func(ctx context.Context) string {
			if _, err := n.Kubectl(ctx, job{name: name, floor: "0.2", memory: "2Gi", profile: "resnet:64", class: "besteffort", seconds: 3600}.yaml(), "apply", "-n", n.name, "-f", "-"); err != nil {
				return err.Error()
			}
			return ""
		})
		n.running(t, name)
		t.Logf("%s killed: a new Pod runs after %.1f s", part.name, time.Since(began).Seconds())
		n.remove(t, name)
		for _, p := range []*corev1.Pod{a, b} {
			job := p.Labels["batch.kubernetes.io/job-name"]
			if now := processes(p, "weft-train"); fmt.Sprint(now) != fmt.Sprint(before[job]) {
				t.Fatalf("%s killed: %s ran in %v, now in %v", part.name, job, before[job], now)
			}
		}
	}
	n.remove(t, "a", "b")
	eventually(t, "no claim is left", func(ctx context.Context) string {
		claims, err := s.api.ResourceV1().ResourceClaims(n.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if len(claims.Items) > 0 {
			return claims.Items[0].Name
		}
		return ""
	})
}

// TestControllerAway: without the controller, Pods that did not opt in are created, and those that did are refused in clear words.
func TestControllerAway(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	s.scale(t, 0)
	t.Cleanup(func() { s.scale(t, 1) })
	plain.apply(t, job{name: "native", seconds: 600}.yaml())
	plain.running(t, "native")
	p := `{apiVersion: v1, kind: Pod, metadata: {name: shared}, spec: {containers: [{name: train, image: ` + site.TrainImage + `, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
	out, err := n.Kubectl(t.Context(), p, "create", "-n", n.name, "-f", "-")
	if err == nil || !strings.Contains(out, "weft") {
		t.Errorf("an opted-in Pod without the controller: %v %s", err, out)
	}
	p = strings.Replace(p, "nvidia.com/gpu: 1", `cpu: "1m"`, 1)
	if out, err := n.Kubectl(t.Context(), p, "create", "-n", n.name, "-f", "-"); err != nil {
		t.Errorf("a Pod without a GPU in a namespace that shares: %s", out)
	}
}

// scale sets how many controllers there are, and waits until it is so.
func (s *bed) scale(t *testing.T, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := s.Kubectl(ctx, "", "scale", "-n", site.Namespace, "deployment/weft-controller", "--replicas="+strconv.Itoa(replicas)); err != nil {
		t.Fatal(out, err)
	}
	for {
		d, err := s.api.AppsV1().Deployments(site.Namespace).Get(ctx, "weft-controller", metav1.GetOptions{})
		pods, err2 := s.api.CoreV1().Pods(site.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err == nil && err2 == nil && int(d.Status.ReadyReplicas) == replicas && len(pods.Items) == replicas {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d controllers are ready, want %d: %v", d.Status.ReadyReplicas, replicas, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestUnhealthyGPU: a GPU with an error is tainted, its Pods are told, the others go on, and recovery clears it.
func TestUnhealthyGPU(t *testing.T) {
	s := at(t)
	n := s.namespace(t, shares)
	n.apply(t, job{name: "hit", floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}.yaml())
	hit := n.running(t, "hit")
	device := s.device(t, hit)
	number := strings.TrimPrefix(device[strings.LastIndex(device, "/")+1:], "gpu-")
	eventually(t, "the kubelet says that its GPU is well", func(ctx context.Context) string { return s.well(ctx, hit) })
	s.fault(t, number, "xid", "79")
	t.Cleanup(func() { s.fault(t, number, "reset") })
	eventually(t, device+" is tainted, and no other", func(ctx context.Context) string { return s.tainted(ctx, device) })
	n.heard(t, "hit", "GPUUnhealthy", "79")
	n.apply(t, job{name: "other", floor: "0.4", memory: "4Gi", profile: "resnet:64", seconds: 3600}.yaml())
	if other := n.running(t, "other"); s.device(t, other) == device {
		t.Errorf("a new Pod is on %s", device)
	}
	s.fault(t, number, "reset")
	n.remove(t, "hit")
	eventually(t, "the taint goes", func(ctx context.Context) string { return s.tainted(ctx, "") })
}

// well says what is wrong with the health of a Pod's GPU as its status has it.
func (s *bed) well(ctx context.Context, p *corev1.Pod) string {
	p, err := s.api.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range p.Status.ContainerStatuses {
		for _, r := range c.AllocatedResourcesStatus {
			if len(r.Resources) == 1 && r.Resources[0].Health == corev1.ResourceHealthStatusHealthy {
				return ""
			}
		}
	}
	return fmt.Sprintf("%+v", p.Status.ContainerStatuses)
}

// fault makes something go wrong on an emulated GPU.
func (s *bed) fault(t *testing.T, gpu string, what ...string) {
	t.Helper()
	if err := suite.Run(built.Weft, append([]string{"emugpu", "fault", "--socket", s.Socket(), "--gpu", gpu}, what...)...); err != nil {
		t.Fatal(err)
	}
}

// tainted says what is wrong with the taints if not exactly that device has one; "" stands for none.
func (s *bed) tainted(ctx context.Context, device string) string {
	slices, err := s.api.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var with []string
	for _, slice := range slices.Items {
		for _, d := range slice.Spec.Devices {
			if slice.Spec.Driver == kube.Driver && len(d.Taints) > 0 {
				with = append(with, slice.Spec.Pool.Name+"/"+d.Name)
			}
		}
	}
	if got := strings.Join(with, " "); got != device {
		return fmt.Sprintf("%q have taints", got)
	}
	return ""
}
