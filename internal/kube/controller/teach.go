package controller

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/adjust"
)

// teach has what was learned of a profile written to its status. What its author states is not overwritten.
func (c *Controller) teach(ctx context.Context, l adjust.Learned) {
	p := c.cache.profile(l.Profile)
	if p == nil || p.Spec.Memory != nil || p.Spec.Model != "" {
		return
	}
	patch, err := lesson(p, l)
	if err != nil {
		c.o.Log.Error("a profile cannot be written", "profile", l.Profile, "error", err)
		return
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		err := c.own.Patch(types.MergePatchType).Namespace(p.Namespace).Resource("workloadprofiles").Name(p.Name).SubResource("status").Body(patch).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			c.o.Log.Warn("what was learned of a profile cannot be written", "profile", l.Profile, "error", err)
		}
	})
}

// lesson is the patch of a profile's status by what was learned. Its condition is judged by who judges all profiles.
func lesson(p *v1alpha1.WorkloadProfile, l adjust.Learned) ([]byte, error) {
	status := v1alpha1.WorkloadProfileStatus{Figures: l.Figures, Source: v1alpha1.SourceLearned, Iterations: p.Status.Iterations + l.Iterations}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
}
