package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long rights may take to become known; they do within moments.
const patience = 30 * time.Second

// TestGateAndMarksAreWeftsAlone has an administrator, who may do everything else, try.
func TestGateAndMarksAreWeftsAlone(t *testing.T) {
	s := at(t)
	ctx := t.Context()
	p, err := pod("shared", "{metadata: {name: gated}, spec: {"+container+"}}")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.admin.Delete(t.Context(), p, client.GracePeriodSeconds(0)) }()
	edit := func(c client.Client, patch string) error {
		return c.Patch(ctx, p.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll)
	}
	lift := `[{"op":"remove","path":"/spec/schedulingGates/0"}]`
	refused(t, edit(s.admin, lift), "spec.schedulingGates: weft.dev/placement is lifted by weft")
	refused(t, edit(s.admin, `[{"op":"remove","path":"/metadata/labels/weft.dev~1managed"}]`), "metadata.labels[weft.dev/managed]: weft alone sets it")
	const marks = "metadata.annotations: weft.dev/claims, weft.dev/gpu and weft.dev/moved are set by weft alone"
	refused(t, edit(s.admin, `[{"op":"replace","path":"/metadata/annotations/weft.dev~1claims","value":"weft-t=8"}]`), marks)
	refused(t, edit(s.admin, `[{"op":"add","path":"/metadata/annotations/weft.dev~1gpu","value":"n/gpu0"}]`), marks)
	refused(t, edit(s.admin, `[{"op":"add","path":"/metadata/annotations/weft.dev~1moved","value":"2026-11-30T12:00:00Z"}]`), marks)
	moved, err := pod("shared", `{metadata: {name: moved, annotations: {weft.dev/moved: "2026-11-30T12:00:00Z"}}, spec: {`+container+"}}")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s.admin.Create(ctx, moved), "metadata.annotations[weft.dev/moved]: Forbidden: weft writes it: remove it")
	for _, other := range []string{`[{"op":"add","path":"/metadata/labels/mine","value":"1"}]`, `[{"op":"add","path":"/metadata/annotations/weft.dev~1floor","value":"0.7"}]`} {
		if err := edit(s.admin, other); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	own, err := s.as(controller, nil, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	if err := edit(own, lift); err != nil {
		t.Errorf("the controller: %v", err)
	}
}

// TestMarksCannotBeForged creates Pods that look as if weft had made them.
func TestMarksCannotBeForged(t *testing.T) {
	s := at(t)
	for _, c := range []struct{ pod, fault string }{
		{"{metadata: {name: p, labels: {weft.dev/managed: 'true'}}, spec: {containers: [{name: t, image: x}]}}", "metadata.labels[weft.dev/managed]: weft alone sets it"},
		{"{metadata: {name: p}, spec: {schedulingGates: [{name: weft.dev/placement}], containers: [{name: t, image: x}]}}", "spec.schedulingGates: weft.dev/placement is put there by weft alone"},
		{"{metadata: {name: p}, spec: {resourceClaims: [{name: c, resourceClaimName: weft-abcdefghij}], containers: [{name: t, image: x, resources: {claims: [{name: c}]}}]}}",
			"spec.resourceClaims: claims whose names begin with weft- belong to the Pods"},
	} {
		_, err := s.dry(t.Context(), "plain", c.pod)
		refused(t, err, c.fault)
	}
	if _, err := s.dry(t.Context(), "plain", "{metadata: {name: p}, spec: {schedulingGates: [{name: mine}], resourceClaims: [{name: c, resourceClaimName: nic}], containers: [{name: t, image: x, resources: {claims: [{name: c}]}}]}}"); err != nil {
		t.Errorf("a Pod that has nothing to do with weft: %v", err)
	}
}

// TestClaimsAreWeftsAlone creates claims and templates of both classes.
func TestClaimsAreWeftsAlone(t *testing.T) {
	s := at(t)
	own, err := s.as(controller, nil, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(devices string) string {
		return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: plain}, spec: {devices: " + devices + "}}"
	}
	template := func(devices string) string {
		return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: c, namespace: plain}, spec: {spec: {devices: " + devices + "}}}"
	}
	const (
		shared = "{requests: [{name: gpu0, exactly: {deviceClassName: share.weft.dev, capacity: {requests: {memory: 1Gi, share: 250}}}}]}"
		either = "{requests: [{name: gpu0, firstAvailable: [{name: a, deviceClassName: other}, {name: b, deviceClassName: share.weft.dev}]}]}"
		whole  = "{requests: [{name: gpu0, exactly: {deviceClassName: gpu.weft.dev}}]}"
		part   = "{requests: [{name: gpu0, exactly: {deviceClassName: gpu.weft.dev, capacity: {requests: {memory: 1Gi, share: 1}}}}]}"
		forged = "{requests: [{name: gpu0, exactly: {deviceClassName: gpu.weft.dev}}], config: [{opaque: {driver: gpu.weft.dev, parameters: {kind: Worker}}}]}"
	)
	for _, form := range []func(string) string{claim, template} {
		refused(t, s.admin.Create(t.Context(), object(t, form(shared)), client.DryRunAll), "spec.devices.requests: claims of class share.weft.dev are made by weft alone")
		refused(t, s.admin.Create(t.Context(), object(t, form(either)), client.DryRunAll), "claims of class share.weft.dev are made by weft alone")
		refused(t, s.admin.Create(t.Context(), object(t, form(part)), client.DryRunAll), "a claim of class gpu.weft.dev is a whole GPU")
		refused(t, s.admin.Create(t.Context(), object(t, form(forged)), client.DryRunAll), "spec.devices.config: the driver gpu.weft.dev takes configuration from weft alone")
		if err := s.admin.Create(t.Context(), object(t, form(whole)), client.DryRunAll); err != nil {
			t.Errorf("a whole GPU: %v", err)
		}
	}
	o := object(t, claim(shared))
	if err := own.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.admin.Delete(t.Context(), o) }()
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	refused(t, patch(s.admin, `{"metadata":{"labels":{"weft.dev/managed":"true"}}}`), "metadata: labels and ownerReferences of claims of class share.weft.dev are set by weft alone")
	if err := patch(s.admin, `{"metadata":{"finalizers":["example.com/mine"]}}`); err != nil {
		t.Errorf("a finalizer: %v", err)
	}
}

