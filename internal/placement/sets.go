package placement

import (
	"cmp"
	"math"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
)

// floorTolerance is the slack of a floor check: rates are sums of measured ratios, and 1/(1 + (1/0.9 - 1)) need not be
// 0.9 to the last bit.
const floorTolerance = 1e-9

// alone is the group of workers that may share with nobody.
const alone int32 = 0

// empty is the set of an idle GPU.
const empty int32 = 0

// group is what C3, C4 and the class rules see of a worker: its measured configuration, floor and class.
type group struct {
	config int
	floor  float64
	class  cluster.Class
}

// set is a multiset of groups that may share a GPU, memory aside: the signature of a GPU.
type set struct {
	groups   []int32 // ascending
	slowdown float64 // summed over members, above 1 each
	next     []int32 // set after one more member, by group; 0 is not yet known, refused may not
	room     int     // see room; unknown until asked for
}

const (
	refused = int32(-1)
	unknown = -1
)

// unshared is the group numbered alone: no rate but its standalone one keeps its floor.
var unshared = group{config: -1, floor: 1}

// sets are the multisets of groups met so far, numbered; set 0 is empty. Whether one more member may join is
// computed once per set and group. With a constant number of groups the number of sets is constant too.
type sets struct {
	table  *interference.Table
	o      Options
	groups []group
	demand []int // workers of each group
	all    []set
	index  map[string]int32
	stride int // see room
}

func newSets(table *interference.Table, o Options) *sets {
	if table == nil {
		table = interference.NewTable()
	}
	return &sets{table: table, o: o, index: map[string]int32{"": empty}, stride: 1}
}

// groupsOf numbers the groups of jobs by configuration, floor and class.
func (s *sets) groupsOf(jobs []cluster.Job) []int32 {
	of := make([]group, len(jobs))
	seen := map[group]int32{}
	for j := range jobs {
		job := &jobs[j]
		config, known := -1, false
		if job.Model != "" {
			config, known = s.table.Lookup(interference.Config{Model: job.Model, Batch: job.Batch})
		}
		if known {
			of[j] = group{config, job.Floor, job.Class}
			seen[of[j]] = 0
		} else {
			of[j] = unshared
		}
	}
	s.groups = append(s.groups[:0], unshared)
	for g := range seen {
		s.groups = append(s.groups, g)
	}
	slices.SortFunc(s.groups, s.compareGroups)
	for i, g := range s.groups {
		seen[g] = int32(i)
	}
	number := make([]int32, len(jobs))
	s.demand = make([]int, len(s.groups))
	for j := range of {
		number[j] = seen[of[j]]
		s.demand[number[j]] += jobs[j].Workers
	}
	s.all = append(s.all[:0], set{next: make([]int32, len(s.groups)), room: unknown})
	return number
}

// compareGroups orders by configuration name, so that the numbering does not depend on the order of a table.
func (s *sets) compareGroups(a, b group) int {
	if a.config < 0 || b.config < 0 {
		return cmp.Compare(a.config, b.config)
	}
	x, y := s.table.Config(a.config), s.table.Config(b.config)
	return cmp.Or(cmp.Compare(x.Model, y.Model), cmp.Compare(x.Batch, y.Batch), cmp.Compare(a.floor, b.floor),
		cmp.Compare(a.class, b.class))
}

// join is the set after a member of group g joined set at, or refused. O(1) once known, else O(MaxResidents^2).
func (s *sets) join(at, g int32) int32 {
	if next := s.all[at].next[g]; next != 0 {
		return next
	}
	groups := s.with(at, g)
	next := refused
	if r, slowdown := s.check(groups, g); !r.Refused() {
		next = s.number(groups, slowdown)
	}
	s.all[at].next[g] = next
	return next
}

// mayJoin says whether g may join a set, without numbering what it would make.
func (s *sets) mayJoin(at, g int32) bool {
	if next := s.all[at].next[g]; next != 0 {
		return next != refused
	}
	var buffer [MaxMaxResidents + 1]int32 // this is asked for most of the time that many groups take: no garbage
	groups := insert(append(buffer[:0], s.all[at].groups...), g)
	r, _ := s.check(groups, g)
	if r.Refused() {
		s.all[at].next[g] = refused
	}
	return !r.Refused()
}

// room is how many workers of the problem could still join a set, each by itself; of those of every stride-th group. It is
// computed once per set.
func (s *sets) room(at int32) int {
	if s.all[at].room == unknown {
		n := 0
		if len(s.all[at].groups) < s.o.MaxResidents {
			for g := 0; g < len(s.demand); g += s.stride {
				if s.mayJoin(at, int32(g)) {
					n += s.demand[g]
				}
			}
		}
		s.all[at].room = n
	}
	return s.all[at].room
}

// why is the reason that refuses g.
func (s *sets) why(at, g int32) plan.Reason {
	r, _ := s.check(s.with(at, g), g)
	return r
}

// with is the groups of a set and one more, ascending.
func (s *sets) with(at, g int32) []int32 { return insert(slices.Clone(s.all[at].groups), g) }

