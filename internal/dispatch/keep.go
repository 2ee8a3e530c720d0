package dispatch

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
)

// keeping is who keeps which GPU. GPUs that are kept by jobs of the same asks share a list.
type keeping struct {
	b      *board
	jobs   [][]int // of each GPU, in the order in which they came
	at     []int32 // list of each GPU
	lists  []*placement.Ahead
	number map[string]int32
}

func newKeeping(b *board) keeping {
	k := keeping{b: b, jobs: make([][]int, len(b.s.GPUs)), at: make([]int32, len(b.s.GPUs)), number: map[string]int32{"": 0}}
	if b.packer != nil {
		k.lists = []*placement.Ahead{b.packer.Ahead()}
	}
	return k
}

// add counts a job among those that keep a GPU.
func (k *keeping) add(job int, g cluster.GPU) {
	k.jobs[g] = append(k.jobs[g], job)
	jobs := slices.Clone(k.jobs[g])
	slices.SortFunc(jobs, func(x, y int) int { return cmp.Compare(k.b.packer.Ask(x), k.b.packer.Ask(y)) })
	var key []byte
	for _, j := range jobs {
		ask := k.b.packer.Ask(j)
		key = append(key, byte(ask), byte(ask>>8), byte(ask>>16), byte(ask>>24))
	}
	at, ok := k.number[string(key)]
	if !ok {
		at = int32(len(k.lists))
		k.number[string(key)] = at
		list := k.b.packer.Ahead()
		for _, j := range jobs {
			list.Add(j)
		}
		k.lists = append(k.lists, list)
	}
	k.at[g] = at
	k.b.packer.Tag(g, at)
}

// first is the first job of an ask that keeps a GPU.
func (k *keeping) first(ask int32, g cluster.GPU) int {
	i := slices.IndexFunc(k.jobs[g], func(j int) bool { return k.b.packer.Ask(j) == ask })
	return k.jobs[g][i]
}

// place is GPUs of one node that a job might keep for workers that are together, judged by the worst of them.
type place struct {
	gpus  []cluster.GPU
	kept  int       // by how many
	since time.Time // for the first in line: the start of the last who must leave before the GPU takes it
	why   plan.Reason
}

func (p *planner) comparePlaces(a, b place) int {
	if c := cmp.Or(cmp.Compare(a.kept, b.kept), a.since.Compare(b.since), nearer(a.why, b.why)); c != 0 {
		return c
	}
	return p.packer.CompareNodes(a.gpus[0], b.gpus[0])
}

// nearest are the GPUs that a job keeps: those kept by the fewest, for the first in line then those whose last resident in the
// way started first, then those nearest to taking it, then the lowest. Workers that are together keep GPUs of one node.
//
// Nobody comes to a kept GPU who would be in the way, and whoever comes to another has started later than all who are in the
// way here. So the first in line waits at most for the residents that it finds.
func (p *planner) nearest(job int) []cluster.GPU {
	size := p.together(job)
	need := (p.workers(job) + size - 1) / size
	best := make([]place, 0, need+1)
	consider := func(x place) {
		if len(best) == need && p.comparePlaces(best[need-1], x) <= 0 {
			return
		}
		at, _ := slices.BinarySearchFunc(best, x, func(a, b place) int {
			if p.comparePlaces(a, b) <= 0 {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, x)
		best = best[:min(len(best), need)]
	}
	if size == 1 {
		for g := range cluster.GPU(len(p.s.GPUs)) {
			if x, ok := p.placeAt(job, g); ok {
				consider(x)
			}
		}
	} else {
		for _, gpus := range p.sorts.nodes {
			for _, x := range p.placesOn(job, gpus, size) {
				consider(x)
			}
		}
	}
	keep := []cluster.GPU{}
	for _, x := range best {
		keep = append(keep, x.gpus...)
	}
	return keep[:min(len(keep), p.workers(job))]
}

// placeAt is what a job might keep of a GPU; false where nobody may keep it any more, or it is barred.
func (p *planner) placeAt(job int, g cluster.GPU) (place, bool) {
	x := place{gpus: []cluster.GPU{g}, kept: len(p.kept.jobs[g])}
	if x.kept >= p.o.MaxResidents || p.bar(job, g).Refused() {
		return place{}, false
	}
	if len(p.ahead) == 1 {
		x.since = p.since(job, g)
	}
	x.why = p.why(job, g)
	return x, true
}

// placesOn is the places of a node, the nearest first, each of as many GPUs as must be together.
func (p *planner) placesOn(job int, gpus []cluster.GPU, size int) []place {
	var single, places []place
	for _, g := range gpus {
		if x, ok := p.placeAt(job, g); ok {
			single = append(single, x)
		}
	}
	slices.SortStableFunc(single, p.comparePlaces)
	for ; len(single) >= size; single = single[size:] {
		x := single[size-1]
		x.gpus = nil
		for _, y := range single[:size] {
			x.gpus = append(x.gpus, y.gpus...)
		}
		places = append(places, x)
	}
	return places
}

// since is when the last of the residents started that must leave a GPU before it takes a job, the oldest going first; zero
// where it takes it as it is.
func (p *planner) since(job int, g cluster.GPU) time.Time {
	residents := p.there(g)
	slices.SortStableFunc(residents, func(a, b int) int { return p.began(a).Compare(p.began(b)) })
	switch n := p.packer.OpensAt(job, g, residents); {
	case n > 0:
		return p.began(residents[n-1])
	case n < 0:
		return p.s.Now
	}
	return time.Time{}
}

// began is when a job that is on GPUs got them.
func (p *planner) began(job int) time.Time {
	if p.runs(job) {
		return p.jobs[job].Started
	}
	return p.s.Now
}
