package claim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/unit"
)

func drawShare(t *rapid.T) Share {
	name := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}[a-z0-9]`)
	s := Share{
		Claim: name.Draw(t, "claim"), Pod: types.NamespacedName{Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "pod")},
		UID: types.UID(rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "uid")), Container: name.Draw(t, "container"),
		GPUs:  rapid.SliceOfNDistinct(rapid.StringMatching(`GPU-[0-9a-f-]{8,36}`), 1, 8, rapid.ID).Draw(t, "gpus"),
		Class: rapid.SampledFrom([]cluster.Class{cluster.Burstable, cluster.Guaranteed, cluster.BestEffort}).Draw(t, "class"),
		Floor: rapid.Float64Range(1e-6, 1).Draw(t, "floor"), Part: rapid.IntRange(1, kube.WholeShare).Draw(t, "part"),
		Reserved: Round(unit.Bytes(rapid.Int64Range(0, 1<<45).Draw(t, "reserved"))), Cooperates: rapid.Bool().Draw(t, "cooperates"),
		Whole: rapid.Bool().Draw(t, "whole"),
	}
	s.Peak = s.Reserved + unit.Bytes(rapid.Int64Range(0, 1<<40).Draw(t, "more"))
	return s
}

// TestRoundTrip: a claim says all that it was made of, also after the API has had it in its hands.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShare(t)
		raw, err := json.Marshal(New(s))
		if err != nil {
			t.Fatal(err)
		}
		var stored resourcev1.ResourceClaim
		if err := json.Unmarshal(raw, &stored); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&stored)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if d := cmp.Diff(s, got); d != "" {
			t.Fatal(d)
		}
		if !Same(&stored, New(s)) {
			t.Fatal("it is not the same as itself")
		}
	})
}

// TestSameTellsApart: claims of different shares are never the same.
func TestSameTellsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawShare(t), drawShare(t)
		if same := Same(New(a), New(b)); same != (cmp.Equal(a, b)) {
			t.Fatalf("same is %v for\n%+v\n%+v", same, a, b)
		}
		changed := a
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			changed.GPUs = append([]string{"GPU-other"}, a.GPUs[1:]...)
		case 1:
			changed.Reserved, changed.Peak = a.Reserved+Step, a.Peak+Step
		case 2:
			changed.Part = a.Part%kube.WholeShare + 1
		case 3:
			changed.UID += "x"
		case 4:
			changed.Cooperates = !a.Cooperates
		case 5:
			changed.Whole = !a.Whole
		}
		if Same(New(a), New(changed)) {
			t.Fatalf("the same:\n%+v\n%+v", a, changed)
		}
	})
}

// TestReadRefuses what New does not write, with the place.
func TestReadRefuses(t *testing.T) {
	good := Share{Claim: "weft-a", Pod: types.NamespacedName{Namespace: "ml", Name: "bert-0"}, UID: "u1", Container: "train", GPUs: []string{"GPU-1",
		"GPU-2"},
		Floor: 0.9, Reserved: 8 * unit.GiB, Peak: 8 * unit.GiB, Part: 250}
	if _, err := Read(New(good)); err != nil {
		t.Fatal(err)
	}
	exactly := func(c *resourcev1.ResourceClaim, i int) *resourcev1.ExactDeviceRequest {
		return c.Spec.Devices.Requests[i].Exactly
	}
	parameters := func(c *resourcev1.ResourceClaim, old, now string) {
		raw := &c.Spec.Devices.Config[0].Opaque.Parameters.Raw
		if !strings.Contains(string(*raw), old) {
			t.Fatalf("no %s in %s", old, *raw)
		}
		*raw = []byte(strings.ReplaceAll(string(*raw), old, now))
	}
	for name, c := range map[string]struct {
		change func(c *resourcev1.ResourceClaim)
		want   string
	}{
		"no label":       {func(c *resourcev1.ResourceClaim) { c.Labels = nil }, "is not weft's"},
		"no owner":       {func(c *resourcev1.ResourceClaim) { c.OwnerReferences = nil }, "no Pod owns it"},
		"owner is a Job": {func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].Kind = "Job" }, "no Pod owns it"},
		"another Pod":    {func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].Name = "bert-1" }, "belongs to Pod bert-1"},
		"no selector":    {func(c *resourcev1.ResourceClaim) { exactly(c, 1).Selectors = nil }, "gpu1 is not pinned"},
		"true":           {func(c *resourcev1.ResourceClaim) { exactly(c, 0).Selectors[0].CEL.Expression = "true" }, "gpu0 is not pinned"},
		"or":             {func(c *resourcev1.ResourceClaim) { exactly(c, 0).Selectors[0].CEL.Expression += ` || true` }, "gpu0 is not pinned"},
		"another class":  {func(c *resourcev1.ResourceClaim) { exactly(c, 0).DeviceClassName = "gpu.weft.dev" }, "a spec that weft does not write"},
		"two of it":      {func(c *resourcev1.ResourceClaim) { exactly(c, 0).Count = 2 }, "a spec that weft does not write"},
		"admin":          {func(c *resourcev1.ResourceClaim) { yes := true; exactly(c, 0).AdminAccess = &yes }, "a spec that weft does not write"},
		"tolerates": {func(c *resourcev1.ResourceClaim) {
			exactly(c, 0).Tolerations = []resourcev1.DeviceToleration{{Operator: "Exists"}}
		}, "does not write"},
		"unlike memory": {func(c *resourcev1.ResourceClaim) {
			exactly(c, 0).Capacity = exactly(New(Share{GPUs: []string{"x"}, Reserved: 1}), 0).Capacity
		}, "does not write"},
		"no capacity":      {func(c *resourcev1.ResourceClaim) { exactly(c, 0).Capacity = nil }, "not pinned"},
		"no configuration": {func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Config = nil }, "no configuration"},
		"of another":       {func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Config[0].Opaque.Driver = "gpu.nvidia.com" }, "no configuration"},
		"no JSON":          {func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Config[0].Opaque.Parameters.Raw = []byte("{") }, "configuration"},
		"another version":  {func(c *resourcev1.ResourceClaim) { parameters(c, "weft.dev/v1alpha1", "weft.dev/v9") }, "weft.dev/v9 Worker"},
		"a floor of 2":     {func(c *resourcev1.ResourceClaim) { parameters(c, `"floor":0.9`, `"floor":2`) }, "a floor of 2"},
		"peak too small":   {func(c *resourcev1.ResourceClaim) { parameters(c, `"peak":"8Gi"`, `"peak":"7Gi"`) }, "a peak of 7.0 GiB"},
		"no such class":    {func(c *resourcev1.ResourceClaim) { parameters(c, `"burstable"`, `"royal"`) }, `"royal"`},
		"more in it":       {func(c *resourcev1.ResourceClaim) { parameters(c, `"floor":0.9`, `"floor":0.9,"more":1`) }, "does not write"},
		"no request":       {func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests = nil }, "0 requests"},
		"a prioritised request": {func(c *resourcev1.ResourceClaim) {
			r := &c.Spec.Devices.Requests[0]
			r.Exactly, r.FirstAvailable = nil, []resourcev1.DeviceSubRequest{{Name: "a"}}
		}, "gpu0 is not pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := New(good)
			claim.Spec = *claim.Spec.DeepCopy()
			c.change(claim)
			if s, err := Read(claim); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("read as %+v, error %v, want %q", s, err, c.want)
			}
		})
	}
}

// FuzzWorker: no configuration makes the reader panic, and what it takes it writes the same.
func FuzzWorker(f *testing.F) {
	f.Add(string(parameters(Share{Pod: types.NamespacedName{Namespace: "a", Name: "b"}, Floor: 0.5, Reserved: 1, Peak: 2})))
	f.Add(`{"kind":"Worker","apiVersion":"weft.dev/v1alpha1","pod":"a/b","floor":1e-300,"reserved":"9Ei","peak":"9Ei"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := worker([]byte(raw))
		if err != nil {
			return
		}
		again, err := worker(parameters(s))
		if err != nil || !cmp.Equal(s, again) {
			t.Fatalf("%q is %+v, and written and read again %+v, %v", raw, s, again, err)
		}
	})
}

