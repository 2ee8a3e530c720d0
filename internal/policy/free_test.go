package policy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// compareNodes leaves out what is remembered of the state, and compares the state.
var compareNodes = cmp.Options{cmp.AllowUnexported(nodeFree{}), cmpopts.IgnoreFields(nodeFree{}, "fragment", "measured")}

func cloneNodes(nodes []nodeFree) []nodeFree {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].left, nodes[i].held = slices.Clone(nodes[i].left), slices.Clone(nodes[i].held)
	}
	return nodes
}

// drawCluster is a few nodes of mixed sizes, models and memory; some without limits on CPU or host memory.
func drawCluster(t *rapid.T) cluster.Cluster {
	var c cluster.Cluster
	for range rapid.IntRange(1, 6).Draw(t, "nodes") {
		c.Nodes = append(c.Nodes, cluster.Node{
			GPUModel:  rapid.SampledFrom([]string{"T4", "P100", "V100"}).Draw(t, "model"),
			GPUs:      rapid.IntRange(0, 4).Draw(t, "gpus"),
			GPUMemory: rapid.SampledFrom([]unit.Bytes{0, 16 * unit.GiB, 32 * unit.GiB}).Draw(t, "gpu memory"),
			CPU:       rapid.SampledFrom([]unit.MilliCPU{0, 4000, 16000}).Draw(t, "cpu"),
			Memory:    rapid.SampledFrom([]unit.Bytes{0, 8 * unit.GiB, 64 * unit.GiB}).Draw(t, "memory"),
		})
	}
	return c
}

func drawJob(t *rapid.T) cluster.Job {
	return cluster.Job{
		Workers:    rapid.IntRange(0, 9).Draw(t, "workers"),
		Share:      rapid.SampledFrom([]unit.MilliGPU{1, 250, 300, 500, 999, 1000, 1000, 1000}).Draw(t, "share"),
		Models:     rapid.SampledFrom([][]string{nil, nil, {"T4"}, {"P100", "V100"}, {"A100"}}).Draw(t, "models"),
		CPU:        rapid.SampledFrom([]unit.MilliCPU{0, 1, 1000, 3001, 4000}).Draw(t, "cpu"),
		HostMemory: rapid.SampledFrom([]unit.Bytes{0, unit.GiB, 3*unit.GiB + 1}).Draw(t, "memory"),
		Memory:     cluster.Memory{Peak: rapid.SampledFrom([]unit.Bytes{0, unit.GiB, 20 * unit.GiB, 40 * unit.GiB}).Draw(t, "peak")},
	}
}

func TestNodeGiveBackUndoesTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		table := newShapeTable(c)
		n := newNodeFree(c.Nodes[0], table.kindOf[0], largestNode(c).gpus+1)
		type stay struct {
			s      *podShape
			gpus   []int32
			before nodeFree
		}
		var stays []stay
		for range rapid.IntRange(1, 12).Draw(t, "pods") {
			j := drawJob(t)
			key, err := table.key(&j)
			if err != nil {
				t.Fatal(err)
			}
			s := table.intern(key)
			if !n.fits(s) {
				continue
			}
			before := cloneNodes([]nodeFree{n})[0]
			gpus := make([]int32, s.workers)
			n.leastSufficient(s.share, gpus)
			n.take(s, gpus)
			stays = append(stays, stay{s, gpus, before})
		}
		for _, stay := range slices.Backward(stays) {
			n.giveBack(stay.s, stay.gpus)
			if d := cmp.Diff(stay.before, n, compareNodes); d != "" {
				t.Fatalf("give back is not the inverse of take:\n%s", d)
			}
		}
	})
}

func TestNodeGiveBackTwicePanics(t *testing.T) {
	p := newScored(t, "firstfit", cluster.Uniform(1, 1), []cluster.Job{gang(1), {ID: "cpu", CPU: 1}}, ScoredOptions{})
	for job := range 2 {
		slots, ok := p.Place(job)
		if !ok {
			t.Fatal("does not fit")
		}
		p.Release(job, slots)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("job %d released twice without a panic", job)
				}
			}()
			p.Release(job, slots)
		}()
	}
}

func TestLeastSufficient(t *testing.T) {
	for _, tc := range []struct {
		left  []unit.MilliGPU
		share unit.MilliGPU
		want  []int32
	}{
		{[]unit.MilliGPU{1000, 0, 1000, 1000}, 1000, []int32{0, 2}},
		{[]unit.MilliGPU{1000, 400, 500, 400}, 400, []int32{1}},
		{[]unit.MilliGPU{1000, 400, 500, 400}, 401, []int32{2}},
		{[]unit.MilliGPU{700, 600, 600, 500}, 500, []int32{3, 1, 2}},
		{[]unit.MilliGPU{700, 600}, 1, []int32{}},
	} {
		n := nodeFree{left: tc.left}
		got := make([]int32, len(tc.want))
		n.leastSufficient(tc.share, got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d of %v: %v, want %v", tc.share, tc.left, got, tc.want)
		}
	}
}

func TestProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 1<<62).Draw(t, "amount")
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		k := rapid.IntRange(1, n).Draw(t, "k")
		got, rest := proportion(amount, k, n), proportion(amount, n-k, n)
		if got+rest < amount || got+rest > amount+1 || got < 0 {
			t.Fatalf("%d of %d of %d is %d, the others %d", k, n, amount, got, rest)
		}
	})
}
