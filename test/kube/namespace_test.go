package kube

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/test/kube/site"
)

// namespace is one of a test, and ends with it.
type namespace struct {
	*bed
	name string
}

// shares opts the Pods of a namespace in.
const shares = kube.LabelShare + "=enabled"

func (s *bed) namespace(t *testing.T, labels ...string) *namespace {
	t.Helper()
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-", Labels: map[string]string{}}}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		o.Labels[name] = value
	}
	o, err := s.api.CoreV1().Namespaces().Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &namespace{s, o.Name}
	t.Cleanup(func() { n.end(t) })
	return n
}

// end removes the namespace, and fails the test if something of it stays.
func (n *namespace) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if t.Failed() {
		n.show(ctx, t)
	}
	if err := n.api.CoreV1().Namespaces().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for {
		_, err := n.api.CoreV1().Namespaces().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil && ctx.Err() == nil {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("namespace %s does not end", n.name)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// show prints what is known of a namespace whose test failed.
func (n *namespace) show(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, what := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "resourceclaims", "-o", "wide"}, {"get", "events", "--sort-by=.lastTimestamp"}} {
		out, err := n.Kubectl(ctx, "", append(what, "-n", n.name)...)
		t.Logf("%v: %v\n%s", what, err, out)
	}
	for _, what := range []string{"deployment/weft-controller", "daemonset/weft-agent"} {
		out, err := n.Kubectl(ctx, "", "logs", "-n", site.Namespace, what, "--tail=60")
		t.Logf("%s: %v\n%s", what, err, out)
	}
}

// job is a training Job: weft-train in a Pod, or in several.
type job struct {
	name       string
	class      string
	floor      string
	memory     string
	profile    string
	gang       int // of so many Pods
	pods       int // as many, each for itself
	migratable bool
	seconds    int
	arguments  []string
}

