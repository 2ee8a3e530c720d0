package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/agent"
	weft "weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/driver/checkpoint"
	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/cluster"
)

// load is a program that has iterations and says where they end.
var load = []string{"/programs/weft-probe", "load", "--seconds", "600", "--kernels", "20", "--gap-ms", "5", "--cooperate", "--persistent", "1GiB"}

// said is the window in a claim; nil for none.
func said(t *testing.T, client kubernetes.Interface, name string) *v1alpha1.Window {
	t.Helper()
	c, err := client.ResourceV1().ResourceClaims("ml").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, ok := claim.Window(c)
	if !ok && len(c.Status.Devices) > 0 {
		t.Fatalf("no window: %+v", c.Status.Devices)
	}
	return w
}

// text is a window as it is written.
func text(w *v1alpha1.Window) []byte {
	raw, err := json.Marshal(w)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// TestReports has the real API server take what is seen of real programs: one alone, then two beside each other, through an outage of
// the server; and nothing of a native claim or of one without a process.
func TestReports(t *testing.T) {
	client, own, plane := controlPlane(t)
	b := newBed(t, own, Options{Window: 500 * time.Millisecond, Look: 500 * time.Millisecond})
	claims := map[string]*resourcev1.ResourceClaim{}
	ids := map[string][]string{}
	give := func(name string) {
		t.Helper()
		share := &claim.Share{Claim: "weft-" + name, GPUs: []string{b.uuid(0)}, Class: weft.Guaranteed, Floor: 0.9, Reserved: 4 * unit.GiB, Peak: 4 * unit.GiB, Part: 250}
		if name == "native" {
			share = nil
		}
		submit(t, client, name, share)
		claims[name] = bound(t, client, name)
		ids[name] = b.prepare(claims[name])
	}
	give("first")
	first := start(t, b.o.CDI, ids["first"], 1000, nil, load...)
	defer func() {
		if t.Failed() {
			t.Logf("%s\n%s%s", text(said(t, client, "weft-first")), first.out.String(), first.said.String())
		}
	}()
	eventually(t, "a window of one alone", 30*time.Second, func() bool {
		w := said(t, client, "weft-first")
		return w != nil && w.Iterations > 0 && w.Held > 0 && w.Age > 0 && w.Peak.Value() >= int64(unit.GiB) && w.Peak.Value() <= int64(4*unit.GiB) && w.Beside == 0 && time.Since(w.End.Time) < 30*time.Second
	})
	give("second")
	give("native")
	eventually(t, "a window beside one who does nothing yet", 30*time.Second, func() bool { return said(t, client, "weft-first").Beside == 1 })
	if w := said(t, client, "weft-second"); w != nil {
		t.Errorf("of no process: %s", text(w))
	}
	start(t, b.o.CDI, ids["second"], 1000, nil, load...)
	eventually(t, "windows of both, who wait for each other", 30*time.Second, func() bool {
		one, two := said(t, client, "weft-first"), said(t, client, "weft-second")
		return two != nil && one.Beside == 1 && two.Beside == 1 && one.Iterations > 0 && two.Iterations > 0 && one.Wait+two.Wait > 0
	})
	changedNothingElse(t, client, claims["first"])
	outage(t, b, plane, client, "weft-first")
	if w := said(t, client, claims["native"].Name); w != nil {
		t.Errorf("of a native claim: %s", text(w))
	}
	first.kill()
	b.unprepare(claims["first"])
	eventually(t, "the other is alone", 30*time.Second, func() bool { return said(t, client, "weft-second").Beside == 0 })
}

// changedNothingElse holds that of a claim its device's data alone was written, by one manager.
func changedNothingElse(t *testing.T, client kubernetes.Interface, before *resourcev1.ResourceClaim) {
	t.Helper()
	c, err := client.ResourceV1().ResourceClaims("ml").Get(t.Context(), before.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := before.Status.Allocation.Devices.Results[0]
	d := c.Status.Devices[0]
	if len(c.Status.Devices) != 1 || d.Driver != r.Driver || d.Pool != r.Pool || d.Device != r.Device || *d.ShareID != string(*r.ShareID) || len(d.Conditions) > 0 || d.NetworkData != nil {
		t.Errorf("%+v of %+v", c.Status.Devices, r)
	}
	written := 0
	for _, m := range c.ManagedFields {
		if m.Manager != fieldManager {
			continue
		}
		written++
		var fields map[string]map[string]any
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		if len(fields) != 1 || len(fields["f:status"]) != 1 || fields["f:status"]["f:devices"] == nil || m.Subresource != "status" {
			t.Errorf("fields %s of %q", m.FieldsV1.GetRawString(), m.Subresource)
		}
	}
	if written != 1 {
		t.Errorf("%d managers", written)
	}
}

// outage: the window after it covers it, and the log says it once.
func outage(t *testing.T, b *bed, plane *cluster.Cluster, client kubernetes.Interface, name string) {
	t.Helper()
	last := func() *v1alpha1.Window { return said(t, client, name) }
	const fault, well = "cannot be told to the cluster", "told again"
	before := last()
	if strings.Contains(b.said.String(), fault) {
		t.Errorf("before the outage: %s", b.said.String())
	}
	api := plane.Component(cluster.APIServer)
	if err := api.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	covers := longest(t, client, name, time.Now())
	time.Sleep(4 * time.Second) // eight periods
	if err := api.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a window over the outage", 60*time.Second, func() bool { return covers() > 3.5 })
	eventually(t, "it is told again", 60*time.Second, func() bool { return strings.Contains(b.said.String(), well) })
	if n := strings.Count(b.said.String(), fault); n != 1 {
		t.Errorf("said %d times", n)
	}
	if after := last(); !after.End.After(before.End.Time) {
		t.Errorf("%s after %s", text(after), text(before))
	}
}

// longest watches a claim, also through outages: the most seconds that a window of it covered which ended after a time.
func longest(t *testing.T, client kubernetes.Interface, name string, after time.Time) func() float64 {
	t.Helper()
	var mu sync.Mutex
	var most float64
	go func() {
		for ctx := t.Context(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			w, err := client.ResourceV1().ResourceClaims("ml").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			if err != nil {
				continue // the API server is away
			}
			for e := range w.ResultChan() {
				c, ok := e.Object.(*resourcev1.ResourceClaim)
				if !ok {
					continue
				}
				if seen, ok := claim.Window(c); ok && seen.End.After(after) {
					mu.Lock()
					most = max(most, seen.Seconds)
					mu.Unlock()
				}
			}
		}
	}()
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
}

// TestReportRights holds what the API server lets an agent write, and what not: under its role alone, without the admission policy.
func TestReportRights(t *testing.T) {
	client, own, plane := controlPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, own, Options{})
	submit(t, client, "mine", &claim.Share{Claim: "weft-mine", GPUs: []string{b.uuid(0)}, Class: weft.Guaranteed, Floor: 0.9, Reserved: 4 * unit.GiB, Peak: 4 * unit.GiB, Part: 250})
	c := bound(t, client, "mine")
	p, err := portion.Of(c, node, b.o.GPUs)
	if err != nil {
		t.Fatal(err)
	}
	w := &v1alpha1.Window{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Window"}, End: metav1.NowMicro(), Seconds: 1}
	apply := func(client kubernetes.Interface, p portion.Portion) error {
		return (&reporter{client: client}).apply(t.Context(), &checkpoint.Entry{Portion: p}, w)
	}
	if err := apply(own, *p); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]kubernetes.Interface{"the agent of another node": accountOn(t, client, config, "node-2"), "no node": accountOn(t, client, config, "")} {
		w.Seconds++
		if err := apply(other, *p); !apierrors.IsForbidden(err) && !strings.Contains(errText(err), `resource="resourceclaims/driver"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	another, gone := *p, *p
	another.Claim.UID, gone.Claim.Name = "another", "weft-gone"
	for name, p := range map[string]portion.Portion{"another claim of the name": another, "a claim that is gone": gone} {
		if err := apply(own, p); !elsewhere(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for patch, fault := range map[string]string{
		`{"status":{"allocation":null,"reservedFor":null}}`:                        "resourceclaims/binding",
		`{"status":{"reservedFor":[{"resource":"pods","name":"x","uid":"x"}]}}`:    "resourceclaims/binding",
		`{"status":{"devices":[{"driver":"other","pool":"node-1","device":"d"}]}}`: "resourceclaims/driver",
	} {
		_, err := own.ResourceV1().ResourceClaims("ml").Patch(t.Context(), c.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if !strings.Contains(errText(err), fault) {
			t.Errorf("%s: %v", patch, err)
		}
	}
	if _, err := own.ResourceV1().ResourceClaims("ml").Patch(t.Context(), c.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a label: %v", err)
	}
	if got := said(t, client, "weft-mine"); got == nil || got.Seconds != 1 {
		t.Errorf("%s", text(got))
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// steadily answers as an agent whose jobs all have some iterations more at each look.
type steadily struct{ jobs []agent.Job }

func (s *steadily) Ask(context.Context, agent.Request) (agent.Response, error) {
	for i := range s.jobs {
		s.jobs[i].Iterations += 10
	}
	return agent.Response{Stats: &agent.Stats{Jobs: slices.Clone(s.jobs)}}, nil
}

// TestSlowServer: an API server that does not answer is asked by a few writers, one for each claim, and looks go on meanwhile.
func TestSlowServer(t *testing.T) {
	const workers = 10
	answer := make(chan struct{})
	var mu sync.Mutex
	asking, most, taken := 0, 0, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asking++
		most = max(most, asking)
		taken[r.URL.Path]++
		mu.Unlock()
		<-answer
		mu.Lock()
		asking--
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim"}`) // it may have hung up
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoint.json"))
	if err != nil {
		t.Fatal(err)
	}
	a := &steadily{}
	for i := range workers {
		uid := fmt.Sprint("uid-", i)
		a.jobs = append(a.jobs, agent.Job{ID: uint64(i + 1), GPUs: []int{i}, PIDs: []int{i + 1}, Container: &agent.Container{Claim: uid}})
		if err := store.Put(checkpoint.Entry{State: checkpoint.Completed, Portion: portion.Portion{Claim: portion.Object{Namespace: "ml", Name: uid, UID: uid},
			Devices: []portion.Device{{Pool: node, Name: "gpu-0"}}, Share: &portion.Share{}}}); err != nil {
			t.Fatal(err)
		}
	}
	var work sync.WaitGroup
	r := newReporter(&Options{Client: client, Window: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}, &claims{agent: a, store: store}, &work)
	busy := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asking >= writers
	}
	for looks, began := 0, time.Now(); looks < 20 || !busy() && time.Since(began) < 10*time.Second; looks++ {
		from := time.Now()
		r.look(t.Context())
		if d := time.Since(from); d >= writeTime {
			t.Errorf("a look waits for a write: it took %v", d)
		}
		time.Sleep(10 * time.Millisecond)
	}
	mu.Lock()
	if asking != writers || most != writers || len(taken) != writers {
		t.Errorf("%d writes at once, %d at most, of %d claims", asking, most, len(taken))
	}
	mu.Unlock()
	close(answer)
	work.Wait()
	for path, n := range taken {
		if n != 1 {
			t.Errorf("%s was written %d times", path, n)
		}
	}
	if len(taken) != workers || most != writers {
		t.Errorf("%d claims were written, at most %d at once", len(taken), most)
	}
}
