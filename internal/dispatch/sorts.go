package dispatch

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// sorts tells GPUs apart by what keeps jobs off them whoever is there, and jobs by what GPUs see of them besides their memory
// and what they share with. In a cluster most are alike, and a question is answered once for all that are.
type sorts struct {
	nodes    [][]cluster.GPU // of each node
	masks    []int32         // of each job: its Nodes among those that differ; 0 for all nodes
	together []int           // of each job: at least 1
	ofGPU    []int32
	differ   int // sorts of GPUs
	ofJob    []int32

	reasons []plan.Reason // that were given, each once; the first is none
	number  map[plan.Reason]int32
	bars    [][]int32 // by the packer's ask, then sort: the reason by its number and 1; 0 where it was not asked for
}

// site is what keeps jobs off a GPU, but for the other GPUs of its node.
type site struct {
	usable, foreign unit.Bytes
	runs            bool
	closed          plan.Code
	may             string // a byte for each of the masks that differ
}

func compareSites(a, b site) int {
	if c := cmp.Or(cmp.Compare(a.usable, b.usable), cmp.Compare(a.foreign, b.foreign), cmp.Compare(a.closed, b.closed)); c != 0 {
		return c
	}
	if a.runs != b.runs {
		return cmp.Compare(toInt(a.runs), toInt(b.runs))
	}
	return cmp.Compare(a.may, b.may)
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sort numbers the GPUs and jobs of a board. No number depends on those of the nodes.
func (b *board) sort() {
	t := &b.sorts
	t.reasons, t.number = []plan.Reason{{}}, map[plan.Reason]int32{{}: 0}
	for g := range cluster.GPU(len(b.s.GPUs)) {
		for b.node(g) >= len(t.nodes) {
			t.nodes = append(t.nodes, nil)
		}
		t.nodes[b.node(g)] = append(t.nodes[b.node(g)], g)
	}
	masks, wide := b.sortJobs()
	sites := make([]site, len(b.s.GPUs))
	may := make([]string, len(t.nodes))
	for n := range may {
		list := make([]byte, len(masks))
		for i, m := range masks {
			list[i] = byte(toInt(m.allows(n)))
		}
		may[n] = string(list)
	}
	for g := range sites {
		gpu := &b.s.GPUs[g]
		sites[g] = site{gpu.Usable, gpu.Foreign, gpu.ForeignRuns, gpu.Closed, may[b.node(cluster.GPU(g))]}
	}
	t.ofGPU = numbered(sites, compareSites)
	if wide {
		t.ofGPU = b.sortNodes()
	}
	for _, sort := range t.ofGPU {
		t.differ = max(t.differ, int(sort)+1)
	}
}

// sortNodes numbers GPUs by their sites and those of the others of their node: a job whose workers are together sees both.
func (b *board) sortNodes() []int32 {
	type corner struct {
		node string
		site int32
	}
	corners := make([]corner, len(b.s.GPUs))
	for _, gpus := range b.sorts.nodes {
		var sites []int32
		for _, g := range gpus {
			sites = append(sites, b.sorts.ofGPU[g])
		}
		slices.Sort(sites)
		var key []byte
		for _, s := range sites {
			key = append(key, byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
		}
		for _, g := range gpus {
			corners[g] = corner{string(key), b.sorts.ofGPU[g]}
		}
	}
	return numbered(corners, func(x, y corner) int { return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.site, y.site)) })
}

// numbered is the place of each of a list among those that differ, in order.
func numbered[T comparable](list []T, compare func(a, b T) int) []int32 {
	number := map[T]int32{}
	var differ []T
	for _, x := range list {
		if _, ok := number[x]; !ok {
			number[x] = 0
			differ = append(differ, x)
		}
	}
	slices.SortFunc(differ, compare)
	for i, x := range differ {
		number[x] = int32(i)
	}
	of := make([]int32, len(list))
	for i, x := range list {
		of[i] = number[x]
	}
	return of
}

