package driver

import (
	"fmt"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
)

// Fault is what is wrong with a GPU, as the value of a taint: "xid-79", "lost"; "" for one that is well.
type Fault string

// mostDevices is how many devices a slice has. The API takes 128, and 64 where one of them has a taint: at the smaller number a
// taint moves no device from one slice to another.
const mostDevices = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures

// Resources are the GPUs of a node as the scheduler sees them: one device each, in one pool with the node's name. Faults are by
// index; those beyond its end are none. A driver version that is no semantic version is left out.
func Resources(node, version string, gpus []device.GPU, faults []Fault) resourceslice.DriverResources {
	pool := resourceslice.Pool{}
	for first := 0; first == 0 || first < len(gpus); first += mostDevices { // a pool without devices has a slice that says so
		var s resourceslice.Slice
		for i := first; i < min(first+mostDevices, len(gpus)); i++ {
			d := deviceOf(i, version, gpus[i])
			if i < len(faults) && faults[i] != "" {
				d.Taints = []resourcev1.DeviceTaint{{Key: kube.TaintUnhealthy, Value: string(faults[i]), Effect: resourcev1.DeviceTaintEffectNoExecute}}
			}
			s.Devices = append(s.Devices, d)
		}
		pool.Slices = append(pool.Slices, s)
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// deviceOf is one GPU. Several claims may have parts of it: of its memory, and of a share that bounds their number.
func deviceOf(index int, version string, g device.GPU) resourcev1.Device {
	yes, uuid, model, number := true, g.UUID.String(), g.Name, int64(index)
	d := resourcev1.Device{
		Name:                     portion.DeviceName(index),
		AllowMultipleAllocations: &yes,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			kube.AttributeUUID:  {StringValue: &uuid},
			kube.AttributeModel: {StringValue: &model},
			kube.AttributeIndex: {IntValue: &number},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			kube.CapacityMemory: capacity(*resource.NewQuantity(int64(g.Usable), resource.BinarySI), *resource.NewQuantity(int64(unit.MiB), resource.BinarySI)),
			kube.CapacityShare:  capacity(*resource.NewQuantity(kube.WholeShare, resource.DecimalSI), *resource.NewQuantity(1, resource.DecimalSI)),
		},
	}
	if v := semantic(version); v != "" {
		d.Attributes[kube.AttributeVersion] = resourcev1.DeviceAttribute{VersionValue: &v}
	}
	return d
}

// capacity is an amount that is handed out in steps, and whole to who asks for none. Steps that do not divide it would forbid the
// whole: then any amount may be asked for, and what is not asked for is whole just the same.
func capacity(all, step resource.Quantity) resourcev1.DeviceCapacity {
	c := resourcev1.DeviceCapacity{Value: all}
	if all.Value() >= step.Value() && all.Value()%step.Value() == 0 {
		c.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: &all, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &step, Max: &all, Step: &step}}
	}
	return c
}

// semantic is a driver's version, such as 535.054.03, as a semantic version, such as 535.54.3; "" where it is none.
func semantic(version string) string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return ""
	}
	var numbers []string
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return ""
		}
		numbers = append(numbers, fmt.Sprint(n))
	}
	if len(numbers) == 2 {
		numbers = append(numbers, "0")
	}
	return strings.Join(numbers, ".")
}