func TestPart(t *testing.T) {
	for _, c := range []struct {
		residents int
		alone     bool
		want      int
	}{{4, false, 250}, {3, false, 333}, {7, false, 142}, {8, false, 125}, {1, false, 1000}, {4, true, 1000}, {0, false, 1000}, {5000, false, 1}} {
		got := Part(c.residents, c.alone)
		if got != c.want {
			t.Errorf("of %d residents, alone %v: %d, want %d", c.residents, c.alone, got, c.want)
		}
		if c.residents > 0 && c.residents <= kube.WholeShare && !c.alone && (got*c.residents > kube.WholeShare || got*(c.residents+1) <= kube.WholeShare) {
			t.Errorf("%d parts of %d: %d residents fit, no more and no fewer are to", c.residents, got, kube.WholeShare/got)
		}
	}
}

func TestRound(t *testing.T) {
	for in, want := range map[unit.Bytes]unit.Bytes{-1: 0, 0: 0, 1: unit.MiB, unit.MiB: unit.MiB, unit.MiB + 1: 2 * unit.MiB} {
		if got := Round(in); got != want {
			t.Errorf("%d is %d, want %d", in, got, want)
		}
	}
}

// TestDevices: whoever wrote a claim, what it was given of our GPUs is told; onlookers and others' devices are not.
func TestDevices(t *testing.T) {
	yes := true
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "native", Namespace: "plain"}, Status: resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: kube.Driver, Pool: "node-1", Device: "gpu0",
				ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"share": resource.MustParse("1000")}},
			{Request: "r", Driver: "nic.example.org", Pool: "node-1", Device: "gpu1"},
			{Request: "look", Driver: kube.Driver, Pool: "node-1", Device: "gpu2", AdminAccess: &yes},
			{Request: "r", Driver: kube.Driver, Pool: "node-1", Device: "gpu3"},
		}}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}, {APIGroup: "x.io", Resource: "pods",
			Name: "q", UID: "v"}},
	}}
	if d := cmp.Diff([]Device{{"node-1", "gpu0"}, {"node-1", "gpu3"}}, Devices(c)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]User{{"p", "u"}}, Users(c)); d != "" {
		t.Error(d)
	}
	if !Allocated(c) || Allocated(New(Share{GPUs: []string{"GPU-1"}})) || Devices(New(Share{GPUs: []string{"GPU-1"}})) != nil {
		t.Error("a claim is allocated where the scheduler says so, and nowhere else")
	}
	owned := New(Share{Pod: types.NamespacedName{Namespace: "a", Name: "b"}, UID: "w", GPUs: []string{"GPU-1"}})
	if d := cmp.Diff([]User{{"b", "w"}}, Users(owned)); d != "" {
		t.Error(d)
	}
}
