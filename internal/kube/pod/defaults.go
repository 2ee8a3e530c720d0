package pod

import (
	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cluster"
)

// In is what holds in a namespace by the policy of the cluster, nil for none. share says whether the namespace's label makes its
// Pods share.
func In(policy *v1alpha1.SharingPolicySpec, namespace string, share bool) Defaults {
	t := policy.In(namespace)
	class, _ := cluster.ParseClass(t.Class)
	return Defaults{Floor: t.Floor.Float(StandardFloor), MinFloor: t.MinFloor.Float(0), MaxFloor: t.MaxFloor.Float(0), Class: class, Share: share}
}
