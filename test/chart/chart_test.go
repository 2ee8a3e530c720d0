package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const folder = "../../charts/weft"

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s:%d: want %q, got %q; go test ./... -update writes it anew", path, i+1, a[i], b[i])
		}
	}
	t.Fatalf("%s has %d lines, got %d; go test ./... -update writes it anew", path, len(a), len(b))
}

// render is the documents of a chart with values in YAML.
func render(t *testing.T, values string) ([]map[string]any, string) {
	t.Helper()
	var set map[string]any
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	text, err := Manifest(folder, set)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text)), string(text)
}

// hooks is what of a chart with values in YAML Helm makes only at certain moments.
func hooks(t *testing.T, values string) ([]map[string]any, string) {
	t.Helper()
	var set map[string]any
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	text, err := Hooks(folder, set)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, text), text
}

// parsed is the objects of a text.
func parsed(t *testing.T, text string) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for _, d := range documents(text) {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(d), &o); err != nil {
			t.Fatalf("%v in:\n%s", err, d)
		}
		objects = append(objects, o)
	}
	return objects
}

// withoutDefinitions is a manifest without the CRDs, which are long, generated, and compared where they are.
func withoutDefinitions(text string) string {
	var kept []string
	for _, d := range documents(text) {
		if !strings.Contains(d, "kind: CustomResourceDefinition") {
			kept = append(kept, d)
		}
	}
	return strings.Join(kept, "\n---\n") + "\n"
}

// everything is values that turn on what is off by default, and others off.
const everything = `
image: {repository: registry.example.com/weft, tag: v9, pullPolicy: Always}
imagePullSecrets: [{name: regcred}]
controller:
  replicas: 2
  nodeSelector: {role: infra}
  tolerations: [{key: infra, operator: Exists}]
  affinity: {nodeAffinity: {}}
  podAnnotations: {a: b}
  extraArgs: [--json]
  extraEnv: [{name: A, value: B}]
agent:
  nodeSelector: {gpu: "true"}
  runtimeClassName: nvidia
  kubeletDir: /data/kubelet
  cdiDir: /etc/cdi-of-weft
  emulated: /run/weft-emu
  podAnnotations: {c: d}
  extraArgs: [--json]
  extraEnv: [{name: C, value: D}]
webhook: {timeoutSeconds: 3, certificateLifetime: 5m, excludedNamespaces: [kube-system, ours]}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
metrics: {port: 9090}
policy: {epsilon: "0.02", namespaces: [{name: ml, floor: "0.8", quota: 16}]}
crds: {keep: true}
uninstall: {wait: 4m, deleteWaiting: true}
`

func TestGolden(t *testing.T) {
	for _, c := range []struct{ file, values string }{
		{"default.yaml", ""},
		{"everything.yaml", everything},
		{"least.yaml", "{admissionPolicies: {enabled: false}, networkPolicy: {enabled: false}, uninstall: {enabled: false}}"},
	} {
		t.Run(c.file, func(t *testing.T) {
			_, text := render(t, c.values)
			golden(t, c.file, withoutDefinitions(text))
			_, hook := hooks(t, c.values)
			golden(t, strings.Replace(c.file, ".yaml", "-hooks.yaml", 1), hook)
		})
	}
}

// TestManifest compares what is committed for `kubectl apply` with the chart.
func TestManifest(t *testing.T) {
	_, text := render(t, "")
	committed, err := os.ReadFile("../../deploy/weft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text != string(committed) {
		t.Error("deploy/weft.yaml is not what the chart renders: make chart")
	}
}

// TestRights lists every verb that the chart grants, one a line, so that a new one is seen in review.
func TestRights(t *testing.T) {
	objects, _ := render(t, "")
	temporary, _ := hooks(t, "uninstall: {deleteWaiting: true}")
	objects = append(objects, temporary...)
	var lines []string
	for _, o := range objects {
		kind, _ := o["kind"].(string)
		if kind != "ClusterRole" && kind != "Role" {
			continue
		}
		rules, _ := o["rules"].([]any)
		for _, r := range rules {
			rule := r.(map[string]any)
			for _, group := range texts(rule["apiGroups"]) {
				for _, resource := range texts(rule["resources"]) {
					for _, verb := range texts(rule["verbs"]) {
						if verb == "*" || resource == "*" || group == "*" {
							t.Errorf("%v grants everything", rule)
						}
						line := fmt.Sprintf("%s %s: %s %s", kind, name(o), verb, strings.TrimSuffix(resource+"."+group, "."))
						if names := texts(rule["resourceNames"]); len(names) > 0 {
							line += " named " + strings.Join(names, ", ")
						}
						lines = append(lines, line)
					}
				}
			}
		}
	}
	slices.Sort(lines)
	golden(t, "rights.txt", strings.Join(lines, "\n")+"\n")
}

