package pod

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

// parse reads a Pod; unknown fields end the test.
func parse(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return &p
}

// numbered names claims weft-1, weft-2, and so on.
func numbered() func() string {
	n := 0
	return func() string { n++; return fmt.Sprint(ClaimPrefix, n) }
}

const one = "resources: {limits: {nvidia.com/gpu: 1}}"

func TestRewriteGivesClaimsToThoseWhoAsk(t *testing.T) {
	p := parse(t, `
metadata: {name: init-and-main, annotations: {weft.dev/memory: 6Gi}}
spec:
  initContainers:
  - {name: warm, resources: {limits: {nvidia.com/gpu: 1, cpu: 2}, requests: {nvidia.com/gpu: 1}}}
  - {name: shipper, restartPolicy: Always}
  containers:
  - {name: train, `+one+`}
  - {name: board}
`)
	changed, faults := Rewrite(p, Defaults{}, numbered())
	if !changed || len(faults) > 0 {
		t.Fatal(changed, faults)
	}
	want := parse(t, `
metadata:
  name: init-and-main
  labels: {weft.dev/managed: "true"}
  annotations: {weft.dev/memory: 6Gi, weft.dev/claims: weft-train=1}
spec:
  schedulingGates: [{name: weft.dev/placement}]
  resourceClaims: [{name: weft-train, resourceClaimName: weft-1}]
  initContainers:
  - {name: warm, resources: {limits: {cpu: 2}, claims: [{name: weft-train}]}}
  - {name: shipper, restartPolicy: Always}
  containers:
  - {name: train, resources: {claims: [{name: weft-train}]}}
  - {name: board}
`)
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
}

// TestRewriteCounts is how many claims a Pod gets, and of how many GPUs.
func TestRewriteCounts(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct{ name, spec, claims string }{
		{"two containers have two", "{containers: [{name: a, " + one + "}, {name: b, " + one + "}]}", "weft-a=1,weft-b=1"},
		{"a sidecar has its own", "{initContainers: [{name: s, restartPolicy: Always, " + one + "}], containers: [{name: a, " + one + "}]}", "weft-a=1,weft-s=1"},
		{"init containers use one after another", "{initContainers: [{name: x, " + one + "}, {name: y, resources: {limits: {nvidia.com/gpu: 2}}}], containers: [{name: a}]}", "weft-x=2"},
		{"the larger counts", "{initContainers: [{name: x, resources: {limits: {nvidia.com/gpu: 4}}}], containers: [{name: a, " + one + "}, {name: b, " + one + "}]}", "weft-a=4,weft-b=1"},
		{"none is none", "{containers: [{name: a, resources: {limits: {nvidia.com/gpu: 0}}}, {name: b, resources: {limits: {nvidia.com/gpu: 8}}}]}", "weft-b=8"},
		{"names are cut to labels", "{containers: [{name: " + long + ", " + one + "}]}", "weft-" + long[:49] + "-2469b9e6=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, "spec: "+c.spec)
			if changed, faults := Rewrite(p, Defaults{Share: true}, numbered()); !changed || len(faults) > 0 {
				t.Fatal(changed, faults)
			}
			if got := p.Annotations[kube.AnnotationClaims]; got != c.claims {
				t.Errorf("got %s, want %s", got, c.claims)
			}
			if r, faults := Read(p, Defaults{Share: true}); len(faults) > 0 || Claims(r.Workers) != c.claims {
				t.Errorf("read back %+v %v", r, faults)
			}
		})
	}
}

