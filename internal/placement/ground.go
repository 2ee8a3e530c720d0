package placement

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
)

// ground is the GPUs of a packer made by NewPackerOn. What a GPU is to a worker that looks for one is its spot: its sort and
// its state, which is the kinds of its residents. GPUs on one spot are interchangeable but for C5 and their nodes, so whether
// a spot takes a job is worked out once.
type ground struct {
	GPUs
	all   []cluster.GPU
	nodes [][]cluster.GPU // by node
	asks  []int32         // of each job: its kind and its ask, numbered in order of the jobs

	states  []state
	stateAt map[string]int32   // by kinds
	joins   map[[2]int32]int32 // state after one of a kind joined one
	spots   []spot
	spotAt  map[spot]int32
	at      []int32 // spot of each GPU

	tags  []int32 // of each GPU: see Packer.Tag
	looks looks
	takes [][]verdict // by ask, then spot
	seen  sightings
	open  *Tally
}

// state is what resides on a GPU.
type state struct {
	kinds []int32 // ascending
	set   int32
	load  profile.Load
	size  float64 // effective memory
}

type spot struct{ sort, state int32 }

// verdict is whether a spot takes an ask, C5 aside.
type verdict uint8

const (
	unasked verdict = iota
	accepts
	declines
)

// sightings is room for one pass over the GPUs.
type sightings struct {
	pass  uint32
	lost  []uint32 // by spot: the last pass in which it was found worse than another
	idle  []cluster.GPU
	rooms []room // by node
}

func newGround(p *Problem, gpus GPUs) *ground {
	f := &ground{GPUs: gpus, stateAt: map[string]int32{}, joins: map[[2]int32]int32{}, spotAt: map[spot]int32{}}
	n := len(gpus.Memory)
	f.at, f.tags = make([]int32, n), make([]int32, n)
	f.states = []state{{}}
	f.stateAt[""] = 0
	for g := range cluster.GPU(n) {
		for f.node(g) >= len(f.nodes) {
			f.nodes = append(f.nodes, nil)
		}
		f.all = append(f.all, g)
		f.nodes[f.node(g)] = append(f.nodes[f.node(g)], g)
		f.at[g] = f.spotOf(g, 0)
	}
	f.looks = newLooks(len(f.nodes))
	f.open = NewTally(len(f.nodes), 1)
	f.seen.rooms = make([]room, len(f.nodes))
	f.numberAsks(p)
	return f
}

func (f *ground) numberAsks(p *Problem) {
	number := map[[2]int32]int32{}
	f.asks = make([]int32, len(p.jobs))
	for _, j := range byID(p.jobs) {
		key := [2]int32{p.kind[j], j}
		if f.Ask != nil {
			key[1] = f.Ask[j]
		}
		if _, ok := number[key]; !ok {
			number[key] = int32(len(number))
		}
		f.asks[j] = number[key]
	}
	f.takes = make([][]verdict, len(number))
}

// node of a GPU.
func (f *ground) node(g cluster.GPU) int {
	if f.Node == nil {
		return 0
	}
	return f.Node[g]
}

// together is how many workers of a job in a row are on one node.
func (f *ground) together(job int) int {
	if f.Together == nil {
		return 1
	}
	return max(1, f.Together[job])
}

// spotOf is the spot of a GPU in a state.
func (f *ground) spotOf(g cluster.GPU, state int32) int32 {
	s := spot{int32(g), state}
	if f.Sort != nil {
		s.sort = f.Sort[g]
	}
	at, ok := f.spotAt[s]
	if !ok {
		at = int32(len(f.spots))
		f.spotAt[s] = at
		f.spots = append(f.spots, s)
		f.seen.lost = append(f.seen.lost, 0)
	}
	return at
}

// with is the state of a GPU once one of a kind has joined it.
func (f *ground) with(k *Packer, g cluster.GPU, kind int32) int32 {
	from := f.spots[f.at[g]].state
	key := [2]int32{from, kind}
	next, ok := f.joins[key]
	if !ok {
		kinds := slices.Clone(f.states[from].kinds)
		i, _ := slices.BinarySearch(kinds, kind)
		next = f.number(k, slices.Insert(kinds, i, kind))
		f.joins[key] = next
	}
	return next
}

// stateOf is the state of a GPU with residents.
func (f *ground) stateOf(k *Packer, residents []cluster.Worker) int32 {
	var buffer [2 * MaxMaxResidents]int32
	kinds := buffer[:0]
	for _, r := range residents {
		kinds = append(kinds, k.p.kind[k.p.job[r]])
	}
	slices.Sort(kinds)
	return f.number(k, kinds)
}

