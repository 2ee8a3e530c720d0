package kube

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/kube/site"
)

// asks is a container that trains on a GPU, for manifests in JSON's form.
func asks(name string, more ...string) string {
	return fmt.Sprintf(`{name: %s, image: %q, imagePullPolicy: Never, args: ["--seconds", "3600"], resources: {limits: {nvidia.com/gpu: 1}}%s}`, name, site.TrainImage,
		strings.Join(more, ""))
}

// looks is a container that prints what it is given, and waits.
func looks(name string, more ...string) string {
	return fmt.Sprintf(`{name: %s, image: %q, imagePullPolicy: Never%s}`, name, cluster.ProbeImage, strings.Join(more, ""))
}

// named is the Pod of a name once all of its containers are ready.
func (n *namespace) named(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, name+" is ready", func(ctx context.Context) string {
		var err error
		if p, err = n.api.CoreV1().Pods(n.name).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			return fmt.Sprintf("%v %v", p.Status.Phase, p.Status.Conditions)
		}
		return ""
	})
	return p
}

// TestContainersOfOnePod: an init container and the one after it use one claim, those that ask for nothing see nothing of weft, and two that
// ask have a socket each. A native Pod's init containers count as stock Kubernetes counts them. (Case C05.)
func TestContainersOfOnePod(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	first := strings.Replace(asks("warm"), `"--seconds", "3600"`, `"--iterations", "5"`, 1)
	n.apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: init-and-main, annotations: {weft.dev/memory: 6Gi}}, spec: {terminationGracePeriodSeconds: 1,
  initContainers: [`+first+`, `+looks("shipper", ", restartPolicy: Always")+`], containers: [`+asks("train")+`, `+looks("board")+`]}}`)
	p := n.named(t, "init-and-main")
	if len(p.Spec.ResourceClaims) != 1 {
		t.Errorf("%d claims: %v", len(p.Spec.ResourceClaims), p.Spec.ResourceClaims)
	}
	for _, container := range []string{"shipper", "board"} {
		text := n.says(t, p, container, "waiting\n") // after all that it is given
		if !strings.Contains(text, "env HOSTNAME=") {
			t.Fatalf("%s: %s", container, text)
		}
		for _, of := range []string{"weft", "WEFT", "LD_LIBRARY_PATH", "ld.so.preload", "NVIDIA", "nvidia"} {
			for line := range strings.Lines(text) {
				if strings.Contains(line, of) && !strings.Contains(line, cluster.Folder) {
					t.Errorf("%s is given %s", container, line)
				}
			}
		}
	}
	n.apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: two, annotations: {weft.dev/memory: 4Gi}}, spec: {terminationGracePeriodSeconds: 1, containers: [`+
		asks("a")+`, `+asks("b")+`]}}`)
	two := n.named(t, "two")
	folders := map[string]bool{}
	for _, pid := range processes(two, "weft-train") {
		folders[socketOf(t, pid)] = true
	}
	if len(folders) != 2 || folders[""] {
		t.Errorf("two containers have the sockets in %v", folders)
	}
	plain.apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: native}, spec: {terminationGracePeriodSeconds: 1, initContainers: [`+strings.Replace(first, "warm", "one", 1)+`, `+
		asks("side", ", restartPolicy: Always")+`, `+strings.Replace(strings.Replace(first, "warm", "two", 1), "gpu: 1", "gpu: 2", 1)+`], containers: [`+asks("main")+`]}}`)
	if out, err := n.Kubectl(t.Context(), "", "delete", "pod", "init-and-main", "two", "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
	native := plain.named(t, "native")
	claims, err := s.api.ResourceV1().ResourceClaims(plain.name).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) == 0 {
		t.Fatalf("%v %v", claims, err)
	}
	held := map[string]bool{}
	for _, c := range claims.Items {
		for _, r := range c.Status.Allocation.Devices.Results {
			held[r.Device] = true
		}
	}
	if len(held) > 3 {
		t.Errorf("%s holds %v, and needs 3 GPUs at most", native.Name, held)
	}
}

// socketOf is the folder of the node that a process has as its socket's; "" for none.
func socketOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(f[3], "weft/alloc/") {
			return f[3]
		}
	}
	return ""
}

// TestPodsThatWeftDoesNotPlace: in a namespace that shares, a DaemonSet's Pod runs on its node with a whole GPU, and a Pod whose selector fits no
// node is told so. (Case C07; what is refused and left alone at creation is in test/admission.)
func TestPodsThatWeftDoesNotPlace(t *testing.T) {
	s := at(t)
	n := s.namespace(t, shares)
	n.apply(t, `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: each}, spec: {selector: {matchLabels: {app: each}}, template: {metadata: {labels: {app: each}}, spec: {
  terminationGracePeriodSeconds: 1, containers: [`+asks("t")+`]}}}}`,
		`---
{apiVersion: v1, kind: Pod, metadata: {name: nowhere-pod}, spec: {nodeSelector: {zone: nowhere}, containers: [`+asks("t")+`]}}`)
	if out, err := n.Kubectl(t.Context(), "", "rollout", "status", "daemonset/each", "-n", n.name, "--timeout="+patience.String()); err != nil {
		t.Fatal(out, err)
	}
	n.heard(t, "nowhere", "Waiting", "zone")
}

// TestRollout: where the Pods of a Deployment are in each other's way, the new one is told which one holds its room and what to do, and doing it
// lets it start. (Case C12.)
func TestRollout(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.fill(t, 1)
	n.apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve}, spec: {replicas: 1, selector: {matchLabels: {app: serve}}, template: {
  metadata: {labels: {app: serve}, annotations: {weft.dev/memory: 14Gi, weft.dev/floor: "0.95", weft.dev/class: guaranteed}}, spec: {terminationGracePeriodSeconds: 1, containers: [`+asks("t")+`]}}}}`)
	status := func() {
		t.Helper()
		if out, err := n.Kubectl(t.Context(), "", "rollout", "status", "deployment/serve", "-n", n.name, "--timeout="+patience.String()); err != nil {
			t.Fatal(out, err)
		}
	}
	status()
	if out, err := n.Kubectl(t.Context(), "", "set", "env", "deployment/serve", "V=2", "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
	n.heard(t, "serve", "Waiting", "set its maxSurge to 0")
	patch := `{"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}`
	if out, err := n.Kubectl(t.Context(), "", "patch", "deployment/serve", "-p", patch, "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
	status()
}

// TestJobsThatStopAndFail: a Job that is suspended and resumed, one whose rank fails until it is given up, and a StatefulSet whose Pods have the same
// names again: each Pod has a claim of its own, no half gang keeps GPUs, and in the end nothing is left. (Case C13.)
func TestJobsThatStopAndFail(t *testing.T) {
	s := at(t)
	n := s.namespace(t, shares)
	template := `template: {metadata: {annotations: {weft.dev/gang: "2", weft.dev/memory: 6Gi}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [` + asks("t") + `]}}`
	n.apply(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: paused}, spec: {suspend: true, parallelism: 2, completions: 2, `+template+`}}`)
	for range 5 {
		n.suspend(t, "paused", false)
		n.runs(t, "paused", 2)
		n.suspend(t, "paused", true)
		eventually(t, "a Job that is suspended has neither Pods nor claims", func(ctx context.Context) string {
			claims, err := s.api.ResourceV1().ResourceClaims(n.name).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			if pods := n.pods(t, "paused"); len(pods)+len(claims.Items) > 0 {
				return fmt.Sprintf("%d Pods, %d claims", len(pods), len(claims.Items))
			}
			return ""
		})
	}
	n.remove(t, "paused")

	n.apply(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: crashy}, spec: {backoffLimit: 2, parallelism: 2, completions: 2, completionMode: Indexed, podReplacementPolicy: Failed, `+template+`}}`)
	n.runs(t, "crashy", 2)
	eventually(t, "the Job whose rank 1 fails is given up", func(ctx context.Context) string {
		for _, p := range n.pods(t, "crashy") {
			if p.Annotations[batchv1.JobCompletionIndexAnnotation] == "1" {
				for _, pid := range processes(&p, "weft-train") {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				}
			}
		}
		j, err := s.api.BatchV1().Jobs(n.name).Get(ctx, "crashy", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Sprintf("%+v", j.Status)
		}
		return ""
	})
	s.holdsNone(t, n)
	n.remove(t, "crashy")

	n.apply(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: w}, spec: {replicas: 2, serviceName: w, podManagementPolicy: Parallel, selector: {matchLabels: {app: w}}, template: {
  metadata: {labels: {app: w}, annotations: {weft.dev/memory: 6Gi}}, spec: {terminationGracePeriodSeconds: 1, containers: [`+asks("t")+`]}}}}`)
	before := n.named(t, "w-0")
	n.replicas(t, "w", 0)
	eventually(t, "w-0 goes", func(ctx context.Context) string { // else Kubernetes may see no more than that there are to be two
		p, err := s.api.CoreV1().Pods(n.name).Get(ctx, "w-0", metav1.GetOptions{})
		if err == nil && p.UID == before.UID && p.DeletionTimestamp == nil || err != nil && !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v %v", p.Status.Phase, err)
		}
		return ""
	})
	n.replicas(t, "w", 2)
	eventually(t, "w-0 is another Pod with another claim", func(ctx context.Context) string {
		p, err := s.api.CoreV1().Pods(n.name).Get(ctx, "w-0", metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case p.UID == before.UID:
			return "it is the same"
		case p.Spec.ResourceClaims[0].ResourceClaimName == nil || *p.Spec.ResourceClaims[0].ResourceClaimName == *before.Spec.ResourceClaims[0].ResourceClaimName:
			return fmt.Sprintf("its claims are %v", p.Spec.ResourceClaims)
		case p.Status.Phase != corev1.PodRunning:
			return string(p.Status.Phase)
		}
		return ""
	})
	if out, err := n.Kubectl(t.Context(), "", "delete", "statefulset/w", "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
	s.nothingLeft(t, n.name)
}

// replicas sets how many Pods a StatefulSet is to have.
func (n *namespace) replicas(t *testing.T, set string, count int) {
	t.Helper()
	if out, err := n.Kubectl(t.Context(), "", "scale", "statefulset", set, fmt.Sprintf("--replicas=%d", count), "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
}

// suspend stops a Job, or lets it go on.
func (n *namespace) suspend(t *testing.T, job string, yes bool) {
	t.Helper()
	if out, err := n.Kubectl(t.Context(), "", "patch", "job", job, "-p", fmt.Sprintf(`{"spec": {"suspend": %v}}`, yes), "-n", n.name); err != nil {
		t.Fatal(out, err)
	}
}

// holdsNone waits until no claim of a namespace has a GPU.
func (s *bed) holdsNone(t *testing.T, n *namespace) {
	t.Helper()
	eventually(t, "no GPU is held", func(ctx context.Context) string {
		claims, err := s.api.ResourceV1().ResourceClaims(n.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range claims.Items {
			if c.Status.Allocation != nil {
				return c.Name + " is allocated"
			}
		}
		return ""
	})
}

// TestUrgentNativeIsTold: the scheduler takes no GPU of a claim from anybody, whatever the priority; the Pod is told who holds each GPU and what
// would free one. (Case C08.)
func TestUrgentNativeIsTold(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.fill(t, 1)
	n.apply(t, job{name: "low", floor: "0.4", memory: "4Gi", profile: "resnet:64", migratable: true, seconds: 3600}.yaml())
	n.running(t, "low")
	t.Cleanup(func() { s.kubectl(t, "delete", "priorityclass", "urgent") })
	plain.apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 100000}`,
		`---
{apiVersion: v1, kind: Pod, metadata: {name: urgent-native}, spec: {priorityClassName: urgent, terminationGracePeriodSeconds: 1, containers: [`+asks("t")+`]}}`)
	plain.heard(t, "urgent", "Waiting", n.name+"/low")
	plain.heard(t, "urgent", "Waiting", "One is free when all of its Pods have ended or were deleted")
	n.remove(t, "low")
	plain.named(t, "urgent-native")
}

