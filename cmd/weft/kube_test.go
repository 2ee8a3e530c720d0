package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/cluster"
)

// TestKubeScripts runs weft on a real control plane, one scenario a file in the order of their names, as the later ones use what the
// earlier ones made. Beside what TestScripts knows, and kubectl, a script may say:
//
//	install                  makes the cluster one with weft: its kinds and device classes
//	nodes N GPUS             adds ready nodes with GPUs
//	native NS/NAME GPUS      creates a Pod that asks for whole GPUs
//	shared NS/NAME ASKS...   creates a Pod that opted in: shared ml/a memory=8Gi floor=0.9
//	place NS/NAME NODE GPU   writes its claim and lets it go, as the controller does
//	bound NS/NAME            waits until the scheduler has bound it
//	access FILE CHANGE       writes a kubeconfig of somebody else, or that is no good: stranger, reader, unknown, nowhere
func TestKubeScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED under -short: brings up a control plane")
	}
	plane, err := cluster.UpControlPlane(t.Context(), cluster.ControlPlane{Scheduler: true, ControllerManager: true, Kwok: true})
	cluster.SkipOr(t, err)
	t.Cleanup(func() {
		if err := plane.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeBed{plane: plane, client: client}
	files, err := filepath.Glob("testdata/kube/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenario: ", err)
	}
	for _, file := range files {
		if !t.Run(filepath.Base(file), func(t *testing.T) {
			testscript.Run(t, testscript.Params{Files: []string{file}, Setup: k.setup, Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"exits": exits, "json": jsonValue, "keys": jsonKeys, "eventually": eventually, "install": k.install, "nodes": k.nodes, "native": k.native, "shared": k.shared, "place": k.place,
				"bound": k.bound, "access": k.access,
			}})
		}) {
			return
		}
	}
}

// kubeBed is the cluster of the scenarios.
type kubeBed struct {
	plane  *cluster.Cluster
	client kubernetes.Interface
	names  atomic.Int64
}

func (k *kubeBed) setup(e *testscript.Env) error {
	e.Setenv("KUBECONFIG", k.plane.Kubeconfig())
	docs, err := os.ReadFile("../../docs/kube-commands.md")
	if err != nil {
		return err
	}
	_, role, _ := strings.Cut(string(docs), "```yaml\n")
	role, _, _ = strings.Cut(role, "```")
	if err := os.WriteFile(filepath.Join(e.WorkDir, "role.yaml"), []byte(role), 0o666); err != nil { // that users are told to ask for
		return err
	}
	e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(k.plane.Binaries().Path("kubectl")))
	e.Setenv("WEFT_RUNTIME_DIR", filepath.Join(e.WorkDir, "run"))
	e.Setenv("WEFT_STATE", "")
	e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "none"))
	return nil
}

// arguments checks their number, and that the command is not negated.
func arguments(ts *testscript.TestScript, neg bool, args []string, least, most int) {
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("%q: not as TestKubeScripts says", args)
	}
}

func (k *kubeBed) install(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, 0)
	root, err := cluster.Source()
	ts.Check(err)
	out, err := exec.Command(k.plane.Binaries().Path("kubectl"), "--kubeconfig", k.plane.Kubeconfig(), "apply", "-f", filepath.Join(root, "charts", "weft", "files", "crds")).CombinedOutput()
	if err != nil {
		ts.Fatalf("%v: %s", err, out)
	}
	extended := kube.ExtendedResource
	for name, of := range map[string]*string{kube.NativeClass: &extended, kube.ShareClass: nil} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: of,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + kube.Driver + `"`}}}}}
		_, err := k.client.ResourceV1().DeviceClasses().Create(context.Background(), class, metav1.CreateOptions{})
		ts.Check(err)
	}
}

func (k *kubeBed) nodes(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	gpus, err := strconv.Atoi(args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTime)
	defer cancel()
	ts.Check(k.plane.Nodes(ctx, n, gpus))
}

