package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/checkpoint"
	"weft.dev/weft/internal/unit"
)

// TestWaitsForOldBytes prepares a claim on memory that another container holds still: it is made as soon as that one is taken back,
// which the wait does not hold up; in vain it says who holds the memory, and leaves nothing.
func TestWaitsForOldBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		old  func(b *bed) *resourcev1.ResourceClaim
		next func(b *bed) *resourcev1.ResourceClaim
	}{
		{"shared after shared", shared("old"), shared("next")},
		{"native after shared", shared("old"), native("next")},
		{"shared after native", native("old"), shared("next")},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, inMemory(), Options{})
			old, next := c.old(b), c.next(b)
			b.prepare(old)
			b.d.claims.patience = 2 * time.Second
			answer, err := b.ask(t.Context(), next)
			if err != nil || !strings.Contains(answer.Error, "still held by ml/pod-old") || !strings.Contains(answer.Error, "claim ml/next on node node-1") {
				t.Fatalf("%+v %v", answer, err)
			}
			if jobs := b.jobs(); len(jobs) != 1 || len(b.d.claims.store.Entries()) != 1 {
				t.Errorf("left: %v", jobs)
			}
			b.d.claims.patience = time.Minute
			var freed atomic.Bool
			var wait sync.WaitGroup
			defer wait.Wait()
			wait.Go(func() {
				time.Sleep(500 * time.Millisecond)
				freed.Store(true)
				b.unprepare(old)
			})
			if b.prepare(next); !freed.Load() {
				t.Error("it did not wait")
			}
		})
	}
}

// full answers as an agent whose one GPU another claim has.
type full struct{}

func (full) Ask(_ context.Context, r agent.Request) (agent.Response, error) {
	if r.Op == agent.OpAllocate {
		return agent.Response{}, &agent.RefusalError{Code: agent.RefusedMemory}
	}
	return agent.Response{Jobs: []agent.Job{{ID: 1, Name: "ml/pod-old/trainer", GPUs: []int{0}, Container: &agent.Container{Claim: "uid-old"}}}}, nil
}

// TestWaitEndsBeforeTheKubeletGivesUp answers a margin before the kubelet's deadline, whatever the patience.
func TestWaitEndsBeforeTheKubeletGivesUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := checkpoint.Open(filepath.Join(dir, "checkpoint.json"))
		if err != nil {
			t.Fatal(err)
		}
		d := &Driver{o: Options{Node: node}, log: slog.New(slog.DiscardHandler), serving: verdict{may: true, reason: ReasonServing}, claims: &claims{
			node: node, gpus: gpusOf(1, 22*unit.GiB), agent: full{}, folder: cdi.Folder(filepath.Join(dir, "cdi")), store: store, patience: time.Hour, faults: nowhere}}
		const deadline = 45 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		began := time.Now()
		c := allocated("next", 22*unit.GiB, 14*unit.GiB, parameters("burstable", "14Gi", "14Gi"), [2]string{"gpu0", "gpu-0"})
		answer, err := plugin{d: d}.PrepareResourceClaims(ctx, []*resourcev1.ResourceClaim{c})
		if took := time.Since(began); err != nil || !strings.Contains(errText(answer[c.UID].Err), "still held by ml/pod-old") || took != deadline-margin {
			t.Errorf("after %v: %v %v", took, answer[c.UID].Err, err)
		}
	})
}

// TestDeadlineComesThrough has the driver hear of the kubelet's deadline: it would wait for an hour.
func TestDeadlineComesThrough(t *testing.T) {
	b := newBed(t, inMemory(), Options{Patience: time.Hour})
	b.prepare(shared("old")(b))
	ctx, cancel := context.WithTimeout(t.Context(), margin+time.Second)
	defer cancel()
	_, _ = b.ask(ctx, shared("next")(b)) // a machine that stands still for the margin may miss the answer
	eventually(t, "the driver gives up", patience, func() bool { return strings.Contains(b.said.String(), "still held by") })
}

func shared(name string) func(b *bed) *resourcev1.ResourceClaim {
	return func(b *bed) *resourcev1.ResourceClaim {
		return b.give(name, 14*unit.GiB, parameters("burstable", "14Gi", "14Gi"), [2]string{"gpu0", "gpu-0"})
	}
}

func native(name string) func(b *bed) *resourcev1.ResourceClaim {
	return func(b *bed) *resourcev1.ResourceClaim { return b.give(name, 0, "", [2]string{"r", "gpu-0"}) }
}

