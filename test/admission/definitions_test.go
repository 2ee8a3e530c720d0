package admission

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/verdict"
)

// TestDefinitionsRefuse creates objects that cannot be meant, while the webhook answers.
func TestDefinitionsRefuse(t *testing.T) {
	s := at(t)
	policy := func(spec string) string {
		return "{apiVersion: weft.dev/v1alpha1, kind: SharingPolicy, metadata: {name: default}, spec: " + spec + "}"
	}
	profile := func(spec string) string {
		return "{apiVersion: weft.dev/v1alpha1, kind: WorkloadProfile, metadata: {name: p, namespace: plain}, spec: " + spec + "}"
	}
	for _, c := range []struct{ object, fault string }{
		{strings.Replace(policy("{}"), "default", "other", 1), `metadata.name: a cluster has one policy: name it default`},
		{policy("{epsilon: '1.5'}"), `spec.epsilon: Invalid value: "1.5": a probability in [0, 1), such as 0.05`},
		{policy("{epsilon: 0.05}"), `spec.epsilon: Invalid value: "number": spec.epsilon in body must be of type string`},
		{policy("{residents: 9}"), `spec.residents: Invalid value: 9: spec.residents in body should be less than or equal to 8`},
		{policy("{defaults: {floor: '90%'}}"), `spec.defaults.floor: Invalid value: "90%": a share of the speed alone in (0, 1]: write 0.9 for 90 %`},
		{policy("{defaults: {floor: '0'}}"), `spec.defaults.floor: Invalid value: "0": a share of the speed alone in (0, 1]`},
		{policy("{defaults: {floor: '0.95', maxFloor: '0.9'}}"), `spec.defaults.floor: Invalid value: 0.95 is above maxFloor 0.9`},
		{policy("{defaults: {floor: '0.5', minFloor: '0.6'}}"), `spec.defaults.floor: Invalid value: 0.5 is below minFloor 0.6`},
		{policy("{namespaces: [{name: ml, minFloor: '0.9', maxFloor: '0.5'}]}"), `spec.namespaces[0].minFloor: Invalid value: 0.9 is above maxFloor 0.5`},
		{policy("{namespaces: [{name: ml}, {name: ml}]}"), `spec.namespaces[1]: Duplicate value`},
		{policy("{namespaces: [{name: ML_1}]}"), `spec.namespaces[0].name: Invalid value: "ML_1": not the name of a namespace`},
		{policy("{namespaces: [{name: ml, class: gold}]}"), `spec.namespaces[0].class: Unsupported value: "gold": supported values: "guaranteed", "burstable", "besteffort"`},
		{policy("{namespaces: [{name: ml, quota: -1}]}"), `spec.namespaces[0].quota: Invalid value: -1`},
		{policy("{namespaces: [{name: ml, weight: 0}]}"), `spec.namespaces[0].weight: Invalid value: 0`},
		{policy("{migration: {moves: -1}}"), `spec.migration.moves: Invalid value: -1`},
		{policy("{defaults: {maxFloor: '0.9'}, namespaces: [{name: ml, floor: '0.95'}]}"), `spec.namespaces[ml].floor: Invalid value: "0.95": above maxFloor 0.9 of spec.defaults`},
		{policy("{residnets: 3}"), `unknown field "spec.residnets"`},
		{profile("{batch: '64'}"), `spec.batch: Invalid value: a batch size belongs to a model: write spec.model as well`},
		{profile("{utilisationPercent: 140}"), `spec.utilisationPercent: Invalid value: 140`},
		{profile("{memory: {persistent: 1Gi}}"), `spec.memory.peak: Required value`},
		{profile("{memory: {peak: lots}}"), `spec.memory.peak: Invalid value: "lots"`},
		{profile("{memory: {persistent: 8Gi, peak: 3Gi}}"), `spec.memory.persistent: Invalid value: "8Gi": outside (0, peak]: the peak includes it`},
		{profile("{rates: [{gpuModel: a100, stepsPerSecond: '0'}]}"), `spec.rates[0].stepsPerSecond: Invalid value: "0": a number above 0, such as 12.5`},
		{profile("{rates: [{gpuModel: A100, stepsPerSecond: '1'}]}"), `spec.rates[0].gpuModel: Invalid value: "A100": write the short name of the GPU model in lower case`},
		{profile("{rates: [{gpuModel: a100, stepsPerSecond: '1'}, {gpuModel: a100, stepsPerSecond: '2'}]}"), `spec.rates[1]: Duplicate value`},
		{profile("{model: ResNet-81, batch: '16'}"), `spec.model: Not found: "ResNet-81": not in weft catalogue: write ResNet-18`},
	} {
		err := s.admin.Create(t.Context(), object(t, c.object), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		refused(t, err, c.fault)
	}
}

// TestDefaults creates a policy of which everything is left out.
func TestDefaults(t *testing.T) {
	s := at(t)
	for _, text := range []string{"{}", "{spec: {}}"} {
		o := object(t, text)
		o.SetAPIVersion("weft.dev/v1alpha1")
		o.SetKind("SharingPolicy")
		o.SetName("default")
		if err := s.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.SharingPolicy
		if err := s.admin.Get(t.Context(), client.ObjectKey{Name: "default"}, &p); err != nil {
			t.Fatal(err)
		}
		if p.Spec.Epsilon != "0.05" || p.Spec.Residents != 4 || p.Spec.Defaults.Floor != "0.9" || p.Spec.Migration.Moves == nil || *p.Spec.Migration.Moves != 12 {
			t.Errorf("%s: %+v", text, p.Spec)
		}
		if err := s.admin.Delete(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestColumns is what kubectl get shows.
func TestColumns(t *testing.T) {
	s := at(t)
	ctx := t.Context()
	policy := object(t, "{apiVersion: weft.dev/v1alpha1, kind: SharingPolicy, metadata: {name: default}, spec: {epsilon: '0.02', residents: 3, defaults: {floor: '0.85'}, migration: {moves: 6}}}")
	profile := object(t, "{apiVersion: weft.dev/v1alpha1, kind: WorkloadProfile, metadata: {name: bert-ft, namespace: plain}, spec: {model: bert-large, memory: {persistent: 3Gi, peak: 8Gi}, rates: [{gpuModel: a100, stepsPerSecond: '12.5'}]}}")
	for _, o := range []client.Object{policy, profile} {
		if err := s.admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.admin.Delete(context.Background(), o) })
	}
	own, err := s.as(controller, nil, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	keeper := verdict.Keeper{Client: own, Log: slog.New(slog.DiscardHandler)}
	if err := keeper.Look(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	written := policy.DeepCopy()
	if err := s.admin.Get(ctx, client.ObjectKeyFromObject(policy), written); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Look(ctx, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	again := policy.DeepCopy()
	if err := s.admin.Get(ctx, client.ObjectKeyFromObject(policy), again); err != nil || again.GetResourceVersion() != written.GetResourceVersion() {
		t.Errorf("what says the same was written again: %v", err)
	}
	for _, c := range []struct{ args, want string }{
		{"sharingpolicies", "NAME EPSILON RESIDENTS FLOOR MOVES ACCEPTED AGE\ndefault 0.02 3 0.85 6 True #s"},
		{"-n plain wp", "NAME MODEL PERSISTENT PEAK RATE SOURCE READY AGE\nbert-ft bert-large 3Gi 8Gi 12.5 Given Given #s"},
	} {
		text, err := s.kubectl(ctx, append([]string{"get"}, strings.Fields(c.args)...)...)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		got := regexp.MustCompile(` +`).ReplaceAllString(strings.TrimSpace(text), " ")
		got = regexp.MustCompile(` \n`).ReplaceAllString(regexp.MustCompile(`[0-9]+s$`).ReplaceAllString(got, "#s"), "\n")
		if got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
