package placement

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// plain chooses GPUs by the rules alone: it looks at who resides on each GPU each time, remembers nothing, and takes no two GPUs
// for alike.
type plain struct {
	k     *Packer
	gpus  GPUs
	tags  []int32
	allow func(cluster.GPU) bool
}

// seat is a GPU as the rules see it.
type seat struct {
	gpu    cluster.GPU
	node   int
	kinds  []int32
	groups []int32
	size   float64
}

func (q *plain) seat(g cluster.GPU) seat {
	s := seat{gpu: g, node: q.gpus.Node[g]}
	for _, r := range q.k.overlay.Residents(g) {
		s.kinds = append(s.kinds, q.k.p.kind[q.k.p.job[r]])
	}
	slices.Sort(s.kinds)
	for _, kind := range s.kinds {
		s.groups = append(s.groups, q.k.p.kinds[kind].group)
		s.size += q.k.p.kinds[kind].size
	}
	return s
}

// takes is every rule at once.
func (q *plain) takes(w cluster.Worker, s seat) bool {
	p, job := q.k.p, q.k.p.Job(w)
	need := p.kindOf(w)
	if q.gpus.Bar(job, s.gpu).Refused() || p.sameJob(q.k.overlay.Residents(s.gpu), w) || q.allow != nil && !q.allow(s.gpu) {
		return false
	}
	if r, _ := p.sets.check(insert(slices.Clone(s.groups), need.group), need.group); r.Refused() {
		return false
	}
	var load profile.Load
	limit, most := q.gpus.Memory[s.gpu], ephemeral(need.profile)
	for _, kind := range s.kinds {
		load = load.Add(p.kinds[kind].profile)
		most = max(most, ephemeral(p.kinds[kind].profile))
	}
	held := load.Persistent().Add(need.profile.Persistent)
	return held <= limit && load.Overflow(need.profile, limit) <= p.options.Epsilon && (!q.gpus.Handover || held.Add(most) <= limit)
}

// node is what is on a node, in an order that its number has no part in.
func (q *plain) node(n int) [][]int32 {
	var list [][]int32
	for g, node := range q.gpus.Node {
		if node == n {
			list = append(list, append(append([]int32{q.gpus.Sort[g]}, append(q.seat(cluster.GPU(g)).kinds, -1)...), q.tags[g]))
		}
	}
	slices.SortFunc(list, slices.Compare)
	return list
}

func (q *plain) compareNodes(a, b int) int {
	return slices.CompareFunc(q.node(a), q.node(b), slices.Compare)
}

// seats are the GPUs that take a worker, of one node or of all (-1): those in use, and idle ones.
func (q *plain) seats(w cluster.Worker, node int) (shared, idle []seat) {
	for g := range cluster.GPU(len(q.gpus.Memory)) {
		s := q.seat(g)
		switch {
		case node >= 0 && s.node != node || !q.takes(w, s):
		case len(s.kinds) > 0:
			shared = append(shared, s)
		default:
			idle = append(idle, s)
		}
	}
	return shared, idle
}

// best is the first of the least.
func best(list []seat, compare func(a, b seat) int) cluster.GPU {
	if len(list) == 0 {
		return cluster.NoGPU
	}
	return slices.MinFunc(list, compare).gpu
}

func (q *plain) choose(w cluster.Worker, node int) cluster.GPU {
	shared, idle := q.seats(w, node)
	group := q.k.p.kindOf(w).group
	set := func(s seat) int32 { return q.k.p.sets.of(s.groups) }
	left := func(s seat) float64 { return float64(q.gpus.Memory[s.gpu]) - s.size }
	s := best(shared, func(a, b seat) int {
		if x, y := set(a), set(b); x != y {
			if c := q.k.prefer(x, y, group); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(left(a), left(b)), q.compareNodes(a.node, b.node))
	})
	allow := q.allow // how many idle GPUs of a node would take it does not depend on where it may go just now
	q.allow = nil
	_, all := q.seats(w, node)
	q.allow = allow
	count := func(s seat) (n int) {
		for _, other := range all {
			if other.node == s.node {
				n++
			}
		}
		return n
	}
	i := best(idle, func(a, b seat) int {
		return cmp.Or(cmp.Compare(q.gpus.Memory[a.gpu], q.gpus.Memory[b.gpu]), cmp.Compare(count(a), count(b)), q.compareNodes(a.node, b.node))
	})
	if s == cluster.NoGPU || q.gpus.Spread && i != cluster.NoGPU {
		return i
	}
	return s
}