// TestAgentsSpeakForTheirNode has the account of the agents publish slices, as on one node.
func TestAgentsSpeakForTheirNode(t *testing.T) {
	s := at(t)
	on := func(extra map[string][]string) client.Client {
		c, err := s.as(agent, extra, "system:serviceaccounts", "system:serviceaccounts:"+system)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	n1 := on(map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}})
	slice := func(node, driver string) string {
		return fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {nodeName: %s, driver: %s, pool: {name: %s, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0}]}}", node, driver, node)
	}
	if err := n1.Create(t.Context(), object(t, slice("n1", "gpu.weft.dev")), client.DryRunAll); err != nil {
		t.Error(err)
	}
	refused(t, n1.Create(t.Context(), object(t, slice("n2", "gpu.weft.dev")), client.DryRunAll), "spec.nodeName: the agent of node n1 may not speak for n2")
	refused(t, n1.Create(t.Context(), object(t, slice("n1", "other.example.com")), client.DryRunAll), "spec.driver: agents of weft publish devices of gpu.weft.dev")
	refused(t, on(nil).Create(t.Context(), object(t, slice("n1", "gpu.weft.dev")), client.DryRunAll), "spec.nodeName:")
	for _, name := range []string{"n1", "n2"} {
		node := object(t, "{apiVersion: v1, kind: Node, metadata: {name: "+name+"}}")
		if err := s.admin.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.admin.Delete(context.Background(), node) }) // the server ends with the tests
		err := n1.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"weft.dev/Serving","status":"True"}]}}`)))
		if name == "n1" && err != nil {
			t.Error(err)
		}
		if name == "n2" {
			refused(t, err, "the agent of node n1 may not speak for n2")
		}
	}
}

// TestAgentsSpeakOfTheirClaims has the account of the agents write what it sees of claims: first with the rights that it has, then with
// all that the API server asks for, so that the policy alone is in the way.
func TestAgentsSpeakOfTheirClaims(t *testing.T) {
	s := at(t)
	own, err := s.as(controller, nil, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	c := object(t, "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: weft-seen, namespace: plain}, spec: {devices: {requests: [{name: gpu0, exactly: {deviceClassName: share.weft.dev}}]}}}")
	if err := own.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.admin.Delete(context.Background(), c) }() // the server ends with the tests
	patch := func(c2 client.Client, text string, options ...client.SubResourcePatchOption) error {
		return c2.Status().Patch(t.Context(), c.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	allocation := func(node string) string {
		return `"allocation":{"devices":{"results":[{"request":"gpu0","driver":"gpu.weft.dev","pool":"n1","device":"gpu-0"},{"request":"gpu0","driver":"other.example.com","pool":"n1","device":"d"}]},` +
			`"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["` + node + `"]}]}]}}`
	}
	if err := patch(s.admin, `{"status":{`+allocation("n1")+`}}`); err != nil {
		t.Fatal(err)
	}
	as := func(node string) client.Client {
		c, err := s.as(agent, map[string][]string{"authentication.kubernetes.io/node-name": {node}}, "system:serviceaccounts", "system:serviceaccounts:"+system)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const (
		seen   = `{"status":{"devices":[{"driver":"gpu.weft.dev","pool":"n1","device":"gpu-0","data":{"kind":"Window"}}]}}`
		others = `{"status":{"devices":[{"driver":"other.example.com","pool":"n1","device":"d","data":{"kind":"Window"}}]}}`
		users  = `{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}}`
	)
	refused(t, patch(as("n2"), seen, client.DryRunAll), "resourceclaims/driver", "arbitrary-node:patch")
	refused(t, patch(as("n1"), others, client.DryRunAll), "resourceclaims/driver")
	refused(t, patch(as("n1"), users, client.DryRunAll), "resourceclaims/binding")
	var lent []client.Object
	defer func() { s.takeBack(t, lent, "patch resourceclaims/binding.resource.k8s.io") }() // others look at what the account may do
	for _, text := range []string{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: too-much}, rules: [" +
			"{apiGroups: [resource.k8s.io], resources: [resourceclaims/binding, resourceclaims/driver], verbs: [patch, 'arbitrary-node:patch']}]}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: too-much}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: too-much}, " +
			"subjects: [{kind: ServiceAccount, name: weft-agent, namespace: " + system + "}]}",
	} {
		o := object(t, text)
		if err := s.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		lent = append(lent, o)
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := patch(as("n2"), seen, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "resourceclaims/driver") && time.Now().Before(until) {
			continue
		}
		refused(t, err, "status.devices: the agent of node n2 may not speak for n1")
		break
	}
	refused(t, patch(as("n1"), others, client.DryRunAll), "status.devices: agents of weft speak of devices of gpu.weft.dev")
	refused(t, patch(as("n1"), users, client.DryRunAll), "status: an agent says what it sees of a claim's devices, and changes nothing else")
	if err := patch(as("n1"), seen); err != nil {
		t.Error(err)
	}
	if err := patch(as("n1"), strings.Replace(seen, `"Window"`, `"Window","beside":1`, 1)); err != nil {
		t.Error(err)
	}
}