func TestRewriteLeavesOthersAlone(t *testing.T) {
	asking := "containers: [{name: t, " + one + "}]"
	for _, c := range []struct {
		name, pod string
		share     bool
	}{
		{"no opt-in", "spec: {" + asking + "}", false},
		{"migratable alone is no opt-in", "{metadata: {annotations: {weft.dev/migratable: 'true'}}, spec: {" + asking + "}}", false},
		{"no GPU", "spec: {containers: [{name: t}]}", true},
		{"no GPU, annotated", "{metadata: {annotations: {weft.dev/floor: nonsense}}, spec: {containers: [{name: t}]}}", true},
		{"zero GPUs", "spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 0}}}]}", true},
		{"other scheduler", "spec: {schedulerName: volcano, " + asking + "}", true},
		{"DaemonSet", "{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}, spec: {" + asking + "}}", true},
		{"mirror of a static Pod", "{metadata: {annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: n, " + asking + "}}", true},
		{"another GPU resource", "spec: {containers: [{name: t, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, c.pod)
			before := p.DeepCopy()
			changed, faults := Rewrite(p, Defaults{Share: c.share}, numbered())
			if changed || len(faults) > 0 {
				t.Error(changed, faults)
			}
			if d := cmp.Diff(before, p); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRewriteRefuses(t *testing.T) {
	asking := "spec: {containers: [{name: t, " + one + "}]}"
	annotated := func(key, value string) string {
		return fmt.Sprintf("{metadata: {annotations: {%s: %q}}, %s}", key, value, asking)
	}
	floor := func(v string) string { return annotated("weft.dev/floor", v) }
	for _, c := range []struct{ pod, fault string }{
		{floor("90%"), `metadata.annotations[weft.dev/floor]: Invalid value: "90%": write 0.9`},
		{floor("85"), `metadata.annotations[weft.dev/floor]: Invalid value: "85": write 0.85`},
		{floor("1.2"), `metadata.annotations[weft.dev/floor]: Invalid value: "1.2": outside (0, 1]: write 0.9 for 90 % of the speed alone`},
		{floor("0"), `metadata.annotations[weft.dev/floor]: Invalid value: "0": outside (0, 1]: for a low floor write 0.05, with weft.dev/class: besteffort`},
		{floor("-0.5"), `metadata.annotations[weft.dev/floor]: Invalid value: "-0.5": outside (0, 1]`},
		{floor("NaN"), `metadata.annotations[weft.dev/floor]: Invalid value: "NaN": not a number: write 0.9`},
		{floor(""), `metadata.annotations[weft.dev/floor]: Invalid value: "": not a number`},
		{floor("1e-1"), `not a number`},
		{floor("0x1p-1"), `not a number`},
		{floor("0,9"), `not a number`},
		{floor("0.99"), `metadata.annotations[weft.dev/floor]: Invalid value: "0.99": above 0.95, the highest of this namespace by SharingPolicy default`},
		{floor("0.05"), `metadata.annotations[weft.dev/floor]: Invalid value: "0.05": below 0.1, the lowest of this namespace by SharingPolicy default`},
		{annotated("weft.dev/class", "gold"), `metadata.annotations[weft.dev/class]: Unsupported value: "gold": supported values: "guaranteed", "burstable", "besteffort"`},
		{annotated("weft.dev/class", ""), `metadata.annotations[weft.dev/class]: Unsupported value: ""`},
		{annotated("weft.dev/memory", "8GiB"), `metadata.annotations[weft.dev/memory]: Invalid value: "8GiB": write 8Gi`},
		{annotated("weft.dev/memory", "8"), `metadata.annotations[weft.dev/memory]: Invalid value: "8": less than a program on a GPU holds (256Mi), and a number without a unit is bytes: write 8Gi`},
		{annotated("weft.dev/memory", "0"), `not above 0`},
		{annotated("weft.dev/memory", "-8Gi"), `not above 0`},
		{annotated("weft.dev/memory", "8Pi"), `more than any GPU has`},
		{annotated("weft.dev/memory", "99999999Ei"), `more than any GPU has`},
		{annotated("weft.dev/memory", "lots"), `not a quantity of bytes: write 8Gi`},
		{annotated("weft.dev/gang", "two"), `metadata.annotations[weft.dev/gang]: Invalid value: "two": write how many Pods start together, 1 to 10000`},
		{annotated("weft.dev/gang", "0"), `write how many Pods start together`},
		{annotated("weft.dev/gang", "1000000000000"), `write how many Pods start together`},
		{annotated("weft.dev/profile", " "), `metadata.annotations[weft.dev/profile]: Invalid value: "": write the name of a WorkloadProfile`},
		{annotated("weft.dev/flor", "0.9"), `metadata.annotations[weft.dev/flor]: Invalid value: "0.9": no annotation of weft has this name: write weft.dev/floor`},
		{annotated("weft.dev/zebra", "0.9"), `no annotation of weft has this name: there are weft.dev/floor, weft.dev/class,`},
		{annotated("weft.dev/gpu", "node/gpu0"), `metadata.annotations[weft.dev/gpu]: Forbidden: weft writes it: remove it`},
		{"{metadata: {annotations: {weft.dev/floor: '0.9', weft.dev/migratable: 'yes'}}, " + asking + "}", `metadata.annotations[weft.dev/migratable]: Unsupported value: "yes": supported values: "true", "false"`},
		{"{metadata: {labels: {weft.dev/floor: '0.9'}, annotations: {weft.dev/gang: '2'}}, " + asking + "}", `metadata.labels[weft.dev/floor]: Forbidden: it is an annotation, not a label`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {nodeName: n1, containers: [{name: t, " + one + "}]}}", `spec.nodeName: Forbidden: a Pod that shares GPUs is placed by weft: name the node in spec.nodeSelector, as kubernetes.io/hostname: n1`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {schedulerName: volcano, containers: [{name: t, " + one + "}]}}", `spec.schedulerName: Invalid value: "volcano": Pods share GPUs under default-scheduler only`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}, " + asking + "}", `metadata.annotations[weft.dev/gang]: Forbidden: the Pods of a DaemonSet take whole GPUs: remove it from spec.template of DaemonSet d`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 500m}}}]}}", `spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": GPUs are whole`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 33}}}]}}", `spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "33": a container can have 32 at most`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {initContainers: [{name: i}, {name: t, resources: {requests: {nvidia.com/gpu: 1}}}], containers: [{name: c}]}}", `spec.initContainers[1].resources.limits[nvidia.com/gpu]: Required value: a GPU is asked for in limits`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}}]}}", `spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: "1": not the same as in limits`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {resourceClaims: [{name: weft-x, resourceClaimName: weft-mine}], containers: [{name: t, " + one + "}]}}", `spec.resourceClaims[0]: Forbidden: claims that begin with weft- are weft's: write nvidia.com/gpu in the container's limits, or a claim of your own, not both`},
		{"{metadata: {annotations: {weft.dev/gang: '2'}}, spec: {resourceClaims: [{name: weft-t, resourceClaimTemplateName: x}], containers: [{name: t, " + one + "}]}}", `spec.resourceClaims[0].name: Invalid value: "weft-t": weft needs this name for a claim`},
		{"{metadata: {labels: {weft.dev/managed: 'true'}, annotations: {weft.dev/claims: weft-t=1}}, spec: {resourceClaims: [{name: weft-t, resourceClaimName: weft-1}], containers: [{name: t, resources: {claims: [{name: weft-t}]}}]}}", `metadata.labels[weft.dev/managed]: Forbidden: weft writes it, with claims that belong to one Pod`},
	} {
		t.Run(c.fault, func(t *testing.T) {
			p := parse(t, c.pod)
			before := p.DeepCopy()
			changed, faults := Rewrite(p, Defaults{MinFloor: 0.1, MaxFloor: 0.95}, numbered())
			if changed || len(faults) != 1 || !strings.Contains(faults[0].Error(), c.fault) {
				t.Errorf("got %v %v,\nwant %s", changed, faults, c.fault)
			}
			if d := cmp.Diff(before, p); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestRewriteRefusesNodesOfSharingNamespaces is about a Pod whose user did not ask, and which the API server would refuse with a gate.
func TestRewriteRefusesNodesOfSharingNamespaces(t *testing.T) {
	p := parse(t, "spec: {nodeName: n1, containers: [{name: t, "+one+"}]}")
	if changed, faults := Rewrite(p, Defaults{Share: true}, numbered()); changed || len(faults) != 1 || faults[0].Field != "spec.nodeName" {
		t.Error(changed, faults)
	}
}

func TestRewriteReportsAllFaults(t *testing.T) {
	p := parse(t, "{metadata: {annotations: {weft.dev/floor: x, weft.dev/gang: x, weft.dev/zebra: x}}, spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 99}}}]}}")
	if _, faults := Rewrite(p, Defaults{}, numbered()); len(faults) != 4 {
		t.Errorf("got %d faults: %v", len(faults), faults)
	}
}

// TestRewriteAgain is about another webhook that adds a container after the first call.
func TestRewriteAgain(t *testing.T) {
	p := parse(t, "spec: {containers: [{name: t, "+one+"}]}")
	name := numbered()
	if _, faults := Rewrite(p, Defaults{Share: true}, name); len(faults) > 0 {
		t.Fatal(faults)
	}
	gpu := p.DeepCopy().Spec.Containers[0]
	p.Spec.InitContainers = append(p.Spec.InitContainers, parse(t, "spec: {containers: [{name: probe, "+one+"}]}").Spec.Containers...)
	p.Spec.Containers = append(p.Spec.Containers, parse(t, "spec: {containers: [{name: more, resources: {limits: {nvidia.com/gpu: 2}}}]}").Spec.Containers...)
	changed, faults := Rewrite(p, Defaults{Share: true}, name)
	if !changed || len(faults) > 0 {
		t.Fatal(changed, faults)
	}
	if d := cmp.Diff(gpu, p.Spec.Containers[0]); d != "" {
		t.Error(d)
	}
	if got := p.Annotations[kube.AnnotationClaims]; got != "weft-t=1,weft-more=2" {
		t.Error(got)
	}
	if got := p.Spec.InitContainers[0].Resources.Claims; len(got) != 1 || got[0].Name != "weft-t" {
		t.Error(got)
	}
	if len(p.Spec.SchedulingGates) != 1 || len(p.Spec.ResourceClaims) != 2 {
		t.Error(p.Spec.SchedulingGates, p.Spec.ResourceClaims)
	}
}

func TestReadSettings(t *testing.T) {
	p := parse(t, `
metadata:
  annotations: {weft.dev/floor: "0.85\n", weft.dev/class: guaranteed, weft.dev/memory: 8G, weft.dev/profile: "resnet50:64", weft.dev/gang: "4", weft.dev/migratable: "true"}
spec: {containers: [{name: t, `+one+`}]}`)
	if _, faults := Rewrite(p, Defaults{}, numbered()); len(faults) > 0 {
		t.Fatal(faults)
	}
	r, faults := Read(p, Defaults{})
	want := &Request{Floor: 0.85, Class: cluster.Guaranteed, Peak: 8e9, Profile: "resnet50:64", Gang: 4, Migratable: true,
		Workers: []Worker{{Claim: "weft-1", Name: "weft-t", Container: "t", GPUs: 1}}}
	if d := cmp.Diff(want, r); d != "" || len(faults) > 0 {
		t.Error(d, faults)
	}
}

func TestReadDefaults(t *testing.T) {
	p := parse(t, "spec: {containers: [{name: t, "+one+"}]}")
	if _, faults := Rewrite(p, Defaults{Share: true}, numbered()); len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct {
		d     Defaults
		floor float64
	}{{Defaults{}, 0.9}, {Defaults{Floor: 0.5}, 0.5}, {Defaults{MaxFloor: 0.8}, 0.8}, {Defaults{Floor: 0.5, MinFloor: 0.7}, 0.7}} {
		r, faults := Read(p, c.d)
		if len(faults) > 0 || r.Floor != c.floor || r.Class != cluster.Burstable || r.Gang != 1 || r.Peak != unit.Bytes(0) {
			t.Errorf("%+v: got %+v %v", c.d, r, faults)
		}
	}
}

func TestReadFindsEdits(t *testing.T) {
	for _, c := range []struct {
		name, fault string
		edit        func(p *corev1.Pod)
	}{
		{"annotation gone", `metadata.annotations[weft.dev/claims]: Invalid value: ""`, func(p *corev1.Pod) { delete(p.Annotations, kube.AnnotationClaims) }},
		{"more GPUs than there may be", `"weft-t=99": not a claim with its number of GPUs, 1 to 32: weft writes it`, func(p *corev1.Pod) { p.Annotations[kube.AnnotationClaims] = "weft-t=99" }},
		{"a claim that is not there", `"weft-u": spec.resourceClaims has no such claim`, func(p *corev1.Pod) { p.Annotations[kube.AnnotationClaims] = "weft-t=1,weft-u=1" }},
		{"a claim twice", `"weft-t=2": not a claim`, func(p *corev1.Pod) { p.Annotations[kube.AnnotationClaims] = "weft-t=1,weft-t=2" }},
		{"nobody uses it", `"weft-t": no container uses it`, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Claims = nil }},
		{"a floor", `metadata.annotations[weft.dev/floor]: Invalid value: "90%": write 0.9`, func(p *corev1.Pod) { p.Annotations[kube.AnnotationFloor] = "90%" }},
		{"both", `spec.containers[0].resources.limits[nvidia.com/gpu]: Forbidden: it has a claim of weft as well: keep one of the two`, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = parse(t, "spec: {containers: [{name: t, "+one+"}]}").Spec.Containers[0].Resources.Limits
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, "spec: {containers: [{name: t, "+one+"}]}")
			if _, faults := Rewrite(p, Defaults{Share: true}, numbered()); len(faults) > 0 {
				t.Fatal(faults)
			}
			c.edit(p)
			if r, faults := Read(p, Defaults{}); r != nil || len(faults) == 0 || !strings.Contains(faults.ToAggregate().Error(), c.fault) {
				t.Errorf("got %+v %v,\nwant %s", r, faults, c.fault)
			}
		})
	}
}

func TestReadOfOthersIsNothing(t *testing.T) {
	if r, faults := Read(parse(t, "{metadata: {annotations: {weft.dev/floor: x}}, spec: {containers: [{name: t, "+one+"}]}}"), Defaults{}); r != nil || faults != nil {
		t.Error(r, faults)
	}
}