// pod is one that asks for GPUs.
func (k *kubeBed) pod(name string, gpus int) *corev1.Pod {
	namespace, base, _ := strings.Cut(name, "/")
	c := corev1.Container{Name: "train", Image: cluster.PauseImage}
	c.Resources.Limits = corev1.ResourceList{kube.ExtendedResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: base, Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

// create creates a Pod; its namespace's account may be a moment away.
func (k *kubeBed) create(ts *testscript.TestScript, p *corev1.Pod) {
	var err error
	for began := time.Now(); time.Since(began) < scenarioTime; time.Sleep(50 * time.Millisecond) {
		if _, err = k.client.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "serviceaccount") {
			break
		}
	}
	ts.Check(err)
}

func (k *kubeBed) native(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	gpus, err := strconv.Atoi(args[1])
	ts.Check(err)
	k.create(ts, k.pod(args[0], gpus))
}

func (k *kubeBed) shared(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 9)
	p := k.pod(args[0], 1)
	for _, ask := range args[1:] {
		key, value, _ := strings.Cut(ask, "=")
		p.Annotations["weft.dev/"+key] = value
	}
	changed, faults := pod.Rewrite(p, pod.In(nil, p.Namespace, true), func() string { return fmt.Sprintf("weft-%010d", k.names.Add(1)) })
	if !changed || len(faults) > 0 {
		ts.Fatalf("%s is not rewritten: %v", args[0], faults)
	}
	k.create(ts, p)
}

func (k *kubeBed) get(ts *testscript.TestScript, name string) *corev1.Pod {
	namespace, base, _ := strings.Cut(name, "/")
	p, err := k.client.CoreV1().Pods(namespace).Get(context.Background(), base, metav1.GetOptions{})
	ts.Check(err)
	return p
}

func (k *kubeBed) place(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3)
	node, err := strconv.Atoi(args[1])
	ts.Check(err)
	gpu, err := strconv.Atoi(args[2])
	ts.Check(err)
	p := k.get(ts, args[0])
	r, faults := pod.Read(p, pod.In(nil, p.Namespace, true))
	if len(faults) > 0 {
		ts.Fatalf("%v", faults)
	}
	c := claim.New(claim.Share{Claim: r.Workers[0].Claim, Pod: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Container: r.Workers[0].Container,
		GPUs: []string{cluster.FakeUUID(node, gpu)}, Class: r.Class, Floor: r.Floor, Reserved: max(r.Peak, unit.GiB), Peak: max(r.Peak, unit.GiB), Part: claim.Part(4, false)})
	_, err = k.client.ResourceV1().ResourceClaims(p.Namespace).Create(context.Background(), c, metav1.CreateOptions{})
	ts.Check(err)
	p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kube.Gate })
	_, err = k.client.CoreV1().Pods(p.Namespace).Update(context.Background(), p, metav1.UpdateOptions{})
	ts.Check(err)
}

func (k *kubeBed) bound(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		p := k.get(ts, args[0])
		if p.Spec.NodeName != "" {
			return
		}
		if time.Since(began) > scenarioTime {
			ts.Fatalf("%s is not bound: %+v", args[0], p.Status.Conditions)
		}
	}
}

func (k *kubeBed) access(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	config, err := clientcmd.LoadFromFile(k.plane.Kubeconfig())
	ts.Check(err)
	for _, user := range config.AuthInfos {
		switch args[1] {
		case "stranger", "reader":
			user.Impersonate = args[1]
		case "unknown":
			user.Token, user.ClientCertificate, user.ClientKey, user.ClientCertificateData, user.ClientKeyData = "nobody", "", "", nil, nil
		}
	}
	for _, c := range config.Clusters {
		if args[1] == "nowhere" {
			c.Server = "https://127.0.0.1:1"
		}
	}
	ts.Check(clientcmd.WriteToFile(*config, ts.MkAbs(args[0])))
}
