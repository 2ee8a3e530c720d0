package claim

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
)

// Device is a GPU by the names of its ResourceSlice.
type Device struct {
	Pool string // the node
	Name string
}

// Allocated says whether the scheduler has given the claim its devices.
func Allocated(c *resourcev1.ResourceClaim) bool { return c.Status.Allocation != nil }

// Ending says whether a claim is deleted that no GPU was given for: whoever it belongs to needs another one.
func Ending(c *resourcev1.ResourceClaim) bool { return c.DeletionTimestamp != nil && !Allocated(c) }

// Devices are the GPUs that a claim has been given, in the order of the results: of any claim, whoever wrote it.
func Devices(c *resourcev1.ResourceClaim) []Device {
	if c.Status.Allocation == nil {
		return nil
	}
	var list []Device
	for _, r := range c.Status.Allocation.Devices.Results {
		admin := r.AdminAccess != nil && *r.AdminAccess // looks on, and takes nothing
		if r.Driver == kube.Driver && !admin {
			list = append(list, Device{r.Pool, r.Device})
		}
	}
	return list
}

// User is a Pod that may use a claim.
type User struct {
	Name string // in the claim's namespace
	UID  types.UID
}

// Users are the Pods that a claim is reserved for; where that is nobody, the one that owns it.
func Users(c *resourcev1.ResourceClaim) []User {
	var list []User
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			list = append(list, User{r.Name, r.UID})
		}
	}
	if owner, ok := Owner(c); ok && len(list) == 0 {
		list = append(list, User{owner.Name, owner.UID})
	}
	return list
}