// bestNode is the node for workers that are together, or -1.
func (q *plain) bestNode(w cluster.Worker, size int) int {
	type offer struct {
		node                 int
		opens, idle, sharing int
		memory               unit.Bytes
	}
	var offers []offer
	for n := range slices.Max(q.gpus.Node) + 1 {
		shared, idle := q.seats(w, n)
		if len(shared)+len(idle) < size {
			continue
		}
		o := offer{node: n, opens: max(0, size-len(shared)), sharing: len(shared)}
		if q.gpus.Spread {
			o.opens = min(size, len(idle))
		}
		if o.idle = len(idle) - o.opens; o.opens > 0 {
			o.memory = q.gpus.Memory[slices.MinFunc(idle, func(a, b seat) int { return cmp.Compare(q.gpus.Memory[a.gpu], q.gpus.Memory[b.gpu]) }).gpu]
		}
		offers = append(offers, o)
	}
	if len(offers) == 0 {
		return -1
	}
	return slices.MinFunc(offers, func(a, b offer) int {
		opens := cmp.Compare(a.opens, b.opens)
		if q.gpus.Spread {
			opens = -opens
		}
		return cmp.Or(opens, cmp.Compare(a.memory, b.memory), cmp.Compare(a.idle, b.idle), cmp.Compare(a.sharing, b.sharing),
			q.compareNodes(a.node, b.node))
	}).node
}

// add says where a job goes, and leaves no trace; nil for nowhere.
func (q *plain) add(job int) []cluster.GPU {
	mark := q.k.overlay.Checkpoint()
	defer q.k.overlay.Rollback(mark, nil)
	var gpus []cluster.GPU
	first, end := q.k.p.WorkersOf(job)
	together := cluster.Worker(max(1, q.gpus.Together[job]))
	node := -1
	for w := first; w < end; w++ {
		if size := min(together, end-w); together > 1 && (w-first)%together == 0 {
			if node = q.bestNode(w, int(size)); node < 0 {
				return nil
			}
		}
		g := q.choose(w, node)
		if g == cluster.NoGPU {
			return nil
		}
		q.k.overlay.Add(w, g)
		gpus = append(gpus, g)
	}
	return gpus
}

// drawGPUs draws nodes of GPUs of a few sorts, and jobs of which some must be together and some are kept off some GPUs.
func drawGPUs(t *rapid.T, s *scene) GPUs {
	gpus := GPUs{Handover: rapid.Bool().Draw(t, "handover"), Spread: rapid.Bool().Draw(t, "spread")}
	nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
	memory := []unit.Bytes{16, 16, 12, 8}
	for range rapid.IntRange(1, 12).Draw(t, "GPUs") {
		sort := rapid.SampledFrom([]int32{0, 0, 0, 0, 1, 2, 3}).Draw(t, "sort")
		gpus.Memory = append(gpus.Memory, memory[sort])
		gpus.Sort = append(gpus.Sort, sort)
		gpus.Node = append(gpus.Node, rapid.IntRange(0, nodes-1).Draw(t, "node"))
	}
	for range s.jobs {
		gpus.Ask = append(gpus.Ask, rapid.Int32Range(0, 2).Draw(t, "ask"))
		gpus.Together = append(gpus.Together, rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "together"))
	}
	gpus.Bar = func(j int, g cluster.GPU) plan.Reason {
		if gpus.Ask[j] == 1 && gpus.Sort[g] == 1 || gpus.Ask[j] == 2 && gpus.Sort[g] == 0 {
			return plan.Reason{Code: plan.NodeMismatch}
		}
		return plan.Reason{}
	}
	return gpus
}