// TestNamespaceEndsWithoutController: a namespace full of Pods that wait, run and have ended goes also while the controller is away.
// (Case C15; certificates are in test/admission.)
func TestNamespaceEndsWithoutController(t *testing.T) {
	s := at(t)
	n, plain := s.namespace(t, shares), s.namespace(t)
	plain.fill(t, 1)
	n.apply(t, job{name: "ended", floor: "0.9", memory: "4Gi", seconds: 1}.yaml())
	eventually(t, "it has ended", func(ctx context.Context) string {
		j, err := s.api.BatchV1().Jobs(n.name).Get(ctx, "ended", metav1.GetOptions{})
		if err != nil || j.Status.Succeeded == 0 {
			return fmt.Sprintf("%+v %v", j.Status, err)
		}
		return ""
	})
	n.apply(t, job{name: "runs", floor: "0.9", memory: "14Gi", seconds: 3600}.yaml())
	n.running(t, "runs")
	n.apply(t, job{name: "waits", pods: 3, floor: "0.9", memory: "14Gi", seconds: 3600}.yaml())
	n.heard(t, "waits", "Waiting", "")
	s.scale(t, 0)
	t.Cleanup(func() { s.scale(t, 1) })
	began := time.Now()
	if err := s.api.CoreV1().Namespaces().Delete(t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) string {
		o, err := s.api.CoreV1().Namespaces().Get(ctx, n.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v %v", o.Status, err)
	})
	t.Logf("the namespace is gone after %.1f s", time.Since(began).Seconds())
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v, want a minute at most", took)
	}
	plain.remove(t, "native")
	s.nothingLeft(t, n.name, plain.name)
}
