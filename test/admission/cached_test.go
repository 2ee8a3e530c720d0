package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/webhook"
)

// cached is a webhook.Source that reads through a client.
type cached struct{ client.Reader }

// Policy is the policy of the cluster; nil where there is none. One that contradicts itself, and was created while nobody could
// refuse it, is as none.
func (c cached) Policy(ctx context.Context) (*v1alpha1.SharingPolicySpec, error) {
	var p v1alpha1.SharingPolicy
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.PolicyName}, &p)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get SharingPolicy %s: %w", v1alpha1.PolicyName, err)
	case len(webhook.CheckPolicy(&p.Spec)) > 0:
		return nil, nil
	}
	return &p.Spec, nil
}

// Profiles are the names of the profiles of a namespace.
func (c cached) Profiles(ctx context.Context, namespace string) ([]string, error) {
	var list v1alpha1.WorkloadProfileList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list WorkloadProfiles: %w", err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}
