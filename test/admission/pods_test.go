package admission

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	one       = "resources: {limits: {nvidia.com/gpu: 1}}"
	container = "containers: [{name: t, image: x, " + one + "}]"
	daemon    = "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: 7a1c2f36-0000-4000-8000-000000000001, controller: true}]"
)

// native are Pods that did not opt in, by namespace: they are what they were, whether weft answers or not.
var native = []struct{ name, namespace, pod string }{
	{"asks for a GPU", "plain", "{metadata: {name: p}, spec: {" + container + "}}"},
	{"asks for none", "plain", "{metadata: {name: p}, spec: {containers: [{name: t, image: x}]}}"},
	{"may move, which is no opt-in", "plain", "{metadata: {name: p, annotations: {weft.dev/migratable: 'true'}}, spec: {" + container + "}}"},
	{"asks for none, annotated", "plain", "{metadata: {name: p, annotations: {weft.dev/floor: x}}, spec: {containers: [{name: t, image: x}]}}"},
	{"asks for none, in a namespace that shares", "shared", "{metadata: {name: p}, spec: {containers: [{name: t, image: x}]}}"},
	{"asks for zero", "shared", "{metadata: {name: p}, spec: {containers: [{name: t, image: x, resources: {limits: {nvidia.com/gpu: 0}}}]}}"},
	{"of a DaemonSet", "shared", "{metadata: {name: p, " + daemon + "}, spec: {" + container + "}}"},
	{"of another scheduler", "shared", "{metadata: {name: p}, spec: {schedulerName: volcano, " + container + "}}"},
	{"in kube-system, which somebody labelled", "kube-system", "{metadata: {name: p}, spec: {" + container + "}}"},
	{"in kube-system, annotated", "kube-system", "{metadata: {name: p, annotations: {weft.dev/floor: '0.9'}}, spec: {" + container + "}}"},
	{"in weft's own namespace", system, "{metadata: {name: p}, spec: {" + container + "}}"},
}

// sharing are Pods that opted in.
var sharing = []struct{ name, namespace, pod string }{
	{"by namespace", "shared", "{metadata: {name: p}, spec: {" + container + "}}"},
	{"by annotation", "plain", "{metadata: {name: p, annotations: {weft.dev/floor: '0.8'}}, spec: {" + container + "}}"},
	{"by both", "shared", "{metadata: {name: p, annotations: {weft.dev/memory: 8Gi}}, spec: {" + container + "}}"},
	{"by an init container", "shared", "{metadata: {name: p}, spec: {initContainers: [{name: i, image: x, " + one + "}], containers: [{name: t, image: x}]}}"},
}

// accounts has the namespace of weft hold Pods.
func (s *site) accounts(ctx context.Context) error {
	account := corev1.ServiceAccount{}
	account.Name, account.Namespace = "default", system
	return client.IgnoreAlreadyExists(s.admin.Create(ctx, &account))
}

// checkNative: they are not even asked about, so that nobody waits. Without an answer the webhooks of Pods refuse, which the Pods that opted in
// show in TestWithoutWeft.
func checkNative(t *testing.T, s *site) {
	t.Helper()
	if err := s.accounts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range native {
		p, err := s.dry(t.Context(), c.namespace, c.pod)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(p.Spec.SchedulingGates) > 0 || p.Labels["weft.dev/managed"] != "" || len(p.Spec.ResourceClaims) > 0 {
			t.Errorf("%s: it was changed: %+v %+v", c.name, p.ObjectMeta, p.Spec)
		}
	}
}

func TestNativePodsAreLeftAlone(t *testing.T) { checkNative(t, at(t)) }

func TestSharingPodsAreRewritten(t *testing.T) {
	s := at(t)
	for _, c := range sharing {
		p, err := s.dry(t.Context(), c.namespace, c.pod)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		gated := len(p.Spec.SchedulingGates) == 1 && p.Spec.SchedulingGates[0].Name == "weft.dev/placement"
		if !gated || p.Labels["weft.dev/managed"] != "true" || len(p.Spec.ResourceClaims) != 1 || p.Annotations["weft.dev/claims"] == "" {
			t.Errorf("%s: %+v %+v", c.name, p.ObjectMeta, p.Spec)
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if _, is := c.Resources.Limits["nvidia.com/gpu"]; is {
				t.Errorf("%s still asks for a GPU", c.Name)
			}
		}
	}
}

// TestPodsAreRefused is what users read.
func TestPodsAreRefused(t *testing.T) {
	s := at(t)
	for _, c := range []struct{ namespace, pod, fault string }{
		{"plain", "{metadata: {name: p, annotations: {weft.dev/floor: 90%}}, spec: {" + container + "}}",
			`admission webhook "annotated.pods.weft.dev" denied the request: Pod "p" is invalid: metadata.annotations[weft.dev/floor]: Invalid value: "90%": write 0.9`},
		{"plain", "{metadata: {name: p, annotations: {weft.dev/flor: '0.9'}}, spec: {" + container + "}}",
			`metadata.annotations[weft.dev/flor]: Invalid value: "0.9": no annotation of weft has this name: write weft.dev/floor`},
		{"plain", "{metadata: {name: p, annotations: {weft.dev/profile: brt}}, spec: {" + container + "}}", `metadata.annotations[weft.dev/profile]: Not found: "brt"`},
		{"shared", "{metadata: {name: p}, spec: {nodeName: n1, " + container + "}}", `spec.nodeName: Forbidden: a Pod that shares GPUs is placed by weft`},
		{"shared", "{metadata: {name: p, annotations: {weft.dev/gang: '2'}, " + daemon + "}, spec: {" + container + "}}", `metadata.annotations[weft.dev/gang]: Forbidden: the Pods of a DaemonSet take whole GPUs`},
		{"shared", "{metadata: {name: p, annotations: {weft.dev/gang: '2'}}, spec: {schedulerName: volcano, " + container + "}}", `spec.schedulerName: Invalid value: "volcano"`},
	} {
		_, err := s.dry(t.Context(), c.namespace, c.pod)
		refused(t, err, c.fault)
	}
}