// takeBack takes from the agents' account what it may do by some objects, and waits until it may no longer.
func (s *site) takeBack(t *testing.T, lent []client.Object, right string) {
	t.Helper()
	for _, o := range lent {
		_ = s.admin.Delete(t.Context(), o) // the server ends with the tests
	}
	for until := time.Now().Add(patience); s.can(t, agent, right); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: it is taken from the agents' account, which may do it still", right)
		}
	}
}

func TestGangsFitTheirJobs(t *testing.T) {
	s := at(t)
	job := func(gang, rest string) string {
		return fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: plain}, spec: {%stemplate: {metadata: {annotations: {weft.dev/gang: '%s'}}, spec: {restartPolicy: Never, %s}}}}", rest, gang, container)
	}
	refused(t, s.admin.Create(t.Context(), object(t, job("4", "parallelism: 2, ")), client.DryRunAll),
		"spec.template.metadata.annotations[weft.dev/gang]: 4 Pods are to start together, and spec.parallelism is 2: make them equal")
	refused(t, s.admin.Create(t.Context(), object(t, job("2", "")), client.DryRunAll), "2 Pods are to start together, and spec.parallelism is 1")
	refused(t, s.admin.Create(t.Context(), object(t, job("two", "")), client.DryRunAll), "spec.template.metadata.annotations[weft.dev/gang]: two is no number of Pods")
	for _, good := range []string{job("4", "parallelism: 4, "), job("1", "")} {
		if err := s.admin.Create(t.Context(), object(t, good), client.DryRunAll); err != nil {
			t.Error(err)
		}
	}
}

// TestAccountsMayNothingElse asks for what neither part has any business with.
func TestAccountsMayNothingElse(t *testing.T) {
	s := at(t)
	for user, may := range map[string]map[string]bool{
		controller: {"create pods": false, "delete pods": false, "update pods": false, "patch pods": true, "create pods/eviction": true, "create pods/exec": false,
			"get secrets": false, "list secrets": false, "create resourceclaims.resource.k8s.io": true, "update resourceclaims.resource.k8s.io": false,
			"patch nodes": false, "create resourceslices.resource.k8s.io": false, "impersonate users": false, "create tokenreviews.authentication.k8s.io": false,
			"delete mutatingwebhookconfigurations.admissionregistration.k8s.io": false, "update sharingpolicies.weft.dev": false},
		agent: {"list pods": false, "get pods": false, "patch pods": false, "get secrets": false, "patch nodes": false, "patch nodes/status": true, "get resourceclaims.resource.k8s.io": true,
			"list resourceclaims.resource.k8s.io": false, "update resourceclaims.resource.k8s.io": false, "patch resourceclaims.resource.k8s.io": false, "patch resourceclaims/status.resource.k8s.io": true,
			"update resourceclaims/status.resource.k8s.io": false, "patch resourceclaims/binding.resource.k8s.io": false,
			"associated-node:patch resourceclaims/driver.resource.k8s.io": false, "arbitrary-node:patch resourceclaims/driver.resource.k8s.io": false,
			"create resourceslices.resource.k8s.io": true, "create pods/eviction": false},
	} {
		for what, want := range may {
			if got := s.can(t, user, what); got != want {
				t.Errorf("%s may %s: %v", user, what, got)
			}
		}
	}
}

// can says whether a user may do "VERB RESOURCE[/SUBRESOURCE][.GROUP]" in a namespace that is not weft's.
func (s *site) can(t *testing.T, user, what string) bool {
	t.Helper()
	verb, rest, _ := strings.Cut(what, " ")
	resource, group, _ := strings.Cut(rest, ".")
	resource, sub, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "plain", Verb: verb, Group: group, Resource: resource, Subresource: sub}}}
	if err := s.admin.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
