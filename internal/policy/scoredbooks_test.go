package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// books is an independent account of a cluster: what a placement took, by job.
type books struct {
	c      cluster.Cluster
	jobs   []cluster.Job
	placed map[int][]Slot
	onNode map[int]int // jobs without GPUs
}

// check fails unless every placed job has what it asked for and nothing is given out twice.
func (b *books) check(t *rapid.T) {
	gpus := map[Slot]unit.MilliGPU{}
	cpu := make([]unit.MilliCPU, len(b.c.Nodes))
	memory := make([]unit.Bytes, len(b.c.Nodes))
	for job, slots := range b.placed {
		j := b.jobs[job]
		if len(slots) != j.Workers {
			t.Fatalf("job of %d workers has %d slots", j.Workers, len(slots))
		}
		perNode, own := map[int32]int{}, map[Slot]bool{}
		for _, s := range slots {
			n := b.c.Nodes[s.Node]
			if own[s] || s.GPU < 0 || int(s.GPU) >= n.GPUs {
				t.Fatalf("slot %v is doubled or does not exist", s)
			}
			if len(j.Models) > 0 && !slices.Contains(j.Models, n.GPUModel) || n.GPUMemory > 0 && j.Memory.Peak > n.GPUMemory {
				t.Fatalf("job %+v on node %+v", j, n)
			}
			own[s] = true
			gpus[s] += j.Share
			perNode[s.Node]++
		}
		if j.Workers == 0 {
			cpu[b.onNode[job]] += j.CPU
			memory[b.onNode[job]] += j.HostMemory
		}
		for node, k := range perNode {
			cpu[node] += unit.MilliCPU(proportion(int64(j.CPU), k, j.Workers))
			memory[node] += unit.Bytes(proportion(int64(j.HostMemory), k, j.Workers))
		}
		if most := b.most(j); len(perNode) > 1 && j.Workers <= most {
			t.Fatalf("%d workers on %d nodes, of which one could have %d GPUs", j.Workers, len(perNode), most)
		}
	}
	for s, share := range gpus {
		if share > unit.WholeGPU {
			t.Fatalf("%d thousandths of GPU %v given out", share, s)
		}
	}
	for i, n := range b.c.Nodes {
		if n.CPU > 0 && cpu[i] > n.CPU || n.Memory > 0 && memory[i] > n.Memory {
			t.Fatalf("node %d of %d CPU and %d bytes gives out %d and %d", i, n.CPU, n.Memory, cpu[i], memory[i])
		}
	}
}

// most is the GPUs of the largest node that a job may run on.
func (b *books) most(j cluster.Job) int {
	most := 0
	for _, n := range b.c.Nodes {
		if (len(j.Models) == 0 || slices.Contains(j.Models, n.GPUModel)) && (n.GPUMemory == 0 || j.Memory.Peak <= n.GPUMemory) {
			most = max(most, n.GPUs)
		}
	}
	return most
}

// fitsOne says from the placement's state, by the plainest reading of the rules, whether some node can hold the job.
func (b *books) fitsOne(p *Scored, j cluster.Job) bool {
	for i, n := range b.c.Nodes {
		free := p.nodes[i]
		enough := 0
		for _, left := range free.left {
			if left >= j.Share {
				enough++
			}
		}
		if j.Workers == 0 {
			enough = 0
		} else if len(j.Models) > 0 && !slices.Contains(j.Models, n.GPUModel) || n.GPUMemory > 0 && j.Memory.Peak > n.GPUMemory {
			enough = -1
		}
		if enough >= j.Workers && (n.CPU == 0 || free.cpu >= j.CPU) && (n.Memory == 0 || free.memory >= j.HostMemory) {
			return true
		}
	}
	return false
}

// bruteKeys is every node's key worked out with nothing remembered.
func bruteKeys(p *Scored, s *podShape) []int64 {
	keys := make([]int64, len(p.nodes))
	for i := range keys {
		p.nodes[i].measured = false
		keys[i] = p.key(s, i)
	}
	return keys
}

// TestScoredBooks places and releases at random and checks after each step: nothing given out twice, gangs whole, a
// refusal only where no node fits, remembered scores equal to fresh ones, and at the end all given back.
func TestScoredBooks(t *testing.T) {
	for _, name := range ScoredNames() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkBooks(t, name) }) })
	}
}

