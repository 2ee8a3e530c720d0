package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// consolidatedOracle is the rule of Consolidated by sorting all nodes at each question.
type consolidatedOracle struct {
	nodes []cluster.Node
	left  [][]unit.MilliGPU
}

func newConsolidatedOracle(c cluster.Cluster) *consolidatedOracle {
	o := &consolidatedOracle{nodes: c.Nodes}
	for _, n := range c.Nodes {
		left := make([]unit.MilliGPU, n.GPUs)
		for i := range left {
			left[i] = unit.WholeGPU
		}
		o.left = append(o.left, left)
	}
	return o
}

func (o *consolidatedOracle) allowed(j *cluster.Job, node int) bool {
	n := o.nodes[node]
	return (len(j.Models) == 0 || slices.Contains(j.Models, n.GPUModel)) && (n.GPUMemory == 0 || j.Memory.Peak <= n.GPUMemory)
}

func (o *consolidatedOracle) free(node int) (gpus []int32) {
	for i, left := range o.left[node] {
		if left == unit.WholeGPU {
			gpus = append(gpus, int32(i))
		}
	}
	return gpus
}

func (o *consolidatedOracle) place(j *cluster.Job) ([]Slot, bool) {
	slots := o.partly(j)
	need := j.Workers - len(slots)
	largest, nodes := 0, []int(nil)
	for n := range o.nodes {
		if o.allowed(j, n) {
			nodes, largest = append(nodes, n), max(largest, o.nodes[n].GPUs)
		}
	}
	take := func(node, g int) {
		for _, gpu := range o.free(node)[:g] {
			slots = append(slots, Slot{int32(node), gpu})
		}
		need -= g
	}
	if need <= largest {
		slices.SortStableFunc(nodes, func(a, b int) int { return len(o.free(a)) - len(o.free(b)) })
		for _, n := range nodes {
			if need > 0 && len(o.free(n)) >= need {
				take(n, need)
			}
		}
	} else {
		slices.SortStableFunc(nodes, func(a, b int) int { return len(o.free(b)) - len(o.free(a)) })
		for _, n := range nodes {
			if free := len(o.free(n)); need > 0 && free >= need {
				take(n, need)
			} else if need > 0 && free == o.nodes[n].GPUs {
				take(n, free)
			}
		}
	}
	if need > 0 {
		return nil, false
	}
	o.add(slots, -j.Share)
	return slots, true
}

func (o *consolidatedOracle) partly(j *cluster.Job) (slots []Slot) {
	for want := j.Share; want < unit.WholeGPU; want++ {
		for n := range o.nodes {
			for g, left := range o.left[n] {
				if left == want && o.allowed(j, n) && len(slots) < j.Workers {
					slots = append(slots, Slot{int32(n), int32(g)})
				}
			}
		}
	}
	return slots
}

func (o *consolidatedOracle) add(slots []Slot, share unit.MilliGPU) {
	for _, s := range slots {
		o.left[s.Node][s.GPU] += share
	}
}