// TestManyAtOnce prepares and takes back many claims beside each other, some of them twice: nothing is left, and no memory is given
// twice.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	var wait sync.WaitGroup
	for i := range 32 {
		c := b.give(fmt.Sprint("c", i), unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", fmt.Sprintf("gpu-%d", i%2)})
		for range 1 + i%2 {
			wait.Go(func() {
				if answer, err := b.ask(t.Context(), c); err != nil || answer.Error != "" {
					t.Errorf("%s: %+v %v", c.Name, answer, err)
				}
			})
		}
	}
	wait.Wait()
	if jobs := b.jobs(); len(jobs) != 32 {
		t.Fatalf("%d allocations", len(jobs))
	}
	for _, c := range b.claims() {
		wait.Go(func() { b.unprepare(&c) })
	}
	wait.Wait()
	b.nothing()
}

func (b *bed) claims() []resourcev1.ResourceClaim {
	b.Helper()
	list, err := b.client.ResourceV1().ResourceClaims("ml").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return list.Items
}

// TestAgentRestartsBesideAProgram ends driver and agent while a program runs, and starts them again: the program goes on under the same
// allocation, and is counted.
func TestAgentRestartsBesideAProgram(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	c := shared("first")(b)
	p := start(t, b.o.CDI, b.prepare(c), 1000, nil, "/programs/weft-probe", "load", "--seconds", "60", "--kernels", "20", "--gap-ms", "1")
	eventually(t, "it runs", patience, func() bool { return len(b.jobs()["uid-first"].PIDs) == 1 })
	before := b.jobs()["uid-first"]
	b.close()
	time.Sleep(300 * time.Millisecond)
	b.open()
	eventually(t, "it is back and computes", patience, func() bool {
		j := b.jobs()["uid-first"]
		return j.ID == before.ID && len(j.PIDs) == 1 && j.PIDs[0] == before.PIDs[0] && j.Held > 0.5
	})
	if p.ProcessState != nil {
		t.Errorf("it ended: %s", p.said.String())
	}
	p.kill()
	b.unprepare(c)
	b.nothing()
}

