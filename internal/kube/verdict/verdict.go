// Package verdict says in the status of policies and profiles whether they are in force, and with which figures: what `kubectl get`
// shows. Judging is pure; Keeper writes.
package verdict

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/kube/webhook"
	"weft.dev/weft/internal/unit"
)

// Policy is the status that a policy should have. It is the present one where nothing is to change.
func Policy(p *v1alpha1.SharingPolicy, now metav1.Time) v1alpha1.SharingPolicyStatus {
	s := *p.Status.DeepCopy()
	s.ObservedGeneration = p.Generation
	c := metav1.Condition{Type: v1alpha1.PolicyAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInForce}
	if faults := webhook.CheckPolicy(&p.Spec); len(faults) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonContradicted, faults.ToAggregate().Error()
	}
	set(&s.Conditions, c, p.Generation, now)
	return s
}

// Profile is the status that a profile should have: the figures that its author gives, those of the catalogue, or those that were
// learned before.
func Profile(p *v1alpha1.WorkloadProfile, now metav1.Time) v1alpha1.WorkloadProfileStatus {
	s := *p.Status.DeepCopy()
	s.ObservedGeneration = p.Generation
	c := metav1.Condition{Type: v1alpha1.ProfileReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGiven}
	figures, given := given(&p.Spec)
	faults := webhook.CheckProfile(&p.Spec)
	switch {
	case len(faults) > 0:
		s.Figures, s.Source, s.Iterations = v1alpha1.Figures{}, "", 0
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotInForce, faults.ToAggregate().Error()
	case given:
		s.Figures, s.Source, s.Iterations = figures, v1alpha1.SourceGiven, 0
	case s.Source == v1alpha1.SourceLearned && s.Memory != nil:
		c.Reason = v1alpha1.ReasonMeasured
	default:
		s.Figures, s.Source = figures, ""
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonLearning
		c.Message = "its jobs share with nobody until spec.memory is written, or one has run"
	}
	set(&s.Conditions, c, p.Generation, now)
	return s
}

// set puts a condition among others. It keeps the time of the last change where nothing changed.
func set(list *[]metav1.Condition, c metav1.Condition, generation int64, now metav1.Time) {
	c.ObservedGeneration, c.LastTransitionTime = generation, now
	meta.SetStatusCondition(list, c)
}

// given are the figures that a spec states, completed from the catalogue where it names a configuration; false without memory.
func given(s *v1alpha1.WorkloadProfileSpec) (v1alpha1.Figures, bool) {
	f := *s.Figures.DeepCopy()
	if s.Model != "" {
		fill(&f, measured(s.Model, s.Batch))
	}
	return f, f.Memory != nil
}

// measured are the entries of the catalogue for a configuration.
func measured(model, batch string) []catalogue.Entry {
	return slices.DeleteFunc(catalogue.All(), func(e catalogue.Entry) bool { return e.Model != model || e.Batch != batch })
}

// fill states what figures leave out, by entries of the catalogue. Where they differ, memory and utilisation are the highest: a job
// is never taken for smaller than it may be.
func fill(f *v1alpha1.Figures, entries []catalogue.Entry) {
	var persistent, peak unit.Bytes
	utilisation := 0.0
	flat := false // of an entry the persistent part is not known
	for _, e := range entries {
		peak, persistent, utilisation = max(peak, e.Peak), max(persistent, e.Persistent), max(utilisation, e.GPUUtil)
		flat = flat || e.Peak > 0 && e.Persistent == 0
		known := slices.ContainsFunc(f.Rates, func(r v1alpha1.Rate) bool { return r.GPUModel == e.GPU })
		if e.GPU != "" && e.Rate > 0 && !known {
			f.Rates = append(f.Rates, v1alpha1.Rate{GPUModel: e.GPU, StepsPerSecond: v1alpha1.NewFraction(e.Rate)})
		}
	}
	if f.Memory == nil && peak > 0 {
		f.Memory = &v1alpha1.ProfileMemory{Peak: *resource.NewQuantity(int64(peak), resource.BinarySI)}
		if persistent > 0 && !flat {
			f.Memory.Persistent = resource.NewQuantity(int64(persistent), resource.BinarySI)
		}
	}
	if f.UtilisationPercent == nil && utilisation > 0 {
		const percent = 100
		v := int32(max(1, min(percent, utilisation*percent)))
		f.UtilisationPercent = &v
	}
	slices.SortFunc(f.Rates, func(a, b v1alpha1.Rate) int { return cmp.Compare(a.GPUModel, b.GPUModel) })
}

// same says whether two statuses say the same.
func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