// TestConsolidatedOracle: any history of placing, releasing and retaking goes as the plain rule says.
func TestConsolidatedOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c cluster.Cluster
		uniform := rapid.Bool().Draw(t, "uniform")
		for range rapid.IntRange(1, 70).Draw(t, "nodes") {
			n := cluster.Node{GPUs: 4}
			if !uniform {
				n = cluster.Node{GPUs: rapid.IntRange(0, 5).Draw(t, "gpus"), GPUModel: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model"),
					GPUMemory: rapid.SampledFrom([]unit.Bytes{0, unit.GiB}).Draw(t, "memory")}
			}
			c.Nodes = append(c.Nodes, n)
		}
		jobs := make([]cluster.Job, 40)
		for i := range jobs {
			jobs[i] = cluster.Job{Workers: rapid.SampledFrom([]int{1, 1, 2, 3, 4, 5, 8, 10, 13, 60, 300}).Draw(t, "workers"),
				Share:  rapid.SampledFrom([]unit.MilliGPU{1000, 1000, 1000, 500, 300, 999, 1}).Draw(t, "share"),
				Memory: cluster.Memory{Peak: rapid.SampledFrom([]unit.Bytes{0, 2 * unit.GiB}).Draw(t, "memory")}}
			if rapid.Bool().Draw(t, "picky") && !uniform {
				jobs[i].Models = []string{rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "models")}
			}
		}
		p, o := NewConsolidated(c, jobs), newConsolidatedOracle(c)
		for i := range jobs {
			_, fits := p.Fits(i)
			if _, placed := newConsolidatedOracle(c).place(&jobs[i]); fits != placed {
				t.Fatalf("job %+v: fits %v, on the empty cluster %v", jobs[i], fits, placed)
			}
		}
		held := map[int][]Slot{}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			job := rapid.IntRange(0, len(jobs)-1).Draw(t, "job")
			if slots, ok := held[job]; ok {
				p.Release(job, slots)
				o.add(slots, jobs[job].Share)
				delete(held, job)
				if rapid.Bool().Draw(t, "retake") {
					retakes(t, p, o, jobs, held, job, slots)
				}
				continue
			}
			got, ok := p.Place(job)
			want, placed := o.place(&jobs[job])
			if ok != placed || !slices.Equal(got, want) {
				t.Fatalf("job %+v: %v %v, the rule says %v %v", jobs[job], got, ok, want, placed)
			}
			if ok {
				held[job] = got
			}
		}
	})
}

// retakes places another job after a release, then asks for the old GPUs back.
func retakes(t *rapid.T, p *Consolidated, o *consolidatedOracle, jobs []cluster.Job, held map[int][]Slot, job int, slots []Slot) {
	other := rapid.IntRange(0, len(jobs)-1).Draw(t, "other")
	if _, busy := held[other]; !busy && other != job {
		if got, ok := p.Place(other); ok {
			o.add(got, -jobs[other].Share)
			held[other] = got
		}
	}
	room := true
	for _, s := range slots {
		room = room && o.left[s.Node][s.GPU] >= jobs[job].Share
	}
	if got := p.Retake(job, slots); got != room {
		t.Fatalf("retake %v: %v, there is room: %v", slots, got, room)
	}
	if room {
		o.add(slots, -jobs[job].Share)
		held[job] = slots
	}
}

// TestConsolidatedBuckets compares the bit sets with a plain list.
func TestConsolidatedBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "items")
		b, in := newConsolidatedBuckets(n, 1), map[int]bool{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			item := rapid.IntRange(0, n-1).Draw(t, "item")
			if in[item] = !in[item]; in[item] {
				b.add(0, item)
			} else {
				b.remove(0, item)
			}
			from, want := rapid.IntRange(0, n).Draw(t, "from"), -1
			for i := n - 1; i >= from; i-- {
				if in[i] {
					want = i
				}
			}
			if got := b.next(0, from); got != want {
				t.Fatalf("next from %d: %d, want %d", from, got, want)
			}
		}
	})
}

func TestOrders(t *testing.T) {
	for _, name := range OrderNames() {
		if o, ok := OrderByName(name); !ok || o.Name != name {
			t.Errorf("order %q: %q, %v", name, o.Name, ok)
		}
	}
	if _, ok := OrderByName("lifo"); ok {
		t.Error("knows an order lifo")
	}
	job := &cluster.Job{Workers: 3, Share: unit.WholeGPU}
	if got := Tiresias().Leaves(job, 0); got.Seconds() != 1083.333333334 {
		t.Errorf("3 GPUs leave the first queue after %v", got)
	}
	half := &cluster.Job{Workers: 1, Share: 500}
	if got := Tiresias().Leaves(half, 1); got.Seconds() != 14400 {
		t.Errorf("half a GPU leaves the second queue after %v", got)
	}
	huge := &cluster.Job{Workers: 1 << 40, Share: unit.WholeGPU}
	if got := SRSF().Rank(huge, Standing{Remaining: 1 << 62}); got != 1<<63-1 {
		t.Errorf("rank %d does not saturate", got)
	}
	if got := SRSF().Rank(half, Standing{Remaining: 10}); got != 5 {
		t.Errorf("half a GPU for 10 ns is %d GPU ns", got)
	}
}