// number is the state with kinds, ascending. They are added up in order: equal states are equal to the last bit.
func (f *ground) number(k *Packer, kinds []int32) int32 {
	var buffer [8 * MaxMaxResidents]byte
	key := keyOf(buffer[:0], kinds)
	if at, ok := f.stateAt[string(key)]; ok {
		return at
	}
	last := len(kinds) - 1
	fewer := f.states[f.number(k, kinds[:last])]
	kind := &k.p.kinds[kinds[last]]
	s := state{kinds: slices.Clone(kinds), load: fewer.load.Add(kind.profile), size: fewer.size + kind.size}
	groups := make([]int32, 0, len(kinds))
	for _, i := range kinds { // they ascend by group first
		groups = append(groups, k.p.kinds[i].group)
	}
	s.set = k.p.sets.of(groups)
	at := int32(len(f.states))
	f.stateAt[string(key)] = at
	f.states = append(f.states, s)
	return at
}

// keyOf appends numbers as bytes.
func keyOf(key []byte, numbers []int32) []byte {
	for _, n := range numbers {
		key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return key
}

// file puts a GPU into a state.
func (k *Packer) file(g cluster.GPU, to int32) {
	f := k.ground
	s := &f.states[to]
	k.move(g, s.set, s.load, s.size)
	f.at[g] = f.spotOf(g, to)
	f.looks.stale(f.node(g))
}

// admits says whether a GPU takes a job, C5 and where it may go just now aside. O(1) once it is known of the spot.
func (k *Packer) admits(job int, g cluster.GPU) bool {
	f := k.ground
	ask, at := f.asks[job], f.at[g]
	row := f.takes[ask]
	if int(at) >= len(row) {
		row = append(row, make([]verdict, len(f.spots)-len(row))...)
		f.takes[ask] = row
	}
	if row[at] == unasked {
		row[at] = declines
		kind := &k.p.kinds[k.p.kind[job]]
		if k.p.sets.mayJoin(k.set[g], kind.group) && !k.barred(job, g).Refused() && !k.memory(g, kind.profile).Refused() {
			row[at] = accepts
		}
	}
	return row[at] == accepts
}

// Ask numbers what GPUs see of a job: to jobs of one ask they say the same.
func (k *Packer) Ask(job int) int32 { return k.ground.asks[job] }

// Spot numbers what jobs see of a GPU: its sort and the kinds of its residents.
func (k *Packer) Spot(g cluster.GPU) int32 { return k.ground.at[g] }

// Spots is how many there are so far: each is below it.
func (k *Packer) Spots() int { return len(k.ground.spots) }

// Tag notes on a GPU what its user sees of it besides: nodes that are alike otherwise differ by it. It is 0 at first.
func (k *Packer) Tag(g cluster.GPU, tag int32) {
	k.ground.tags[g] = tag
	k.ground.looks.stale(k.ground.node(g))
}

// looks tells nodes apart by what is on them, and not by their numbers: whatever decides between two nodes that differ
// decides the same when they change places.
type looks struct {
	at     []int32 // of each node; -1 where it is not known
	number map[string]int32
	posts  [][]post
}

// post is a GPU of a node.
type post struct{ spot, tag int32 }

func newLooks(nodes int) looks {
	l := looks{at: make([]int32, nodes), number: map[string]int32{}}
	for n := range l.at {
		l.at[n] = -1
	}
	return l
}

func (l *looks) stale(node int) { l.at[node] = -1 }

// look numbers what is on a node.
func (f *ground) look(node int) int32 {
	l := &f.looks
	if l.at[node] >= 0 {
		return l.at[node]
	}
	posts := make([]post, 0, len(f.nodes[node]))
	for _, g := range f.nodes[node] {
		posts = append(posts, post{f.at[g], f.tags[g]})
	}
	slices.SortFunc(posts, f.comparePosts)
	var key []byte
	for _, p := range posts {
		key = keyOf(key, []int32{p.spot, p.tag})
	}
	at, ok := l.number[string(key)]
	if !ok {
		at = int32(len(l.posts))
		l.number[string(key)] = at
		l.posts = append(l.posts, posts)
	}
	l.at[node] = at
	return at
}

func (f *ground) comparePosts(a, b post) int {
	x, y := f.spots[a.spot], f.spots[b.spot]
	if c := cmp.Compare(x.sort, y.sort); c != 0 {
		return c
	}
	if x.state != y.state {
		return slices.Compare(f.states[x.state].kinds, f.states[y.state].kinds)
	}
	return cmp.Compare(a.tag, b.tag)
}

// compareNodes orders nodes by what is on them; 0 where they are alike.
func (f *ground) compareNodes(a, b int) int {
	if a == b {
		return 0
	}
	if x, y := f.look(a), f.look(b); x != y {
		return slices.CompareFunc(f.looks.posts[x], f.looks.posts[y], f.comparePosts)
	}
	return 0
}

// CompareNodes orders the nodes of two GPUs by what is on them, whatever their numbers; 0 where they are alike.
func (k *Packer) CompareNodes(a, b cluster.GPU) int {
	return k.ground.compareNodes(k.ground.node(a), k.ground.node(b))
}