// TestWhatIsRememberedIsPlain: with jobs that come, go, move and ask, in any order, each job goes exactly where the rules alone
// would put it, and so does one that must be kept off some GPUs for the moment.
func TestWhatIsRememberedIsPlain(t *testing.T) {
	placed, runs := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(2, 40).Draw(t, "workers"), 6)
		s.grain, s.options.GPUMemory = 1, 16
		few := rapid.IntRange(1, 4).Draw(t, "profiles")
		for j := range s.profiles {
			s.profiles[j] = s.drawProfile(t)
			if j >= few {
				twin := j % few
				s.profiles[j] = s.profiles[twin]
				s.jobs[j].Model, s.jobs[j].Floor, s.jobs[j].Class = s.jobs[twin].Model, s.jobs[twin].Floor, s.jobs[twin].Class
			}
		}
		gpus := drawGPUs(t, s)
		k := NewPackerOn(s.problem(), gpus)
		q := &plain{k: k, gpus: gpus, tags: make([]int32, len(gpus.Memory))}
		on := map[int]bool{}
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			j := rapid.IntRange(0, len(s.jobs)-1).Draw(t, "job")
			if on[j] {
				k.Remove(j)
				delete(on, j)
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "tag") == 0 {
				g := rapid.IntRange(0, len(gpus.Memory)-1).Draw(t, "tagged")
				q.tags[g]++
				k.Tag(cluster.GPU(g), q.tags[g])
			}
			q.allow = nil
			if off := rapid.IntRange(-3, len(gpus.Memory)-1).Draw(t, "off"); off >= 0 {
				q.allow = func(g cluster.GPU) bool { return int(g)%3 != off%3 }
			}
			want := q.add(j)
			got, r := k.AddWhere(j, q.allow)
			if !slices.Equal(got, want) || r.Refused() != (want == nil) {
				t.Fatalf("job %d of %d workers, %d together, goes to %v (%s), by the rules to %v", j, s.jobs[j].Workers, gpus.Together[j], got, r, want)
			}
			if want != nil {
				on[j] = true
				placed++
				if gpus.Together[j] > 1 && s.jobs[j].Workers > 1 {
					runs++
				}
			}
			q.allow = nil
			for other := range s.jobs {
				if on[other] {
					continue
				}
				checkTaken(t, q, other)
			}
			for other := range s.jobs {
				if len(gpus.Memory) > 1 && !on[other] && rapid.IntRange(0, 9).Draw(t, "question") == 0 {
					checkQuestions(t, s, k, other)
				}
			}
			checkMove(t, k, gpus)
		}
	})
	t.Logf("%d jobs placed, %d with workers together", placed, runs)
	if runs == 0 {
		t.Error("no job with workers together was ever placed")
	}
}

// checkTaken holds what is remembered of every GPU against the rules, and OpensAfter against placing.
func checkTaken(t *rapid.T, q *plain, job int) {
	t.Helper()
	first, _ := q.k.p.WorkersOf(job)
	for g := range cluster.GPU(len(q.gpus.Memory)) {
		if got, want := q.k.Takes(job, g), q.takes(first, q.seat(g)); got != want {
			t.Fatalf("GPU %d takes job %d: %t, by the rules %t", g, job, got, want)
		}
	}
	want := q.add(job)
	if n, gpus := q.k.OpensAfter(job, nil); (n == 0) != (want != nil) || n == 0 && !slices.Equal(gpus, want) || q.k.Finds(job) != (want != nil) {
		t.Fatalf("job %d opens after %d on %v, finds its GPUs %t, by the rules %v", job, n, gpus, q.k.Finds(job), want)
	}
}