// TestClaimGone takes a claim back that the API server has lost, and whose kubelet never asks: not while its program runs, and not at
// the first look.
func TestClaimGone(t *testing.T) {
	b := newBed(t, inMemory(), Options{Look: time.Hour})
	c, kept := shared("first")(b), b.give("kept", unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-1"})
	ids := b.prepare(c)
	b.prepare(kept)
	p := start(t, b.o.CDI, ids, 1000, nil, "/programs/weft-probe", "load", "--seconds", "60")
	eventually(t, "it runs", patience, func() bool { return len(b.jobs()["uid-first"].PIDs) == 1 })
	if err := b.client.ResourceV1().ResourceClaims("ml").Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	look := func() {
		b.d.sweeper.sweep(t.Context(), func(claim string, err error) { t.Errorf("%s: %v", claim, err) })
	}
	for range 3 {
		look()
	}
	if len(b.jobs()) != 2 {
		t.Fatal("taken back while its program runs")
	}
	p.kill()
	eventually(t, "it ended", patience, func() bool { return len(pidsOf(b.jobs()["uid-first"])) == 0 })
	look()
	if len(b.jobs()) != 2 {
		t.Fatal("taken back at the first look")
	}
	path, err := b.d.claims.folder.Path("uid-kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // somebody empties the folder
		t.Fatal(err)
	}
	look()
	if jobs := b.jobs(); len(jobs) != 1 || jobs["uid-kept"].ID == 0 {
		t.Errorf("%v", jobs)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the other's CDI file: %v", err)
	}
	b.unprepare(kept)
	b.nothing()
}

// TestSweepAsksNothingOfAnAPIServerThatIsAway takes nothing back on an error.
func TestSweepAsksNothingOfAnAPIServerThatIsAway(t *testing.T) {
	l := again(t, shortDir(t))
	if _, err := l.prepare(t.Context(), firstClaim(), yes); err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	s := sweeper{claims: l.claims, exists: func(context.Context, *checkpoint.Entry) (bool, error) { return false, away }}
	faults := 0
	for range 3 {
		s.sweep(t.Context(), func(_ string, err error) {
			if errors.Is(err, away) {
				faults++
			}
		})
	}
	if faults != 3 || len(jobsOf(t, l.a)) != 1 {
		t.Errorf("%d faults, %v", faults, jobsOf(t, l.a))
	}
}

// TestReallocated: a claim of the same UID that the scheduler gave another GPU is made anew on that one.
func TestReallocated(t *testing.T) {
	l := again(t, shortDir(t))
	c := allocated("first", 22*unit.GiB, unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-0"})
	if _, err := l.prepare(t.Context(), c, yes); err != nil {
		t.Fatal(err)
	}
	c.Status.Allocation.Devices.Results[0].Device = "gpu-1"
	if _, err := l.prepare(t.Context(), c, yes); err != nil {
		t.Fatal(err)
	}
	if j := jobsOf(t, l.a)["uid-first"]; len(j.GPUs) != 1 || j.GPUs[0] != 1 {
		t.Errorf("%+v", j)
	}
}

// TestHealth lets a GPU fail: it alone is tainted, the node and its Pods are told, and it is well again once a program that began
// later computes.
func TestHealth(t *testing.T) {
	b := newBed(t, inMemory(), Options{Health: 50 * time.Millisecond, Trial: time.Hour})
	c := b.give("first", unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-1"})
	ids := b.prepare(c)
	taints := func() []string {
		var list []string
		slices, err := b.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range slices.Items {
			for _, d := range s.Spec.Devices {
				for _, taint := range d.Taints {
					list = append(list, d.Name+" "+taint.Key+"="+taint.Value+":"+string(taint.Effect))
				}
			}
		}
		return list
	}
	eventually(t, "two devices are published", patience, func() bool {
		slices, err := b.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Spec.Devices) == 2
	})
	health := b.watchHealth()
	health("gpu-0 HEALTHY, gpu-1 HEALTHY")
	fault(t, b, emugpu.Fault{Kind: emugpu.XID, GPU: 1, Number: 48})
	health("gpu-0 HEALTHY, gpu-1 UNHEALTHY XID 48")
	eventually(t, "the taint", patience, func() bool {
		list := taints()
		return len(list) == 1 && list[0] == "gpu-1 "+kube.TaintUnhealthy+"=xid-48:NoExecute"
	})
	eventually(t, "Events of the node and the Pod", patience, func() bool {
		list, err := b.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		told := map[string]bool{}
		for _, e := range list.Items {
			if e.Reason == "GPUUnhealthy" && e.Type == corev1.EventTypeWarning && e.Message == "node-1/gpu1 XID 48: tainted, others go on" {
				told[e.InvolvedObject.Kind+" "+e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name] = true
			}
		}
		return told["Node /node-1"] && told["Pod ml/pod-first"] && len(told) == 2
	})
	fault(t, b, emugpu.Fault{Kind: emugpu.Reset, GPU: 1})
	if out, said, err := run(t, b.o.CDI, ids, 1000, nil, "/programs/weft-probe", "load", "--seconds", "1"); err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	eventually(t, "no taint", patience, func() bool { return len(taints()) == 0 })
	health("gpu-0 HEALTHY, gpu-1 HEALTHY")
	b.tryEmpty(taints)
}

// watchHealth watches the GPUs as the kubelet does, and waits for what it is told.
func (b *bed) watchHealth() (wait func(want string)) {
	b.Helper()
	stream, err := drahealth.NewDRAResourceHealthClient(b.conn).NodeWatchResources(b.Context(), &drahealth.NodeWatchResourcesRequest{})
	if err != nil {
		b.Fatal(err)
	}
	told := make(chan string, 100)
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				return // the test ends
			}
			var list []string
			for _, d := range answer.Devices {
				list = append(list, strings.TrimSpace(fmt.Sprint(d.Device.DeviceName, " ", d.Health, " ", d.Message)))
			}
			told <- strings.Join(list, ", ")
		}
	}()
	return func(want string) {
		b.Helper()
		last := ""
		for until := time.After(2 * assurance); last != want; {
			select {
			case last = <-told:
			case <-until:
				b.Fatalf("the kubelet is told %q, not %q", last, want)
			}
		}
	}
}

// tryEmpty breaks a GPU that nobody is on, and nobody will be while it has its taint: a trial finds that it is well again.
func (b *bed) tryEmpty(taints func() []string) {
	b.Helper()
	for _, kind := range []emugpu.Fault{{Kind: emugpu.XID, GPU: 0, Number: 48}, {Kind: emugpu.Lost, GPU: 0}} {
		fault(b.T, b, kind)
		eventually(b, "a taint", patience, func() bool {
			list := taints()
			return len(list) == 1 && strings.HasPrefix(list[0], "gpu-0 ")
		})
		fault(b.T, b, emugpu.Fault{Kind: emugpu.Reset, GPU: 0})
		eventually(b, "no taint", patience, func() bool {
			b.d.tryGPUs(b.Context())
			return len(taints()) == 0
		})
		if jobs := b.jobs(); len(jobs) != 1 {
			b.Errorf("a trial is left: %v", jobs)
		}
	}
}

