package portion

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

const usable = 22 * unit.GiB

func gpus(n int) []device.GPU {
	list := make([]device.GPU, n)
	for i := range list {
		list[i] = device.GPU{UUID: device.UUID{0: byte(i + 1)}, Name: "A10", Usable: usable}
	}
	return list
}

// result is a device as the scheduler gives it: so many GiB and so much of the share; all of it for 0.
func result(request, name string, gib, share int64) resourcev1.DeviceRequestAllocationResult {
	r := resourcev1.DeviceRequestAllocationResult{Request: request, Driver: kube.Driver, Pool: "node-1", Device: name,
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
			kube.CapacityMemory: *resource.NewQuantity(int64(usable), resource.BinarySI), kube.CapacityShare: *resource.NewQuantity(kube.WholeShare, resource.DecimalSI)}}
	if gib > 0 {
		r.ConsumedCapacity[kube.CapacityMemory] = *resource.NewQuantity(gib<<30, resource.BinarySI)
	}
	if share > 0 {
		r.ConsumedCapacity[kube.CapacityShare] = *resource.NewQuantity(share, resource.DecimalSI)
	}
	return r
}

func claimOf(results ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "weft-x", UID: "uid-1"}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "bert-0", UID: "pod-1"}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	return c
}

func worker(class, reserved, peak string) v1alpha1.Worker {
	return v1alpha1.Worker{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Worker"}, Pod: "ml/bert-0", Container: "trainer", Class: class,
		Floor: 0.9, Reserved: resource.MustParse(reserved), Peak: resource.MustParse(peak)}
}

func with(c *resourcev1.ResourceClaim, w any) *resourcev1.ResourceClaim {
	raw, is := w.(string)
	if !is {
		text, err := json.Marshal(w)
		if err != nil {
			panic(err)
		}
		raw = string(text)
	}
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, resourcev1.DeviceAllocationConfiguration{
		Source: resourcev1.AllocationConfigSourceClaim, DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: kube.Driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}}}})
	return c
}

