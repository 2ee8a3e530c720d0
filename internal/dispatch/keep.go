package dispatch

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
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
	gpu   cluster.GPU
	run   []cluster.GPU // all of them, where workers are together
	kept  int           // by how many
	since time.Time     // for the first in line: the start of the last who must leave before the GPU takes it
	far   distance      // from taking it
}

func (p *planner) comparePlaces(a, b *place) int {
	if a.kept != b.kept {
		return cmp.Compare(a.kept, b.kept)
	}
	if c := cmp.Or(a.since.Compare(b.since), a.far.compare(b.far)); c != 0 {
		return c
	}
	return p.packer.CompareNodes(a.gpu, b.gpu)
}

// nearest are the GPUs that a job keeps: those kept by the fewest, for the first in line then those whose last resident in the
// way started first, then those nearest to taking it, then the lowest. Workers that are together keep GPUs of one node.
//
// Nobody comes to a kept GPU who would be in the way, and whoever comes to another has started later than all who are in the
// way here. So the first in line waits at most for the residents that it finds.
func (p *planner) nearest(job int) []cluster.GPU {
	size := p.together(job)
	best := shortlist{most: (p.workers(job) + size - 1) / size, gauge: p.gauge(job)}
	var x place
	if size == 1 {
		for g := range cluster.GPU(len(p.s.GPUs)) {
			if p.placeAt(job, g, &best, &x) && best.wants(&x) {
				best.add(x)
			}
		}
	} else {
		for _, gpus := range p.sorts.nodes {
			p.offerNode(job, gpus, size, &best)
		}
	}
	keep := make([]cluster.GPU, 0, p.workers(job))
	for _, x := range best.places {
		if keep = append(keep, x.run...); x.run == nil {
			keep = append(keep, x.gpu)
		}
	}
	return keep[:min(len(keep), p.workers(job))]
}

// shortlist is the best of the places offered, the first of equals first.
type shortlist struct {
	gauge
	most   int
	places []place
}

// full says whether nobody kept by so many comes on the list any more.
func (l *shortlist) full(kept int) bool {
	return len(l.places) == l.most && l.places[l.most-1].kept < kept
}

// wants says whether a place is better than the last of the list.
func (l *shortlist) wants(x *place) bool {
	return len(l.places) < l.most || l.p.comparePlaces(x, &l.places[l.most-1]) < 0
}

func (l *shortlist) add(x place) {
	at := len(l.places)
	for at > 0 && l.p.comparePlaces(&x, &l.places[at-1]) < 0 {
		at--
	}
	l.places = slices.Insert(l.places, at, x)
	l.places = l.places[:min(len(l.places), l.most)]
}

// placeAt writes to x what a job might keep of a GPU; false where nobody may keep it any more, it is barred, or it is worse than
// all on the list.
func (p *planner) placeAt(job int, g cluster.GPU, list *shortlist, x *place) bool {
	kept := len(p.kept.jobs[g])
	if kept >= p.o.MaxResidents || list.full(kept) || p.bar(job, g).Refused() {
		return false
	}
	far := list.distance(g)
	if len(p.ahead) == 1 {
		*x = place{gpu: g, kept: kept, since: p.since(job, g), far: far}
		return true
	}
	if list.beyond(kept, far) {
		return false
	}
	*x = place{gpu: g, kept: kept, far: far}
	return true
}

// beyond says whether a place is worse than all on a list that is full, where no start of a resident decides.
func (l *shortlist) beyond(kept int, far distance) bool {
	if len(l.places) < l.most {
		return false
	}
	last := &l.places[l.most-1]
	return kept > last.kept || kept == last.kept && far.compare(last.far) > 0
}

// offerNode puts the places of a node on a list, each of as many GPUs as must be together, the nearest first.
func (p *planner) offerNode(job int, gpus []cluster.GPU, size int, list *shortlist) {
	single, x := p.single[:0], place{}
	for _, g := range gpus {
		if p.placeAt(job, g, list, &x) {
			single = append(single, x)
		}
	}
	p.single = single
	if len(single) > size {
		slices.SortStableFunc(single, func(a, b place) int { return p.comparePlaces(&a, &b) })
	}
	for ; len(single) >= size; single = single[size:] {
		x := slices.MaxFunc(single[:size], func(a, b place) int { return p.comparePlaces(&a, &b) })
		if !list.wants(&x) {
			return
		}
		x.run = make([]cluster.GPU, 0, size)
		for _, y := range single[:size] {
			x.run = append(x.run, y.gpu)
		}
		list.add(x)
	}
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
