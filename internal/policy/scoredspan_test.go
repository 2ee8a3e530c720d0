package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// perNode is "node:GPUs" in the order of the slots.
func perNode(slots []Slot) string {
	var parts []string
	for len(slots) > 0 {
		k := 1
		for k < len(slots) && slots[k].Node == slots[0].Node {
			k++
		}
		parts = append(parts, fmt.Sprintf("%d:%d", slots[0].Node, k))
		slots = slots[k:]
	}
	return strings.Join(parts, " ")
}

func TestSpanningJobs(t *testing.T) {
	mixed := cluster.Cluster{Nodes: []cluster.Node{{GPUs: 2}, {GPUs: 8}, {GPUs: 2}, {GPUs: 4}, {GPUs: 8}}}
	limited := cluster.Uniform(3, 8)
	for i := range limited.Nodes {
		limited.Nodes[i].CPU = 16000
	}
	for _, tc := range []struct {
		what string
		c    cluster.Cluster
		jobs []cluster.Job // placed in order with bestfit
		want []string      // perNode of each; "" is refused
	}{
		{"whole nodes", cluster.Uniform(9, 8), []cluster.Job{gang(64)}, []string{"0:8 1:8 2:8 3:8 4:8 5:8 6:8 7:8"}},
		{"more than there is", cluster.Uniform(7, 8), []cluster.Job{gang(64), gang(1)}, []string{"", "0:1"}},
		{"the rest goes to the fullest node", cluster.Uniform(4, 8), []cluster.Job{gang(3), gang(20)}, []string{"0:3", "1:8 2:8 0:4"}},
		{"a node in use is not whole", cluster.Uniform(2, 8), []cluster.Job{gang(1), gang(9)}, []string{"0:1", "1:8 0:1"}},
		{"the rest does not fit: nothing taken", cluster.Uniform(2, 8), []cluster.Job{gang(3), gang(14), gang(13)}, []string{"0:3", "", "1:8 0:5"}},
		{"larger nodes first", mixed, []cluster.Job{gang(23)}, []string{"1:8 4:8 3:4 0:2 2:1"}},
		{"a small node in place of a large one", mixed, []cluster.Job{gang(8), gang(14)}, []string{"1:8", "4:8 3:4 0:2"}},
		{"CPU in proportion", limited, []cluster.Job{{Workers: 12, Share: unit.WholeGPU, CPU: 24000}, {CPU: 8000}, {CPU: 8001}},
			[]string{"0:8 1:4", "cpu", "cpu"}},
		{"more CPU than whole nodes have", limited, []cluster.Job{{Workers: 12, Share: unit.WholeGPU, CPU: 24001}}, []string{""}},
		{"a GPU in part use is not whole", cluster.Uniform(2, 2), []cluster.Job{fraction(300), {Workers: 3, Share: 400}}, []string{"0:1", "1:2 0:1"}},
		{"own GPU for each worker", cluster.Uniform(2, 2), []cluster.Job{{Workers: 3, Share: 400}}, []string{"0:2 1:1"}},
		{"not twice on a GPU", cluster.Uniform(1, 2), []cluster.Job{{Workers: 3, Share: 300}}, []string{""}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			p := newScored(t, "bestfit", tc.c, tc.jobs, ScoredOptions{})
			for job, want := range tc.want {
				before := cloneNodes(p.nodes)
				slots, ok := p.Place(job)
				got := perNode(slots)
				if ok && tc.jobs[job].Workers == 0 {
					got = "cpu"
				}
				if got != want || ok != (want != "") {
					t.Errorf("job %d placed %v on %q, want %q", job, ok, got, want)
				}
				if d := cmp.Diff(before, p.nodes, compareNodes); !ok && d != "" {
					t.Errorf("job %d refused, but took\n%s", job, d)
				}
			}
		})
	}
}

// TestSpanningPrefersWholeNodes: the last 4 workers fill the small node, though the large one has the smaller label.
func TestSpanningPrefersWholeNodes(t *testing.T) {
	c := cluster.Cluster{Nodes: []cluster.Node{{GPUs: 8}, {GPUs: 8}, {GPUs: 4}}}
	p := newScored(t, "firstfit", c, []cluster.Job{gang(12)}, ScoredOptions{})
	if slots, _ := p.Place(0); perNode(slots) != "0:8 2:4" {
		t.Errorf("placed on %s, want 0:8 2:4", perNode(slots))
	}
}

func TestFitsSaysWhy(t *testing.T) {
	c := cluster.Cluster{Nodes: []cluster.Node{{GPUModel: "T4", GPUs: 2, GPUMemory: 16 * unit.GiB, CPU: 8000, Memory: unit.GiB}}}
	for _, tc := range []struct {
		job  cluster.Job
		want string
	}{
		{gang(2), ""},
		{gang(12), "gang of 12, cluster has 2 GPUs with enough memory"},
		{cluster.Job{Workers: 1, Share: 10, Models: []string{"A100", "H100"}}, "gang of 1, cluster has 0 GPUs of model A100|H100 with enough memory"},
		{cluster.Job{Workers: 1, Share: 10, Memory: cluster.Memory{Peak: 17 * unit.GiB}}, "gang of 1, cluster has 0 GPUs with enough memory"},
		{cluster.Job{Workers: 1, Share: 10, CPU: 9000}, "no node has 1 GPUs, 9000 milliCPU and 0 B of memory together"},
		{cluster.Job{CPU: 9000}, "no node has 0 GPUs, 9000 milliCPU and 0 B of memory together"},
	} {
		p := newScored(t, "firstfit", c, []cluster.Job{tc.job}, ScoredOptions{})
		if got, ok := p.Fits(0); got != tc.want || ok != (tc.want == "") {
			t.Errorf("%+v: fits %v, %q, want %q", tc.job, ok, got, tc.want)
		}
	}
}
