package driver

import (
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

func gpusOf(n int, usable unit.Bytes) []device.GPU {
	list := make([]device.GPU, n)
	for i := range list {
		list[i] = device.GPU{UUID: device.UUID{0: byte(i), 1: byte(i >> 8), 15: 1}, Name: "NVIDIA A10", Total: usable + unit.GiB, Usable: usable}
	}
	return list
}

// TestResourcesSplit is case C16: 130 GPUs, one of them with a fault, are three slices of one pool, and fewer GPUs leave none over.
func TestResourcesSplit(t *testing.T) {
	for _, c := range []struct {
		gpus   int
		slices []int
	}{{0, []int{0}}, {1, []int{1}}, {8, []int{8}}, {64, []int{64}}, {65, []int{64, 1}}, {128, []int{64, 64}}, {130, []int{64, 64, 2}}} {
		faults := make([]Fault, c.gpus)
		if c.gpus > 0 {
			faults[c.gpus-1] = "xid-79"
		}
		r := Resources("node-1", "550.54.15", gpusOf(c.gpus, 22*unit.GiB), faults)
		pool, ok := r.Pools["node-1"]
		if !ok || len(r.Pools) != 1 || len(pool.Slices) != len(c.slices) {
			t.Fatalf("%d GPUs: %d pools, %d slices", c.gpus, len(r.Pools), len(pool.Slices))
		}
		for i, s := range pool.Slices {
			if len(s.Devices) != c.slices[i] {
				t.Errorf("%d GPUs: slice %d has %d devices", c.gpus, i, len(s.Devices))
			}
		}
	}
}

// TestResourcesLaws: whatever the node, each GPU is there once, under its name, in order; a slice is within the API's bounds; a taint
// is on exactly the GPUs with a fault, and moves nothing.
func TestResourcesLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := gpusOf(rapid.IntRange(0, 300).Draw(t, "gpus"), unit.Bytes(rapid.Int64Range(1, 1<<40).Draw(t, "usable")))
		faults := make([]Fault, rapid.IntRange(0, len(gpus)).Draw(t, "known"))
		for i := range faults {
			faults[i] = rapid.SampledFrom([]Fault{"", "", "xid-48", "lost"}).Draw(t, "fault")
		}
		well, ill := Resources("n", "", gpus, nil).Pools["n"], Resources("n", "", gpus, faults).Pools["n"]
		at := 0
		for i, s := range ill.Slices {
			if len(s.Devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures || len(s.Devices) != len(well.Slices[i].Devices) {
				t.Fatalf("slice %d: %d devices, %d without faults", i, len(s.Devices), len(well.Slices[i].Devices))
			}
			for _, d := range s.Devices {
				broken := at < len(faults) && faults[at] != ""
				if d.Name != fmt.Sprintf("gpu-%d", at) || *d.Attributes[kube.AttributeUUID].StringValue != gpus[at].UUID.String() || !*d.AllowMultipleAllocations {
					t.Fatalf("device %d: %+v", at, d)
				}
				if (len(d.Taints) == 1) != broken || broken && (d.Taints[0].Key != kube.TaintUnhealthy || d.Taints[0].Value != string(faults[at]) || d.Taints[0].Effect != "NoExecute") {
					t.Fatalf("device %d: taints %+v", at, d.Taints)
				}
				checkPolicy(t, d.Capacity[kube.CapacityMemory], int64(gpus[at].Usable), int64(unit.MiB))
				checkPolicy(t, d.Capacity[kube.CapacityShare], 1000, 1)
				at++
			}
		}
		if at != len(gpus) {
			t.Fatalf("%d of %d GPUs", at, len(gpus))
		}
	})
}

// checkPolicy holds a capacity to what the API asks: the default and the largest amount are whole steps from the least.
func checkPolicy(t *rapid.T, c resourcev1.DeviceCapacity, all, step int64) {
	if c.Value.Value() != all {
		t.Fatalf("value %v, want %d", c.Value, all)
	}
	p := c.RequestPolicy
	if divides := all >= step && all%step == 0; (p != nil) != divides {
		t.Fatalf("policy %+v of %d", p, all)
	}
	if p == nil {
		return
	}
	r := p.ValidRange
	if p.Default.Value() != all || r.Min.Value() != step || r.Step.Value() != step || r.Max.Value() != all || (all-r.Min.Value())%r.Step.Value() != 0 {
		t.Fatalf("policy %+v of %d", p, all)
	}
}

func TestSemantic(t *testing.T) {
	for in, want := range map[string]string{"550.54.15": "550.54.15", "535.054.03": "535.54.3", "470.57": "470.57.0", "": "", "550": "", "a.b.c": "",
		"1.2.3.4": "", "1.-2.3": "", "550.54.15-grid": ""} {
		if got := semantic(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