// yaml is the manifest, as a user writes it.
func (j job) yaml() string {
	var annotations []string
	for _, a := range [][2]string{{kube.AnnotationClass, j.class}, {kube.AnnotationFloor, j.floor}, {kube.AnnotationMemory, j.memory}, {kube.AnnotationProfile, j.profile}} {
		if a[1] != "" {
			annotations = append(annotations, fmt.Sprintf("%s: %q", a[0], a[1]))
		}
	}
	if j.gang > 0 {
		annotations = append(annotations, fmt.Sprintf("%s: %q", kube.AnnotationGang, strconv.Itoa(j.gang)))
	}
	if j.migratable {
		annotations = append(annotations, kube.AnnotationMigratable+`: "true"`)
	}
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  parallelism: %d
  completions: %d
  backoffLimit: 20
  template:
    metadata:
      annotations: {%s}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      automountServiceAccountToken: false
      containers:
      - name: train
        image: %s
        imagePullPolicy: Never
        args: ["--name", %q, "--seconds", "%d"%s]
        resources: {limits: {nvidia.com/gpu: 1}}
---`, j.name, max(1, j.gang, j.pods), max(1, j.gang, j.pods), strings.Join(annotations, ", "), site.TrainImage, j.name, j.seconds, strings.Join(quoted(j.arguments), ""))
}

func quoted(arguments []string) []string {
	var list []string
	for _, a := range arguments {
		list = append(list, fmt.Sprintf(", %q", a))
	}
	return list
}

// apply creates what manifests describe.
func (n *namespace) apply(t *testing.T, manifests ...string) {
	t.Helper()
	if out, err := n.Kubectl(t.Context(), strings.Join(manifests, "\n"), "apply", "-n", n.name, "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
}

// remove deletes Jobs, and waits until their Pods are gone.
func (n *namespace) remove(t *testing.T, jobs ...string) {
	t.Helper()
	for _, name := range jobs {
		if out, err := n.Kubectl(t.Context(), "", "delete", "job", name, "-n", n.name, "--wait=false", "--cascade=background"); err != nil {
			t.Fatal(out, err)
		}
	}
	eventually(t, fmt.Sprintf("the Pods of %v are gone", jobs), func(context.Context) string {
		for _, name := range jobs {
			if left := n.pods(t, name); len(left) > 0 {
				return left[0].Name + " is there"
			}
		}
		return ""
	})
}

// pods are those of a Job.
func (n *namespace) pods(t *testing.T, job string) []corev1.Pod {
	t.Helper()
	list, err := n.api.CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// pod is the one of a Job.
func (n *namespace) pod(t *testing.T, job string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, job+" has a Pod", func(context.Context) string {
		for _, x := range n.pods(t, job) {
			if x.DeletionTimestamp == nil {
				p = &x
				return ""
			}
		}
		return "none"
	})
	return p
}

// started is how many Pods of a Job run.
func (n *namespace) started(t *testing.T, job string) int {
	t.Helper()
	count := 0
	for _, p := range n.pods(t, job) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// runs waits until so many Pods of a Job run.
func (n *namespace) runs(t *testing.T, job string, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d Pods of %s run", count, job), func(context.Context) string {
		if got := n.started(t, job); got != count {
			return fmt.Sprintf("%d do", got)
		}
		return ""
	})
}

// running waits until the Pod of a Job runs.
func (n *namespace) running(t *testing.T, job string) *corev1.Pod {
	t.Helper()
	n.runs(t, job, 1)
	return n.pod(t, job)
}

// says waits until the container of a Pod has printed something.
func (n *namespace) says(t *testing.T, p *corev1.Pod, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s prints %s", p.Name, text), func(ctx context.Context) string {
		out, err := n.api.CoreV1().Pods(n.name).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		switch {
		case err != nil:
			return err.Error()
		case !strings.Contains(string(out), text):
			return string(out)
		}
		return ""
	})
}

// heard waits for an Event of a Job's Pod with that reason and that text.
func (n *namespace) heard(t *testing.T, job, reason, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an Event %s of %s says %q", reason, job, text), func(ctx context.Context) string {
		list, err := n.api.CoreV1().Events(n.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var said []string
		for _, e := range list.Items {
			if !strings.HasPrefix(e.InvolvedObject.Name, job+"-") || e.InvolvedObject.Kind != "Pod" {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return ""
			}
			said = append(said, e.Reason+" "+e.Message)
		}
		return "it has " + strings.Join(said, "; ")
	})
}

// waits wants the Pod of a Job not to be scheduled for a while.
func (n *namespace) waits(t *testing.T, job string) {
	t.Helper()
	for range 15 {
		if p := n.pod(t, job); p.Spec.NodeName != "" {
			t.Fatalf("%s is on %s", p.Name, p.Spec.NodeName)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// on is where weft says that it placed a Pod.
func on(p *corev1.Pod) string { return p.Annotations[kube.AnnotationGPU] }

// device is the GPU of a Pod by what was allocated to its claims.
func (s *bed) device(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	claims, err := s.api.ResourceV1().ResourceClaims(p.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		for _, user := range c.Status.ReservedFor {
			if user.UID == p.UID && c.Status.Allocation != nil && len(c.Status.Allocation.Devices.Results) > 0 {
				r := c.Status.Allocation.Devices.Results[0]
				return r.Pool + "/" + r.Device
			}
		}
	}
	t.Fatalf("%s has no claim that is allocated", p.Name)
	return ""
}

// fill has native Pods take all GPUs but some.
func (n *namespace) fill(t *testing.T, but int) {
	t.Helper()
	n.apply(t, job{name: "native", pods: gpus - but, seconds: 3600}.yaml())
	n.runs(t, "native", gpus-but)
}

// environment is that of a Pod's program, as the kernel has it.
func environment(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	pids := processes(p, "weft-train")
	if len(pids) == 0 {
		t.Fatalf("no process of %s", p.Name)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\x00", "\n")
}