func checkBooks(t *rapid.T, name string) {
	b := &books{c: drawCluster(t), placed: map[int][]Slot{}, onNode: map[int]int{}}
	b.jobs = rapid.SliceOfN(rapid.Custom(drawJob), 1, 12).Draw(t, "jobs")
	labels := rapid.Permutation(indices(len(b.c.Nodes))).Draw(t, "labels")
	p, err := NewScored(name, b.c, b.jobs, ScoredOptions{Labels: labels, Random: rand.New(rand.NewPCG(3, 4))})
	if err != nil {
		t.Fatal(err)
	}
	p.budget = rapid.SampledFrom([]int{0, 10, maxCached}).Draw(t, "budget")
	for range rapid.IntRange(20, 60).Draw(t, "steps") {
		job := rapid.IntRange(0, len(b.jobs)-1).Draw(t, "job")
		if slots, running := b.placed[job]; running {
			before := cloneNodes(p.nodes)
			p.Release(job, slots)
			if rapid.Bool().Draw(t, "look") {
				for _, s := range p.shapes {
					p.refresh(s)
				}
			}
			if rapid.Bool().Draw(t, "retake") {
				if !p.Retake(job, slots) {
					t.Fatal("does not fit where it was a moment ago")
				}
				if d := cmp.Diff(before, p.nodes, compareNodes); d != "" {
					t.Fatalf("retaken, but differs:\n%s", d)
				}
			} else {
				delete(b.placed, job)
			}
		} else {
			b.place(t, p, job)
		}
		b.check(t)
		checkState(t, p)
	}
	for job, slots := range b.placed {
		p.Release(job, slots)
	}
	if d := cmp.Diff(p.empty, p.nodes, compareNodes); d != "" {
		t.Fatalf("all jobs gone, but not all given back:\n%s", d)
	}
	for job := range b.jobs {
		reason, fits := p.Fits(job)
		slots, ok := p.Place(job)
		if fits != ok || fits != (reason == "") {
			t.Fatalf("job %+v: placed on the empty cluster %v, fits %v, reason %q", b.jobs[job], ok, fits, reason)
		}
		if ok {
			p.Release(job, slots)
		}
	}
}

// checkState fails when a node owes something or more scores are kept than may be.
func checkState(t *rapid.T, p *Scored) {
	for i, n := range p.nodes {
		if n.cpu < 0 || n.memory < 0 || n.total < 0 || slices.ContainsFunc(n.left, func(l unit.MilliGPU) bool { return l < 0 }) {
			t.Fatalf("node %d owes: %+v", i, n)
		}
	}
	kept := 0
	for _, s := range p.table.shapes {
		kept += len(s.keys)
	}
	if kept > max(p.budget, len(p.nodes)) {
		t.Fatalf("%d scores kept, at most %d may be", kept, p.budget)
	}
}

func (b *books) place(t *rapid.T, p *Scored, job int) {
	s, j := p.shapes[job], b.jobs[job]
	oneNode := !s.spans()
	want := -1
	if oneNode {
		keys := bruteKeys(p, s)
		if best := slices.Max(keys); best != nodeUnfit {
			want = slices.Index(keys, best)
		}
		if (want >= 0) != b.fitsOne(p, j) {
			t.Fatalf("best node %d, but fits: %v", want, b.fitsOne(p, j))
		}
	}
	before := p.changes
	slots, ok := p.Place(job)
	if ok {
		if reason, could := p.Fits(job); !could {
			t.Fatalf("placed, though it fits not even the empty cluster: %s", reason)
		}
	} else {
		if want >= 0 || slots != nil || p.changes != before {
			t.Fatalf("refused with slots %v, %d changes, though node %d fits", slots, p.changes-before, want)
		}
		return
	}
	b.placed[job] = slots
	if j.Workers == 0 {
		b.onNode[job] = int(p.onNode[job])
	} else if oneNode && p.picker == nil && int(slots[0].Node) != want {
		t.Fatalf("placed on node %d, not on %d", slots[0].Node, want)
	}
	if oneNode && p.picker == nil && !slices.Equal(freshKeys(p, s), bruteKeys(p, s)) {
		t.Fatalf("remembered scores %v, fresh ones %v", freshKeys(p, s), bruteKeys(p, s))
	}
}

func freshKeys(p *Scored, s *podShape) []int64 {
	p.refresh(s)
	return slices.Clone(s.keys)
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