func texts(list any) []string {
	var found []string
	items, _ := list.([]any)
	for _, v := range items {
		found = append(found, v.(string))
	}
	return found
}

func name(o map[string]any) string {
	metadata, _ := o["metadata"].(map[string]any)
	n, _ := metadata["name"].(string)
	return n
}

// at is a value at a path of keys; numbers are indexes.
func at(o any, keys ...any) any {
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			m, _ := o.(map[string]any)
			o = m[k]
		case int:
			l, _ := o.([]any)
			if k >= len(l) {
				return nil
			}
			o = l[k]
		}
	}
	return o
}

// TestControllerIsRestricted holds the controller, and what runs before the chart is removed, to Pod Security "restricted", whatever the
// values.
func TestControllerIsRestricted(t *testing.T) {
	for _, values := range []string{"", everything} {
		objects, _ := render(t, values)
		temporary, _ := hooks(t, values)
		for _, o := range append(objects, temporary...) {
			if o["kind"] == "Deployment" || o["kind"] == "Job" {
				checkRestricted(t, o)
			}
		}
	}
}

// checkRestricted looks at the Pods of an object.
func checkRestricted(t *testing.T, o map[string]any) {
	t.Helper()
	spec := at(o, "spec", "template", "spec")
	for _, c := range []struct {
		want any
		path []any
	}{
		{true, []any{"securityContext", "runAsNonRoot"}},
		{"RuntimeDefault", []any{"securityContext", "seccompProfile", "type"}},
		{false, []any{"containers", 0, "securityContext", "allowPrivilegeEscalation"}},
		{true, []any{"containers", 0, "securityContext", "readOnlyRootFilesystem"}},
		{"ALL", []any{"containers", 0, "securityContext", "capabilities", "drop", 0}},
		{nil, []any{"containers", 0, "securityContext", "capabilities", "add"}},
		{nil, []any{"volumes"}}, {nil, []any{"hostPID"}}, {nil, []any{"hostNetwork"}}, {nil, []any{"hostIPC"}},
	} {
		if got := at(spec, c.path...); got != c.want {
			t.Errorf("%s: %v is %v", name(o), c.path, got)
		}
	}
}

// TestAgentIsNotPrivileged holds what the agents have of their nodes to a list.
func TestAgentIsNotPrivileged(t *testing.T) {
	for values, folders := range map[string][]string{
		"":         {"/etc/cdi", "/run/weft", "/var/lib/kubelet/plugins/gpu.weft.dev", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"},
		everything: {"/data/kubelet/plugins/gpu.weft.dev", "/data/kubelet/plugins_registry", "/etc/cdi-of-weft", "/run/weft", "/run/weft-emu"},
	} {
		objects, _ := render(t, values)
		i := slices.IndexFunc(objects, func(o map[string]any) bool { return o["kind"] == "DaemonSet" })
		spec := at(objects[i], "spec", "template", "spec")
		if at(spec, "containers", 0, "securityContext", "privileged") != nil || at(spec, "hostNetwork") != nil {
			t.Error("privileged, or in the network of its node")
		}
		var got []string
		volumes, _ := at(spec, "volumes").([]any)
		for _, v := range volumes {
			path, _ := at(v, "hostPath", "path").(string)
			got = append(got, path)
		}
		if slices.Sort(got); !slices.Equal(got, folders) {
			t.Errorf("folders of the node: %v", got)
		}
	}
}

// TestNobodyElseIsAsked holds the webhooks to those who opted in.
func TestNobodyElseIsAsked(t *testing.T) {
	objects, _ := render(t, everything)
	for _, o := range objects {
		hooks, _ := o["webhooks"].([]any)
		for _, h := range hooks {
			policy := at(h, "failurePolicy")
			if o["kind"] == "ValidatingWebhookConfiguration" {
				if policy != "Ignore" {
					t.Errorf("%v: %v", at(h, "name"), policy)
				}
				continue
			}
			excluded := texts(at(h, "namespaceSelector", "matchExpressions", 1, "values"))
			if policy != "Fail" || !slices.Equal(excluded, []string{"kube-system", "ours", Namespace}) || at(h, "matchConditions", 0, "name") != "asks-for-a-gpu" {
				t.Errorf("%v: %v %v", at(h, "name"), policy, excluded)
			}
		}
	}
}
