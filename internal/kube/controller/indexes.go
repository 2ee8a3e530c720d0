package controller

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
)

// takenFrom names a claim of somebody else that was given a GPU which another claim is pinned to; "" for none. It is looked at
// just before a claim is written: a plan may be a second old by then.
func (c *caches) takenFrom(want *resourcev1.ResourceClaim) string {
	share, err := claim.Read(want)
	if err != nil {
		return ""
	}
	for _, uuid := range share.GPUs {
		found, err := c.held.ByIndex(byUUID, uuid)
		if err != nil || len(found) == 0 {
			continue
		}
		d, ok := deviceOf(found[0], uuid)
		if !ok {
			continue
		}
		claims, err := c.given.ByIndex(byDevice, d.Pool+"/"+d.Name)
		if err == nil && len(claims) > 0 {
			return "resource claim " + nameOf(claims[0].(*resourcev1.ResourceClaim)).String()
		}
	}
	return ""
}

// Names of the indexes.
const (
	byUUID   = "uuid"   // slices by the UUIDs of their devices
	byDevice = "device" // claims that are not weft's by the devices that they were given
)

// addIndexes lets takenFrom find what it looks for.
func (c *caches) addIndexes() error {
	gpus, claims := c.named["resourceslices"], c.named["resourceclaims"]
	c.held, c.given = gpus.GetIndexer(), claims.GetIndexer()
	if err := gpus.AddIndexers(cache.Indexers{byUUID: func(o any) ([]string, error) { return uuidsOf(o), nil }}); err != nil {
		return fmt.Errorf("index of slices: %w", err)
	}
	err := claims.AddIndexers(cache.Indexers{byDevice: func(o any) ([]string, error) {
		x, ok := o.(*resourcev1.ResourceClaim)
		if !ok || claim.Managed(x) {
			return nil, nil
		}
		var names []string
		for _, d := range claim.Devices(x) {
			names = append(names, d.Pool+"/"+d.Name)
		}
		return names, nil
	}})
	if err != nil {
		return fmt.Errorf("index of claims: %w", err)
	}
	return nil
}

// uuidsOf are the GPUs of a slice.
func uuidsOf(o any) []string {
	s, ok := o.(*resourcev1.ResourceSlice)
	if !ok || s.Spec.Driver != kube.Driver {
		return nil
	}
	var list []string
	for i := range s.Spec.Devices {
		if a := s.Spec.Devices[i].Attributes[kube.AttributeUUID]; a.StringValue != nil {
			list = append(list, *a.StringValue)
		}
	}
	return list
}

// deviceOf is the device of a slice with a UUID.
func deviceOf(o any, uuid string) (claim.Device, bool) {
	s, ok := o.(*resourcev1.ResourceSlice)
	if !ok {
		return claim.Device{}, false
	}
	for i := range s.Spec.Devices {
		if a := s.Spec.Devices[i].Attributes[kube.AttributeUUID]; a.StringValue != nil && *a.StringValue == uuid {
			return claim.Device{Pool: s.Spec.Pool.Name, Name: s.Spec.Devices[i].Name}, true
		}
	}
	return claim.Device{}, false
}