// fault lets a GPU of the node fail, or be well again.
func fault(t *testing.T, b *bed, f emugpu.Fault) {
	t.Helper()
	o, err := emugpu.Dial(b.o.Emulated)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Fault(f); err != nil {
		t.Fatal(err)
	}
}

func TestJudgeNode(t *testing.T) {
	other, own := "node-2", node
	sliceOf := func(driver string, at *string, devices int) resourcev1.ResourceSlice {
		return resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: at, Devices: make([]resourcev1.Device, devices)}}
	}
	for _, c := range []struct {
		name    string
		change  func(n *corev1.Node)
		slices  []resourcev1.ResourceSlice
		dropped *droppedError
		reason  string
	}{
		{"plain", nil, nil, nil, ReasonServing},
		{"a device plugin", func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
		}, nil, nil, ReasonNativePlugin},
		{"one that is gone", func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}
		}, nil, nil, ReasonServing},
		{"another resource", func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"nvidia.com/mig-1g": resource.MustParse("8")}
		}, nil, nil, ReasonServing},
		{"NVIDIA's driver", nil, []resourcev1.ResourceSlice{sliceOf("gpu.nvidia.com", &own, 8)}, nil, ReasonNativePlugin},
		{"NVIDIA's driver without a device", nil, []resourcev1.ResourceSlice{sliceOf("gpu.nvidia.com", &own, 0)}, nil, ReasonServing},
		{"NVIDIA's driver elsewhere", nil, []resourcev1.ResourceSlice{sliceOf("gpu.nvidia.com", &other, 8), sliceOf("gpu.nvidia.com", nil, 8)}, nil, ReasonServing},
		{"our own", nil, []resourcev1.ResourceSlice{sliceOf(kube.Driver, &own, 8)}, nil, ReasonServing},
		{"label", func(n *corev1.Node) { n.Labels = map[string]string{kube.LabelServe: "false"} }, nil, nil, ReasonExcluded},
		{"other label", func(n *corev1.Node) { n.Labels = map[string]string{kube.LabelServe: "true"} }, nil, nil, ReasonServing},
		{"an old cluster", nil, nil, &droppedError{[]string{"DRAConsumableCapacity"}}, ReasonNoSharing},
	} {
		n := theNode()
		if c.change != nil {
			c.change(n)
		}
		if v := judgeNode(n, c.slices, c.dropped); v.reason != c.reason || v.may != (c.reason == ReasonServing) || v.text == "" {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// TestNativePluginPresent serves nothing beside another's plugin: the node has the condition, the pool is empty, what is new is refused
// and what was prepared stays; when the plugin goes, weft serves.
func TestNativePluginPresent(t *testing.T) {
	b := newBed(t, inMemory(), Options{Look: 50 * time.Millisecond})
	first := b.give("first", unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-0"})
	b.prepare(first)
	set := func(amount string) {
		n, err := b.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(amount)}
		if _, err := b.client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(status corev1.ConditionStatus, reason string, devices int) func() bool {
		return func() bool {
			n, err := b.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			slices, err2 := b.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
			if err != nil || err2 != nil || len(n.Status.Conditions) != 1 || len(slices.Items) != 1 {
				return false
			}
			c := n.Status.Conditions[0]
			return c.Type == kube.ConditionServing && c.Status == status && c.Reason == reason && !c.LastTransitionTime.IsZero() && len(slices.Items[0].Spec.Devices) == devices
		}
	}
	eventually(t, "it serves", patience, is(corev1.ConditionTrue, ReasonServing, 2))
	set("2")
	eventually(t, "it ceases to", patience, is(corev1.ConditionFalse, ReasonNativePlugin, 0))
	second := b.give("second", unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-0"})
	if answer, err := b.ask(t.Context(), second); err != nil || !strings.Contains(answer.Error, "NativePluginPresent") {
		t.Errorf("%+v %v", answer, err)
	}
	b.prepare(first)
	set("0")
	eventually(t, "it serves again", patience, is(corev1.ConditionTrue, ReasonServing, 2))
	b.prepare(second)
}

// TestRefusesNewerCheckpoint starts nothing on what it may read wrongly.
func TestRefusesNewerCheckpoint(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	b.prepare(shared("first")(b))
	_ = b.conn.Close()
	b.d.Close()
	path := filepath.Join(b.o.Kubelet, "plugins", kube.Driver, "checkpoint.json")
	if err := os.WriteFile(path, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), b.a, b.o)
	var version *checkpoint.VersionError
	if !errors.As(err, &version) || version.Version != 2 {
		t.Errorf("%v", err)
	}
	if len(b.jobs()) != 1 {
		t.Error("it removed what it does not know of")
	}
	b.closeAgent()
}
