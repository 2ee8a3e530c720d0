package driver

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/internal/kube"
)

// Rules are all that the driver does in the cluster, for its role.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"nodes"}, Verbs: []string{"get"}},                                                      // who else serves it, and its UID
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},                                             // the condition
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},                                         // of the node and its Pods
		{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceslices"}, Verbs: []string{"list", "watch", "create", "update", "delete"}}, // the devices
		{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},                                         // what a claim is to have
		// What is seen of its worker, in its status: of claims that are allocated on the node of the agent's token, and there the entries of its driver.
		{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims/" + resourcev1.SubresourceDriver}, ResourceNames: []string{kube.Driver}, Verbs: []string{resourcev1.VerbPrefixAssociatedNode + "patch"}},
	}
}