// sortJobs numbers the jobs, and says which sets of nodes they name and whether any of them has workers that are together.
func (b *board) sortJobs() (masks []*Nodes, wide bool) {
	t := &b.sorts
	type ask struct {
		class          cluster.Class
		mask, together int32
	}
	byPointer, byContent, asks := map[*Nodes]int32{nil: 0}, map[string]int32{}, map[ask]int32{}
	for _, j := range b.jobs {
		mask, ok := byPointer[j.Nodes]
		if !ok {
			content := j.Nodes.content(len(t.nodes))
			if mask, ok = byContent[content]; !ok {
				masks = append(masks, j.Nodes)
				mask = int32(len(masks))
				byContent[content] = mask
			}
			byPointer[j.Nodes] = mask
		}
		together := min(max(1, j.Together), max(1, j.GPUs))
		wide = wide || together > 1
		a := ask{j.Class, mask, int32(together)}
		if _, ok := asks[a]; !ok {
			asks[a] = int32(len(asks))
		}
		t.masks = append(t.masks, mask)
		t.together = append(t.together, together)
		t.ofJob = append(t.ofJob, asks[a])
	}
	return masks, wide
}

// allows says whether a node is among them.
func (n *Nodes) allows(node int) bool { return n == nil || node < len(n.May) && n.May[node] }

// content is the nodes as text, for so many.
func (n *Nodes) content(nodes int) string {
	list := make([]byte, nodes)
	for i := range list {
		list[i] = byte(toInt(n.allows(i)))
	}
	return string(list)
}

// node of a GPU; what is below 0 counts as 0.
func (b *board) node(g cluster.GPU) int { return max(0, b.s.GPUs[g].Node) }

// together is how many workers of a job in a row are on one node.
func (b *board) together(job int) int { return b.sorts.together[job] }

// tally counts GPUs for a job.
func (b *board) tally(job int) *placement.Tally {
	return placement.NewTally(len(b.sorts.nodes), b.together(job))
}

// bar is what keeps a job off a GPU whoever is there.
func (b *board) bar(job int, g cluster.GPU) plan.Reason {
	t := &b.sorts
	ask, sort := int(b.packer.Ask(job)), int(t.ofGPU[g])
	for ask >= len(t.bars) {
		t.bars = append(t.bars, nil)
	}
	row := t.bars[ask]
	if sort >= len(row) {
		row = make([]int32, t.differ)
		t.bars[ask] = row
	}
	if row[sort] == 0 {
		r := b.barred(job, g)
		if _, ok := t.number[r]; !ok {
			t.number[r] = int32(len(t.reasons))
			t.reasons = append(t.reasons, r)
		}
		row[sort] = t.number[r] + 1
	}
	return t.reasons[row[sort]-1]
}

// barred is bar, worked out: what keeps it off the GPU, and else off a node with too few GPUs for workers that are together.
func (b *board) barred(job int, g cluster.GPU) plan.Reason {
	r := b.closed(job, g)
	if r.Refused() || b.together(job) <= 1 {
		return r
	}
	gpus := b.sorts.nodes[b.node(g)]
	open, need := 0, b.together(job)
	for _, other := range gpus {
		if !b.closed(job, other).Refused() {
			open++
		}
	}
	switch {
	case len(gpus) < need:
		return plan.Reason{Code: plan.TooLarge, Got: float64(need), Limit: float64(len(gpus))}
	case open < need:
		return plan.Reason{Code: plan.Gang, Got: float64(need), Limit: float64(open)}
	}
	return plan.Reason{}
}

// closed is what keeps a job off a GPU by itself.
func (b *board) closed(job int, g cluster.GPU) plan.Reason {
	gpu, j := &b.s.GPUs[g], b.jobs[job]
	if !j.Nodes.allows(b.node(g)) {
		return plan.Reason{Code: plan.NodeMismatch}
	}
	if gpu.Closed != "" {
		return plan.Reason{Code: gpu.Closed}
	}
	if gpu.ForeignRuns && j.Class != cluster.BestEffort {
		return plan.Reason{Code: plan.Foreign}
	}
	if peak := j.Memory.Peak(); peak > b.free[g] {
		code := plan.Foreign
		if peak > gpu.Usable {
			code = plan.TooLarge
		}
		return plan.Reason{Code: code, Got: float64(peak), Limit: float64(b.free[g])}
	}
	return plan.Reason{}
}