// TestPolicyOfNamespace has the webhook refuse by the policy that is in the API.
func TestPolicyOfNamespace(t *testing.T) {
	s := at(t)
	o := object(t, "{apiVersion: weft.dev/v1alpha1, kind: SharingPolicy, metadata: {name: default}, spec: {namespaces: [{name: plain, maxFloor: '0.8'}]}}")
	if err := s.admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.admin.Delete(t.Context(), o) }()
	_, err := s.dry(t.Context(), "plain", "{metadata: {name: p, annotations: {weft.dev/floor: '0.9'}}, spec: {"+container+"}}")
	refused(t, err, `metadata.annotations[weft.dev/floor]: Invalid value: "0.9": above 0.8, the highest of this namespace by SharingPolicy default`)
}

// TestWithoutWeft ends the webhook: who did not opt in notices nothing, who did is told.
func TestWithoutWeft(t *testing.T) {
	s := at(t)
	s.stop()
	defer func() {
		if err := s.serve(context.Background(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}()
	checkNative(t, s)
	for _, c := range sharing {
		_, err := s.dry(t.Context(), c.namespace, c.pod)
		refused(t, err, "failed calling webhook", ".pods.weft.dev")
	}
}

// TestCreatedDuringRotation creates Pods while certificates are renewed several times and their authority twice, with two replicas
// that answer in turn and look at different times: no creation may fail.
func TestCreatedDuringRotation(t *testing.T) {
	const lifetime = 10 * time.Second // the shortest
	s := at(t)
	s.stop()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.point(t.Context(), ln.Addr().(*net.TCPAddr).Port); err != nil {
		t.Fatal(err)
	}
	turns := inTurn(ln)
	var stops []func()
	for _, l := range turns {
		stop, err := s.replica(t.Context(), l, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
		if err := s.serve(context.Background(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}()
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	serials, authorities := map[string]bool{}, map[string]bool{}
	few := func() bool { return len(serials) < 4 || len(authorities) < 3 }
	created := 0
	beats := &heart{life: lifetime, last: time.Now()}
	defer beats.start(t, s)()
	for began := time.Now(); time.Since(began) < 5*lifetime || few() && time.Since(began) < 10*lifetime; time.Sleep(100 * time.Millisecond) {
		p, err := s.dry(t.Context(), "shared", fmt.Sprintf("{metadata: {name: p%d}, spec: {%s}}", created, container))
		if err != nil && beats.stopped(time.Now()) {
			t.Logf("Pod %d, after the machine stood still: %v", created, err)
			continue
		}
		if err != nil || p.Labels["weft.dev/managed"] != "true" {
			t.Fatalf("Pod %d: %v", created, err)
		}
		created++
		var secret corev1.Secret
		if err := s.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "weft-webhook"}, &secret); err != nil {
			t.Fatal(err)
		}
		serials[string(secret.Data["tls.crt"])] = true
		authorities[strings.SplitAfter(string(secret.Data["ca.crt"]), "-----END CERTIFICATE-----")[0]] = true
	}
	if t.Logf("%d Pods over %d certificates of %d authorities", created, len(serials), len(authorities)); few() {
		t.Error("too little was renewed")
	}
}

// heart notices that the machine stood still. A certificate has a third of its life left when it is renewed, which is days where weft runs
// and three seconds here: what stands still for longer may wake with one that has ended, and is given a moment to renew it. It asks the API
// server for what no webhook is asked about, so that a webhook that does not answer does not look like that.
type heart struct {
	life time.Duration // of certificates

	mu          sync.Mutex
	last, until time.Time // its last beat, and until when what fails may have met a certificate that has ended
}

// start has it beat until the returned function is called.
func (h *heart) start(t *testing.T, s *site) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			if err := s.admin.Get(ctx, client.ObjectKey{Namespace: system, Name: "weft-webhook"}, &corev1.Secret{}); err == nil {
				h.beat(time.Now())
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

func (h *heart) beat(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pausedAt(now) {
		h.until = now.Add(h.life / 2)
	}
	h.last = now
}

func (h *heart) pausedAt(now time.Time) bool { return now.Sub(h.last) > h.life/4 }

// stopped says whether it stood still, or has begun to beat again just now.
func (h *heart) stopped(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pausedAt(now) || now.Before(h.until)
}

// turn is one of two listeners that get the connections of a third one in turn.
type turn struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func inTurn(ln net.Listener) [2]*turn {
	var turns [2]*turn
	for i := range turns {
		turns[i] = &turn{Listener: ln, conns: make(chan net.Conn), done: make(chan struct{})}
	}
	go func() {
		for i := 0; ; i++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t := turns[i%len(turns)]
			select {
			case t.conns <- conn:
			case <-t.done:
				_ = conn.Close()
			}
		}
	}()
	return turns
}

// Accept waits for a connection of this listener's turn.
func (t *turn) Accept() (net.Conn, error) {
	select {
	case conn := <-t.conns:
		return conn, nil
	case <-t.done:
		return nil, net.ErrClosed
	}
}

// Close closes both.
func (t *turn) Close() error {
	t.once.Do(func() { close(t.done) })
	return t.Listener.Close()
}
