package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

func newScored(t testing.TB, name string, c cluster.Cluster, jobs []cluster.Job, o ScoredOptions) *Scored {
	t.Helper()
	if o.Random == nil {
		o.Random = rand.New(rand.NewPCG(1, 2))
	}
	p, err := NewScored(name, c, jobs, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gang(workers int) cluster.Job { return cluster.Job{Workers: workers, Share: unit.WholeGPU} }

// fraction is a pod of one worker with a share of a GPU.
func fraction(share unit.MilliGPU) cluster.Job { return cluster.Job{Workers: 1, Share: share} }

func TestScoredIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, jobs := drawCluster(t), rapid.SliceOfN(rapid.Custom(drawJob), 1, 20).Draw(t, "jobs")
		for _, name := range ScoredNames() {
			var runs [2]string
			for i := range runs {
				p, err := NewScored(name, c, jobs, ScoredOptions{Random: rand.New(rand.NewPCG(5, 6))})
				if err != nil {
					t.Fatal(err)
				}
				for job := range jobs {
					slots, ok := p.Place(job)
					runs[i] += fmt.Sprintln(slots, ok, p.Fragmentation())
				}
			}
			if runs[0] != runs[1] {
				t.Fatalf("%s: two runs differ:\n%s\n%s", name, runs[0], runs[1])
			}
		}
	})
}

func TestNewScoredRefuses(t *testing.T) {
	c, good := cluster.Uniform(2, 2), []cluster.Job{gang(1)}
	for _, tc := range []struct {
		name string
		jobs []cluster.Job
		o    ScoredOptions
		want string
	}{
		{"worstfit", good, ScoredOptions{}, `"worstfit" is none of`},
		{"random", good, ScoredOptions{}, "needs a source"},
		{"bestfit", good, ScoredOptions{Labels: []int{0}}, "labels"},
		{"bestfit", good, ScoredOptions{Labels: []int{1, 1}}, "labels"},
		{"bestfit", good, ScoredOptions{Labels: []int{0, 1, 2}}, "labels"},
		{"bestfit", []cluster.Job{{ID: "a", Workers: 1}}, ScoredOptions{}, `"a": share 0`},
		{"bestfit", []cluster.Job{{ID: "b", Workers: 1, Share: 1001}}, ScoredOptions{}, `"b": share 1001`},
		{"bestfit", []cluster.Job{{ID: "c", Workers: -1, Share: 1}}, ScoredOptions{}, `"c": negative`},
		{"bestfit", good, ScoredOptions{Typical: []cluster.Job{{ID: "d", CPU: -1}}}, `"d": negative`},
	} {
		if _, err := NewScored(tc.name, c, tc.jobs, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.want)
		}
	}
}

func TestScoredWithoutNodes(t *testing.T) {
	for _, name := range ScoredNames() {
		p := newScored(t, name, cluster.Cluster{}, []cluster.Job{gang(1), {}}, ScoredOptions{})
		for job := range 2 {
			if slots, ok := p.Place(job); ok {
				t.Errorf("%s: job %d placed on nothing: %v", name, job, slots)
			}
		}
		if f := p.Fragmentation(); f != 0 {
			t.Errorf("%s: fragmentation %v of nothing", name, f)
		}
	}
}

// TestLabelsBreakTies places one-GPU jobs on equal empty nodes: the label decides, not the index.
func TestLabelsBreakTies(t *testing.T) {
	for _, name := range ScoredNames() {
		if name == "random" {
			continue
		}
		p := newScored(t, name, cluster.Uniform(4, 8), []cluster.Job{gang(8), gang(8)}, ScoredOptions{Labels: []int{2, 3, 0, 1}})
		for job, want := range []int32{2, 3} {
			if slots, _ := p.Place(job); slots[0].Node != want {
				t.Errorf("%s: job %d on node %d, want %d", name, job, slots[0].Node, want)
			}
		}
	}
}

var (
	_ Placer  = (*Scored)(nil)
	_ Fitter  = (*Scored)(nil)
	_ Retaker = (*Scored)(nil)
)

func TestRetakeIsRefusedWhereSomeoneElseIs(t *testing.T) {
	c := cluster.Cluster{Nodes: []cluster.Node{{GPUs: 2, CPU: 8000}, {GPUs: 2, CPU: 8000}}}
	half := cluster.Job{Workers: 3, Share: 500}
	for _, tc := range []struct {
		what         string
		first, other cluster.Job
	}{
		{"a whole GPU", gang(1), gang(1)},
		{"all of two nodes", gang(4), gang(1)},
		{"a share of three GPUs", half, gang(2)},
		{"CPU", cluster.Job{CPU: 5000}, cluster.Job{CPU: 5000}},
		{"CPU under a GPU", cluster.Job{Workers: 1, Share: 1000, CPU: 5000}, cluster.Job{CPU: 5000}},
	} {
		p := newScored(t, "firstfit", c, []cluster.Job{tc.first, tc.other}, ScoredOptions{})
		slots, _ := p.Place(0)
		if p.Retake(0, nil) {
			t.Errorf("%s: retaken without slots, or while placed", tc.what)
		}
		p.Release(0, slots)
		others, ok := p.Place(1)
		if !ok {
			t.Fatalf("%s: the other job does not fit", tc.what)
		}
		before := cloneNodes(p.nodes)
		if p.Retake(0, slots) {
			t.Errorf("%s: retaken from someone else", tc.what)
		}
		if d := cmp.Diff(before, p.nodes, compareNodes); d != "" {
			t.Errorf("%s: refused, but took\n%s", tc.what, d)
		}
		p.Release(1, others)
		if !p.Retake(0, slots) {
			t.Errorf("%s: not retaken, though free", tc.what)
		}
	}
}