// insert puts g at its place in ascending groups.
func insert(groups []int32, g int32) []int32 {
	i, _ := slices.BinarySearch(groups, g)
	return slices.Insert(groups, i, g)
}

// leave is the set without one member of group g. Every subset of a set that may share may share.
func (s *sets) leave(at, g int32) int32 {
	groups := slices.Clone(s.all[at].groups)
	i, _ := slices.BinarySearch(groups, g)
	return s.of(slices.Delete(groups, i, i+1))
}

// of numbers a multiset of groups, ascending, whether or not it may share.
func (s *sets) of(groups []int32) int32 { return s.number(groups, s.total(groups)) }

// total is the slowdown above 1 summed over the members.
func (s *sets) total(groups []int32) float64 {
	sum := 0.0
	for i := range groups {
		sum += s.added(groups, i)
	}
	return sum
}

// forget drops what was remembered of the table, which has changed. The numbers of sets stay.
func (s *sets) forget() {
	for i := range s.all {
		set := &s.all[i]
		clear(set.next)
		set.room, set.slowdown = unknown, s.total(set.groups)
	}
}

func (s *sets) number(groups []int32, slowdown float64) int32 {
	key := make([]byte, 0, 4*len(groups))
	for _, g := range groups {
		key = append(key, byte(g), byte(g>>8), byte(g>>16), byte(g>>24))
	}
	if i, ok := s.index[string(key)]; ok {
		return i
	}
	i := int32(len(s.all))
	s.index[string(key)] = i
	s.all = append(s.all, set{groups, slowdown, make([]int32, len(s.groups)), unknown})
	return i
}

// check says whether the groups may share and how much they slow each other down in sum. joined is the group that
// came last, for telling FloorSelf from FloorResident.
func (s *sets) check(groups []int32, joined int32) (plan.Reason, float64) {
	if n := len(groups); n > s.o.MaxResidents {
		return plan.Reason{Code: plan.MaxResidents, Got: float64(n), Limit: float64(s.o.MaxResidents)}, 0
	}
	if s.classConflict(groups) {
		return plan.Reason{Code: plan.ClassConflict}, 0
	}
	total := 0.0
	for i, g := range groups {
		added := s.added(groups, i)
		total += added
		if rate := 1 / (1 + added); !s.holds(rate, s.groups[g].floor) {
			code := plan.FloorResident
			if g == joined {
				code = plan.FloorSelf
			}
			return plan.Reason{Code: code, Got: rate, Limit: s.groups[g].floor}, 0
		}
	}
	if !s.admits(groups) {
		return plan.Reason{Code: plan.Rule}, 0
	}
	return plan.Reason{}, total
}

// holds says whether a rate keeps a floor. However low the floor, rate 0 does not: that of an unmeasured pair.
func (s *sets) holds(rate, floor float64) bool {
	return rate > 0 && (s.o.NoFloors || s.o.Admit != nil || rate >= floor-floorTolerance)
}

// admits asks the rule that stands in for C3, if there is one.
func (s *sets) admits(groups []int32) bool {
	if s.o.Admit == nil || len(groups) < 2 {
		return true
	}
	configs := make([]int, len(groups))
	for i, g := range groups {
		configs[i] = s.groups[g].config
	}
	slices.Sort(configs)
	return s.o.Admit(configs)
}

// added is the slowdown of member i above 1: the sum over the others of what each adds (C3's composition).
func (s *sets) added(groups []int32, i int) float64 {
	sum := 0.0
	for l, g := range groups {
		if l != i {
			sum += s.pair(groups[i], g)
		}
	}
	return sum
}

func (s *sets) pair(g, l int32) float64 {
	if g == alone || l == alone {
		return math.Inf(1)
	}
	if s.apart(g, l) {
		return math.Inf(1)
	}
	return s.table.Added(s.groups[g].config, s.groups[l].config)
}

// apart says whether two groups are kept apart whatever their rates.
func (s *sets) apart(g, l int32) bool {
	return s.o.Apart != nil && g != alone && l != alone && s.o.Apart(s.groups[g].config, s.groups[l].config)
}

// rate of a member of group g in a set: the share of its standalone speed.
func (s *sets) rate(at, g int32) float64 {
	groups := s.all[at].groups
	i, _ := slices.BinarySearch(groups, g)
	return 1 / (1 + s.added(groups, i))
}

// classConflict applies the classes of the GPU-sharing paper: a guaranteed worker shares with at most one besteffort
// worker and nothing else; a GPU holds at most two besteffort workers beside others.
func (s *sets) classConflict(groups []int32) bool {
	var n [3]int
	for _, g := range groups {
		n[s.groups[g].class]++
	}
	if n[cluster.Guaranteed] > 0 {
		return len(groups) > 2 || n[cluster.Guaranteed]+n[cluster.BestEffort] < len(groups) || n[cluster.Guaranteed] > 1
	}
	return n[cluster.BestEffort] > 2
}