// checkMove moves a worker off its GPU: those that must be together still are, and its old GPU is not used.
func checkMove(t *rapid.T, k *Packer, gpus GPUs) {
	t.Helper()
	w := cluster.Worker(rapid.IntRange(0, k.p.Workers()-1).Draw(t, "moves"))
	from := k.overlay.Place(w)
	if from == cluster.NoGPU || rapid.IntRange(0, 4).Draw(t, "move") > 0 {
		return
	}
	before := k.overlay.Snapshot()
	job := k.p.Job(w)
	moved := k.RehouseWhere(w, func(g cluster.GPU) bool { return g != from })
	on := k.GPUsOf(job)
	if moved == slices.Contains(on, from) || !moved && !sameResidents(before, k.overlay.Snapshot()) {
		t.Fatalf("worker %d of job %d moves from GPU %d: %t, on %v", w, job, from, moved, on)
	}
	for i, g := range on {
		if n := gpus.Together[job]; n > 1 && gpus.Node[g] != gpus.Node[on[i-i%n]] {
			t.Fatalf("job %d, of which %d are together, is on %v", job, n, on)
		}
	}
}

// TestDrainKeepsTogether: whoever moves for a GPU to be emptied goes where the rules let it, and workers that must be together stay so.
func TestDrainKeepsTogether(t *testing.T) {
	emptied, runs := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 15 {
			jobs, together := drainAll(t)
			emptied, runs = emptied+jobs, runs+together
		}
	})
	t.Logf("%d jobs moved, %d with workers together", emptied, runs)
	if emptied == 0 || runs == 0 {
		t.Errorf("%d jobs moved, %d with workers together", emptied, runs)
	}
}

// drainAll empties what it can of some GPUs in use, and says how many jobs moved, and how many of them with workers together.
func drainAll(t *rapid.T) (emptied, runs int) {
	s := drawScene(t, rapid.IntRange(10, 40).Draw(t, "workers"), 3)
	s.grain, s.options.GPUMemory = 1, 16
	for j := range s.profiles {
		s.profiles[j] = s.drawProfile(t)
		s.profiles[j].Persistent /= 2
		s.jobs[j].Floor, s.jobs[j].Class = 0.2, cluster.Burstable
	}
	gpus := drawGPUs(t, s)
	gpus.Spread = true
	k := NewPackerOn(s.problem(), gpus)
	q := &plain{k: k, gpus: gpus, tags: make([]int32, len(gpus.Memory))}
	var placed []int
	for j := range s.jobs {
		if _, r := k.Add(j); !r.Refused() {
			placed = append(placed, j)
		}
	}
	for g := range cluster.GPU(len(gpus.Memory)) {
		before := k.overlay.Snapshot()
		moved := k.Drain(g, func([]int) bool { return true })
		if moved == nil && !sameResidents(before, k.overlay.Snapshot()) {
			t.Fatalf("GPU %d was not emptied, and jobs moved", g)
		}
		if moved != nil && len(k.Residents(g)) > 0 {
			t.Fatalf("GPU %d was emptied, and %v are there", g, k.Residents(g))
		}
		emptied += len(moved)
		for _, j := range moved {
			if gpus.Together[j] > 1 && s.jobs[j].Workers > 1 {
				runs++
			}
			if !slices.Contains(placed, j) {
				t.Fatalf("job %d moves, and had no place", j)
			}
		}
	}
	for _, j := range placed {
		on := k.GPUsOf(j)
		for i, g := range on {
			if n := gpus.Together[j]; n > 1 && gpus.Node[g] != gpus.Node[on[i-i%n]] {
				t.Fatalf("job %d, of which %d are together, is on %v", j, n, on)
			}
		}
		k.Remove(j)
		first, _ := k.p.WorkersOf(j)
		for _, g := range on {
			if !q.takes(first, q.seat(g)) {
				t.Fatalf("job %d is on GPU %d against the rules", j, g)
			}
		}
		if !k.AddAt(j, on) {
			t.Fatalf("job %d does not fit where it is, on %v", j, on)
		}
	}
	return emptied, runs
}
