package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/test/kube/site"
)

// generated is how the names of the tests' namespaces begin.
const generated = "t-"

// namespace is one of a test, and ends with it.
type namespace struct {
	*bed
	name string
}

// shares opts the Pods of a namespace in.
const shares = kube.LabelShare + "=enabled"

func (s *bed) namespace(t *testing.T, labels ...string) *namespace {
	t.Helper()
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: generated, Labels: map[string]string{}}}
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

// end deletes what is in the namespace, and fails the test if a Pod or a claim stays. Only then the namespace, for which nobody waits before
// all tests have ended: Kubernetes takes ten seconds for one that has Pods, and five for another.
func (n *namespace) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if t.Failed() {
		n.show(ctx, t)
	}
	if out, err := n.Kubectl(ctx, "", "delete", "deployments,daemonsets,statefulsets,jobs,pods", "--all", "-n", n.name); err != nil {
		t.Error(out, err)
	}
	var left string
	if err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		left = n.left(ctx)
		return left == "", nil
	}); err != nil {
		t.Errorf("namespace %s is to end, and %s", n.name, left)
	}
	if err := n.api.CoreV1().Namespaces().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// left says which Pod or claim the namespace has; "" for none.
func (n *namespace) left(ctx context.Context) string {
	pods, err := n.api.CoreV1().Pods(n.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	claims, err := n.api.ResourceV1().ResourceClaims(n.name).List(ctx, metav1.ListOptions{})
	switch {
	case err != nil:
		return err.Error()
	case len(pods.Items) > 0:
		return "Pod " + pods.Items[0].Name + " is there"
	case len(claims.Items) > 0:
		return "claim " + claims.Items[0].Name + " is there"
	}
	return ""
}

// ended waits until the namespaces of all tests are gone.
func (s *bed) ended(ctx context.Context) error {
	var left string
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := s.api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			left = err.Error()
			return false, nil // the API server may be on its way back
		}
		i := slices.IndexFunc(list.Items, func(o corev1.Namespace) bool { return o.GenerateName == generated })
		if i >= 0 {
			left = fmt.Sprintf("namespace %s does not end: %+v", list.Items[i].Name, list.Items[i].Status)
		}
		return i < 0, nil
	})
	if err != nil {
		return errors.New(left)
	}
	return nil
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
	checkpoint string // folder of the node for it; none for ""
	seconds    int
	arguments  []string // of weft-train; gentle for none
}

// gentle is a program that computes a fifth of the time: what the controller learns of it keeps nobody away, and a slow machine is not taken
// for a broken floor. busy is one that hardly pauses.
var (
	gentle = []string{"--kernels", "20", "--kernel-us", "200", "--gap-ms", "16"}
	busy   = []string{"--kernels", "90", "--kernel-us", "200", "--gap-ms", "2"}
)

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
	if j.arguments == nil {
		j.arguments = gentle
	}
	volumes, mounts, grace := "[]", "[]", 5
	if j.checkpoint != "" {
		volumes = fmt.Sprintf("[{name: checkpoint, hostPath: {path: %s, type: DirectoryOrCreate}}]", j.checkpoint)
		mounts = "[{name: checkpoint, mountPath: /checkpoint}]"
		j.arguments = append(slices.Clone(j.arguments), "--checkpoint", "/checkpoint/"+j.name, "--resume")
		grace = 30 // Kubernetes' own: beside a busy guaranteed one it takes a while to come to the end of an iteration
	}
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  parallelism: %d
  completions: %d
  backoffLimit: 20
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template:
    metadata:
      annotations: {%s}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: `+strconv.Itoa(grace)+`
      automountServiceAccountToken: false
      volumes: %s
      containers:
      - name: train
        image: %s
        imagePullPolicy: Never
        args: ["--name", %q, "--seconds", "%d"%s]
        volumeMounts: %s
        resources: {limits: {nvidia.com/gpu: 1}}
---`, j.name, max(1, j.gang, j.pods), max(1, j.gang, j.pods), strings.Join(annotations, ", "), volumes, site.TrainImage,
		j.name, j.seconds, strings.Join(quoted(j.arguments), ""), mounts)
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

// pod is the one of a Job, those that failed aside.
func (n *namespace) pod(t *testing.T, job string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, job+" has a Pod", func(context.Context) string {
		for _, x := range n.pods(t, job) {
			if x.DeletionTimestamp == nil && x.Status.Phase != corev1.PodFailed {
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

// says waits until a container of a Pod, "" for its only one, has printed something, and returns all that it has printed, in lines of
// the program and of weft's library, whose order is no matter.
func (n *namespace) says(t *testing.T, p *corev1.Pod, container, text string) (printed string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s %s prints %s", p.Name, container, text), func(ctx context.Context) string {
		out, err := n.api.CoreV1().Pods(n.name).GetLogs(p.Name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		printed = string(out)
		switch {
		case err != nil:
			return err.Error()
		case !strings.Contains(printed, text):
			return printed
		}
		return ""
	})
	return printed
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