func TestOf(t *testing.T) {
	heavy := worker("guaranteed", "8Gi", "12Gi")
	heavy.Weight, heavy.Cooperates = 3, true
	odd := worker("guaranteed", "8Gi", "12Gi")
	odd.Weight = 1001
	other := worker("burstable", "1Gi", "1Gi")
	other.Kind = "Wrker"
	elsewhere := result("gpu0", "gpu-0", 0, 0)
	elsewhere.Pool = "node-2"
	foreign := result("nic", "nic-0", 0, 0)
	foreign.Driver = "nic.example.com"
	admin, yes := result("gpu0", "gpu-0", 0, 0), true
	admin.AdminAccess = &yes
	qualified := result("gpu0", "gpu-0", 0, 0)
	qualified.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{kube.Driver + "/memory": resource.MustParse("4Gi")}
	unallocated := claimOf()
	unallocated.Status.Allocation = nil
	for _, c := range []struct {
		name  string
		claim *resourcev1.ResourceClaim
		share *Share
		uuids int
		fault string // part of it
	}{
		{"native", claimOf(result("r", "gpu-1", 0, 0)), nil, 1, ""},
		{"native, two", claimOf(result("r", "gpu-1", 0, 0), result("r", "gpu-0", 0, 0)), nil, 2, ""},
		{"beside another driver's device", claimOf(foreign, result("r", "gpu-1", 0, 0)), nil, 1, ""},
		{"shared", with(claimOf(result("gpu0", "gpu-0", 8, 500)), heavy), &Share{"guaranteed", 3, 8 * unit.GiB, 12 * unit.GiB, true}, 1, ""},
		{"class left open", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("", "1Gi", "1Gi")), &Share{"burstable", 0, unit.GiB, unit.GiB, false}, 1, ""},
		{"a gang's worker on two", with(claimOf(result("gpu0", "gpu-0", 8, 500), result("gpu1", "gpu-3", 8, 500)), worker("besteffort", "8Gi", "8Gi")),
			&Share{"besteffort", 0, 8 * unit.GiB, 8 * unit.GiB, false}, 2, ""},
		{"need unknown", with(claimOf(result("gpu0", "gpu-0", 0, 0)), worker("burstable", "0", "0")), &Share{"burstable", 0, usable, usable, false}, 1, ""},
		{"not allocated", unallocated, nil, 0, "not allocated"},
		{"on another node", claimOf(elsewhere), nil, 0, "no device of gpu.weft.dev on node node-1"},
		{"a GPU that is gone", claimOf(result("r", "gpu-4", 0, 0)), nil, 0, "gpu-4 is not one of the 4 GPUs"},
		{"another name for it", claimOf(result("r", "gpu-01", 0, 0)), nil, 0, "gpu-01 is not one of"},
		{"twice one GPU", claimOf(result("a", "gpu-0", 8, 500), result("b", "gpu-0", 8, 500)), nil, 0, "two parts of gpu-0"},
		{"administrative access", claimOf(admin), nil, 0, "administrative access"},
		{"a part, unsaid", claimOf(result("r", "gpu-0", 8, 0)), nil, 0, "a part of gpu-0"},
		{"a part of the share, unsaid", claimOf(result("r", "gpu-0", 0, 250)), nil, 0, "a part of gpu-0"},
		{"a part by its long name, unsaid", claimOf(qualified), nil, 0, "a part of gpu-0"},
		{"more reserved than charged", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("burstable", "9Gi", "12Gi")), nil, 0, "was charged 8.0 GiB"},
		{"more on the second", with(claimOf(result("gpu0", "gpu-0", 8, 500), result("gpu1", "gpu-1", 4, 500)), worker("burstable", "8Gi", "8Gi")), nil, 0, "was charged 4.0 GiB"},
		{"peak below reserved", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("burstable", "8Gi", "4Gi")), nil, 0, "the peak includes"},
		{"negative", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("burstable", "-1", "4Gi")), nil, 0, "the peak includes"},
		{"peak beyond the GPU", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("burstable", "8Gi", "23Gi")), nil, 0, "the GPU has 22.5 GiB"},
		{"class unknown", with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("urgent", "8Gi", "8Gi")), nil, 0, `class "urgent"`},
		{"weight", with(claimOf(result("gpu0", "gpu-0", 8, 500)), odd), nil, 0, "weight 1001"},
		{"kind unknown", with(claimOf(result("gpu0", "gpu-0", 8, 500)), other), nil, 0, `kind "Wrker"`},
		{"no JSON", with(claimOf(result("gpu0", "gpu-0", 8, 500)), "{"), nil, 0, "parameters for gpu.weft.dev"},
		{"twice", with(with(claimOf(result("gpu0", "gpu-0", 8, 500)), worker("burstable", "1Gi", "1Gi")), worker("burstable", "1Gi", "1Gi")), nil, 0, "several sets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := gpus(4)
			if c.name == "peak beyond the GPU" {
				list[0].Usable += unit.GiB / 2
			}
			p, err := Of(c.claim, "node-1", list)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("%+v, %v; want %q", p, err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(p.UUIDs("")) != c.uuids || (p.Share == nil) != (c.share == nil) || p.Share != nil && *p.Share != *c.share {
				t.Errorf("%+v %+v", p, p.Share)
			}
			if p.Pod != (Object{"ml", "bert-0", "pod-1"}) || p.Claim != (Object{"ml", "weft-x", "uid-1"}) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestOfLaws: whatever a claim says, a portion is of GPUs that are there, each once, never reserves more than was charged, and is the
// same when it is decided again and after it was written and read.
func TestOfLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var results []resourcev1.DeviceRequestAllocationResult
		for i := range rapid.IntRange(0, 4).Draw(t, "results") {
			r := result(fmt.Sprintf("gpu%d", rapid.IntRange(0, i).Draw(t, "request")), DeviceName(rapid.IntRange(0, 5).Draw(t, "device")),
				rapid.Int64Range(0, 22).Draw(t, "memory"), rapid.Int64Range(0, 1000).Draw(t, "share"))
			r.Pool = rapid.SampledFrom([]string{"node-1", "node-1", "node-1", "node-2"}).Draw(t, "pool")
			if rapid.Bool().Draw(t, "shared") {
				id := types.UID(fmt.Sprint("share-", i))
				r.ShareID = &id
			}
			results = append(results, r)
		}
		c := claimOf(results...)
		if rapid.Bool().Draw(t, "configured") {
			w := worker(rapid.SampledFrom([]string{"", "guaranteed", "burstable", "besteffort", "x"}).Draw(t, "class"), "0", "0")
			w.Reserved = *resource.NewQuantity(rapid.Int64Range(-1<<30, 25<<30).Draw(t, "reserved"), resource.BinarySI)
			w.Peak = *resource.NewQuantity(rapid.Int64Range(-1<<30, 25<<30).Draw(t, "peak"), resource.BinarySI)
			w.Weight = rapid.IntRange(-2, 1002).Draw(t, "weight")
			c = with(c, w)
		}
		p, err := Of(c, "node-1", gpus(4))
		if err != nil {
			return
		}
		uuids := p.UUIDs("")
		slices.Sort(uuids)
		if n := len(uuids); n == 0 || len(slices.Compact(uuids)) != n {
			t.Fatalf("GPUs %v", uuids)
		}
		for _, r := range results {
			if r.Pool != "node-1" {
				continue
			}
			charged := r.ConsumedCapacity[kube.CapacityMemory]
			part := r.ConsumedCapacity[kube.CapacityShare]
			if p.Share != nil && int64(p.Share.Reserved) > charged.Value() || p.Share == nil && (charged.Value() < int64(usable) || part.Value() < kube.WholeShare) {
				t.Fatalf("%+v of %+v", p.Share, r)
			}
		}
		if s := p.Share; s != nil && (s.Peak < s.Reserved || s.Peak > usable || s.Reserved < 0) {
			t.Fatalf("%+v", s)
		}
		again, err := Of(c, "node-1", gpus(4))
		if err != nil || !p.Equal(again) {
			t.Fatalf("%+v, then %+v %v", p, again, err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var read Portion
		if err := json.Unmarshal(text, &read); err != nil || !p.Equal(&read) {
			t.Fatalf("%+v, read as %+v %v", p, read, err)
		}
	})
}
