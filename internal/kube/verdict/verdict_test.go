package verdict

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/catalogue"
)

var epoch = metav1.NewTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))

func TestPolicy(t *testing.T) {
	p := &v1alpha1.SharingPolicy{}
	p.Generation = 2
	p.Spec.Defaults = v1alpha1.Terms{MaxFloor: "0.9"}
	p.Status = Policy(p, epoch)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PolicyAccepted)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != 2 || p.Status.ObservedGeneration != 2 {
		t.Fatalf("%+v", p.Status)
	}
	later := metav1.NewTime(epoch.Add(time.Hour))
	if again := Policy(p, later); !same(again, p.Status) {
		t.Errorf("written again: %+v", again)
	}
	p.Spec.Namespaces = []v1alpha1.NamespaceTerms{{Name: "ml", Terms: v1alpha1.Terms{Floor: "0.95"}}}
	c = meta.FindStatusCondition(Policy(p, later).Conditions, v1alpha1.PolicyAccepted)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonContradicted || !c.LastTransitionTime.Equal(&later) || !strings.Contains(c.Message, "spec.namespaces[ml].floor") {
		t.Errorf("%+v", c)
	}
}

func TestProfile(t *testing.T) {
	var in catalogue.Entry // with everything known
	for _, e := range catalogue.All() {
		if e.Peak > 0 && e.Rate > 0 && e.GPU != "" {
			in = e
		}
	}
	for _, c := range []struct {
		name, spec, reason, message string
		status                      metav1.ConditionStatus
		peak                        string
	}{
		{"stated", "{memory: {persistent: 3Gi, peak: 8Gi}}", v1alpha1.ReasonGiven, "", metav1.ConditionTrue, "8Gi"},
		{"empty", "{}", v1alpha1.ReasonLearning, "share with nobody until spec.memory is written", metav1.ConditionFalse, ""},
		{"of the catalogue", "{model: " + in.Model + ", batch: '" + in.Batch + "'}", v1alpha1.ReasonGiven, "", metav1.ConditionTrue, "*"},
		{"of nothing", "{model: zzzzzzz}", v1alpha1.ReasonNotInForce, "spec.model", metav1.ConditionFalse, ""},
		{"cannot be", "{memory: {persistent: 8Gi, peak: 3Gi}}", v1alpha1.ReasonNotInForce, "spec.memory.persistent", metav1.ConditionFalse, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &v1alpha1.WorkloadProfile{}
			if err := yaml.UnmarshalStrict([]byte("spec: "+c.spec), p); err != nil {
				t.Fatal(err)
			}
			p.Status = Profile(p, epoch)
			got := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ProfileReady)
			if got == nil || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
				t.Fatalf("%+v", got)
			}
			peak := ""
			if p.Status.Memory != nil {
				peak = p.Status.Memory.Peak.String()
			}
			if peak != c.peak && !(c.peak == "*" && p.Status.Memory != nil && p.Status.Memory.Peak.CmpInt64(int64(in.Peak)) >= 0) {
				t.Errorf("peak %q", peak)
			}
			if again := Profile(p, metav1.NewTime(epoch.Add(time.Hour))); !same(again, p.Status) {
				t.Errorf("written again: %+v\n%+v", again, p.Status)
			}
		})
	}
}

// TestCatalogueFits has the profile of every configuration be one that the API takes.
func TestCatalogueFits(t *testing.T) {
	for _, e := range catalogue.All() {
		s := v1alpha1.WorkloadProfileSpec{Model: e.Model, Batch: e.Batch}
		f, known := given(&s)
		seen := map[string]bool{}
		for _, r := range f.Rates {
			if v := r.StepsPerSecond.Float(0); v <= 0 || len(r.StepsPerSecond) > 10 || seen[r.GPUModel] {
				t.Errorf("%s:%s: rate %+v", e.Model, e.Batch, r)
			}
			seen[r.GPUModel] = true
		}
		if known && f.Memory.Persistent != nil && f.Memory.Persistent.Cmp(f.Memory.Peak) > 0 {
			t.Errorf("%s:%s: %v of %v", e.Model, e.Batch, f.Memory.Persistent, f.Memory.Peak)
		}
		if u := f.UtilisationPercent; u != nil && (*u < 1 || *u > 100) {
			t.Errorf("%s:%s: %d %%", e.Model, e.Batch, *u)
		}
	}
}

// TestLearnedStays leaves alone what was learned, until somebody states it.
func TestLearnedStays(t *testing.T) {
	p := &v1alpha1.WorkloadProfile{}
	p.Status.Source, p.Status.Iterations = v1alpha1.SourceLearned, 400
	p.Status.Memory = &v1alpha1.ProfileMemory{Peak: resource.MustParse("5Gi")}
	s := Profile(p, epoch)
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ProfileReady)
	if s.Source != v1alpha1.SourceLearned || s.Iterations != 400 || s.Memory.Peak.String() != "5Gi" || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonMeasured {
		t.Errorf("%+v", s)
	}
	p.Spec.Memory = &v1alpha1.ProfileMemory{Peak: resource.MustParse("6Gi")}
	if s := Profile(p, epoch); s.Source != v1alpha1.SourceGiven || s.Memory.Peak.String() != "6Gi" || s.Iterations != 0 {
		t.Errorf("%+v", s)
	}
}
